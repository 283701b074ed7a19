"""The pytest plugin of tenure: the fixture `tenure_jobs`.

pytest imports this at every start, whether a test needs it or not, so it stands outside the package
and imports tenure only where the fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tenure.testing import Kit


def pytest_addoption(parser: pytest.Parser) -> None:
    """The setting `tenure_app`."""
    parser.addini("tenure_app", "the service under test, as module:attribute")


@pytest.fixture
def tenure_url() -> str:
    """Where the jobs of a test are kept; define a fixture of this name to keep them elsewhere."""
    return "memory://"


@pytest.fixture
def tenure_jobs(request: pytest.FixtureRequest, tenure_url: str) -> Iterator[Kit]:
    """A `tenure.testing.Kit`: the app's service, with a store of its own for this test.

    The service is that of the setting `tenure_app`; without it, a new one without tasks.
    """
    from tenure.service import QueueService
    from tenure.testing import override

    app = request.config.getini("tenure_app")
    if app:
        from tenure.cli.target import load_app

        service = load_app(app)
    else:
        service = QueueService("memory://")
    with override(service, tenure_url) as kit:
        yield kit
