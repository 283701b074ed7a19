"""Fetching credentials ahead, where their user is: bounded, and never in the way."""

from __future__ import annotations

import contextvars
import inspect
from collections.abc import Callable
from threading import Thread
from typing import Any

import anyio

from tenure.leases.once import Once

TIMEOUT = 5.0

Note = Callable[[BaseException], None]
"""Writes down that it failed."""


class _Helper:
    """Runs the function in a thread of its own, in the caller's context."""

    def __init__(self, prepare: Callable[[], Any]) -> None:
        self.over = Once()
        self.error: BaseException | None = None
        context = contextvars.copy_context()
        Thread(
            target=context.run, args=(self._run, prepare), name="tenure-lease-prepare", daemon=True
        ).start()

    def _run(self, prepare: Callable[[], Any]) -> None:
        try:
            result = prepare()
            if inspect.isawaitable(result):
                anyio.run(_awaited, result)
        except BaseException as error:
            self.error = error
        self.over.set()

    def note(self, reported: bool, note: Note) -> None:
        if not reported:
            note(TimeoutError(f"prepare() took longer than {TIMEOUT:g} s"))
        elif self.error is not None:
            note(self.error)


def prime(client: object, note: Note) -> None:
    """Call `client.prepare()`, if there is one, and wait for up to 5 s. Raises nothing."""
    prepare = getattr(client, "prepare", None)
    if prepare is None:
        return
    try:
        helper = _Helper(prepare)
    except RuntimeError as error:  # there is no thread to be had
        note(error)
        return
    helper.note(helper.over.wait(TIMEOUT), note)


async def prime_async(client: object, note: Note) -> None:
    """As `prime`, in the caller's own event loop if `prepare` is async. Can be cancelled."""
    prepare = getattr(client, "prepare", None)
    if prepare is None:
        return
    try:
        if inspect.iscoroutinefunction(prepare):
            with anyio.fail_after(TIMEOUT):
                await prepare()
            return
        helper = _Helper(prepare)
    except Exception as error:
        note(error)
        return
    helper.note(await helper.over.wait_async(TIMEOUT), note)


async def _awaited(result: Any) -> None:
    await result
