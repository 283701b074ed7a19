"""Tests that every engine passes: the promises of `tenure.engines.protocol`, one by one.

To prove an engine, write a pytest module with a fixture that opens it, and import the suite::

    import pytest
    from tenure.testing.conformance.suite import *

    @pytest.fixture
    def anyio_backend():
        return "asyncio"

    @pytest.fixture
    async def open_engine(tmp_path):
        async with contextlib.AsyncExitStack() as stack:
            yield lambda: stack.enter_async_context(MyEngine(tmp_path / "jobs"))

`open_engine()` is awaited and gives an opened engine. Each test gets a fresh and empty store; a
second call within a test gives another handle on the same store. Parametrise the fixture to prove
several engines in one run. The tests turn time by `now=` and do not sleep.

`histories.compare` runs random operations on two engines and demands the same answers.

Needs pytest, and anyio's pytest plugin, which comes with anyio; the histories need hypothesis.
"""

import pytest

# So that a failing assert shows its values; must come before the modules are imported.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in (
            "cancel claim claim_arms claim_lapsed claim_resume claim_room concurrency draws extend"
            " firing histories history ids insert kit ledger lost_replies presence prune query"
            " requeue reservations schedules settle signals steps sweep traits unique"
            " unique_batch zombies"
        ).split()
    )
)
