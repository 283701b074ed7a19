"""A lease client made of one or two functions, for any service that grants leases."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import anyio

from tenure.core.durations import Seconds
from tenure.core.lease import Beat, Busy, Extended, Extension, Failed, Lost
from tenure.core.retry import RetryPolicy
from tenure.errors import ConfigurationError
from tenure.leases.calls import Calls
from tenure.leases.verdicts import UNAUTHORIZED, Verdict, verdict

log = logging.getLogger("tenure.leases")

PREPARE_TIMEOUT = 5.0

Renew = Callable[[str, float], Any]
"""Takes a receipt and seconds, and asks the service for a lease of that length from now on.

May be async or block. Returns the seconds that were granted (or a `timedelta`), an `Extension`, or
None: as asked for. What it raises is judged by `verdict`.
"""


class FunctionClient:
    """See `client_from`."""

    batch = 1
    stateless = True

    def __init__(
        self,
        renew: Renew,
        change: Renew,
        *,
        resolution: Seconds,
        retry: RetryPolicy,
        prepare: Callable[[], Any] | None,
        judge: Callable[[BaseException], Verdict],
    ) -> None:
        self.resolution = resolution
        self.retry = retry
        self._renew = renew
        self._change = change
        self._judge = judge
        self._prepare = prepare
        self._calls = Calls()
        self._refreshing: asyncio.Task[None] | None = None
        if prepare is not None:
            self.prepare = prepare

    async def open(self) -> None:
        """Nothing to do: the functions bring their own connections."""

    async def close(self) -> None:
        """Nothing to do."""

    async def extend(self, beats: Sequence[Beat], /) -> Sequence[Extension]:
        return [await self._one(self._renew, beat) for beat in beats]

    async def change(self, beats: Sequence[Beat], /) -> Sequence[Extension]:
        return [await self._one(self._change, beat) for beat in beats]

    async def _one(self, function: Renew, beat: Beat) -> Extension:
        answer = await self._ask(function, beat)
        if answer is not UNAUTHORIZED:
            return answer
        if self._prepare is not None:
            await self._refresh(self._prepare)
            answer = await self._ask(function, beat)
        return Lost("unauthorized") if answer is UNAUTHORIZED else answer

    async def _ask(self, function: Renew, beat: Beat) -> Extension:
        try:
            granted = await self._calls(function, beat.id, beat.seconds)
        except Exception as error:
            answer = self._judge(error)
            if answer is None:
                raise
            return answer
        if granted is None:
            return Extended(beat.seconds)
        if isinstance(granted, Extended | Busy | Lost | Failed):
            return granted
        if isinstance(granted, timedelta):
            return Extended(granted.total_seconds())
        if isinstance(granted, bool) or not isinstance(granted, int | float):
            raise TypeError(
                f"renew must return seconds, a timedelta, an Extension or None, not {granted!r}"
            )
        return Extended(float(granted))

    async def _refresh(self, prepare: Callable[[], Any]) -> None:
        """Fetch new credentials; leases that need them at the same time share one call."""
        loop = asyncio.get_running_loop()
        refreshing = self._refreshing
        if refreshing is None or refreshing.done() or refreshing.get_loop() is not loop:
            refreshing = self._refreshing = loop.create_task(self._fetch(prepare))
        await asyncio.shield(refreshing)

    async def _fetch(self, prepare: Callable[[], Any]) -> None:
        try:
            with anyio.fail_after(PREPARE_TIMEOUT):
                await self._calls(prepare)
        except Exception as error:
            log.debug("credentials could not be refreshed: %r", error)


def client_from(
    renew: Renew,
    extend: Renew | None = None,
    *,
    resolution: Seconds = 1.0,
    retry: RetryPolicy | None = None,
    prepare: Callable[[], Any] | None = None,
    judge: Callable[[BaseException], Verdict] = verdict,
) -> FunctionClient:
    """A lease client made of functions, plain or async: `renew(receipt, seconds)`.

    `extend(receipt, seconds)`, by default `renew`, serves explicit extensions, where 0 seconds
    means "released now". `resolution` is the service's smallest step in seconds, `retry` the waits
    between transient failures (3 s each), `prepare()` fetches credentials: before a renewal starts
    and once more when the service answers 401. `judge` tells what an exception means.

    A plain function runs in threads of the keeper and must have a time limit of its own, well
    below the renewal interval. Raises `ConfigurationError` if a function is none.
    """
    functions = {"renew": renew, "extend": extend, "prepare": prepare, "judge": judge}
    for name, function in functions.items():
        if not callable(function) and (function is not None or name in ("renew", "judge")):
            raise ConfigurationError(f"{name} must be a function, not {function!r}")
    return FunctionClient(
        renew,
        renew if extend is None else extend,
        resolution=resolution,
        retry=RetryPolicy.constant(3.0) if retry is None else retry,
        prepare=prepare,
        judge=judge,
    )
