"""What the demo shows while it runs: a live bar on a terminal, a few lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Protocol

import click


class Screen(Protocol):
    """Where the demo says what happens."""

    def say(self, text: str) -> None:
        """One sentence."""
        ...

    def begin(self, what: str, total: int, done: int = 0) -> None:
        """Something with steps begins, of which so many are done already."""
        ...

    def at(self, done: int, total: int) -> None:
        """So many steps are done."""
        ...

    def close(self) -> None:
        """Nothing more follows."""
        ...


def screen(*, live: bool) -> Screen:
    """The screen for this terminal, or for none."""
    return Live() if live and sys.stdout.isatty() else Lines()


class Rate:
    """Steps per second since it was made, when `done` of them were done."""

    def __init__(self, done: int = 0) -> None:
        self._done = done
        self._started = time.monotonic()

    def at(self, done: int) -> float:
        """The rate when so many are done."""
        return (done - self._done) / max(time.monotonic() - self._started, 0.001)


class Lines:
    """Few lines, on the error output: one for each quarter."""

    def __init__(self) -> None:
        self._what = ""
        self._quarter = 0
        self._rate = Rate()

    def say(self, text: str) -> None:
        click.echo(text, err=True)

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self._what, self._quarter, self._rate = what, 4 * done // max(total, 1), Rate(done)

    def at(self, done: int, total: int) -> None:
        quarter = 4 * done // max(total, 1)
        if quarter > self._quarter:
            self._quarter = quarter
            self.say(f"{self._what}: {done} of {total}, {self._rate.at(done):.0f} per second")

    def close(self) -> None:
        pass


class Live:
    """A bar with its rate, and the sentences above it."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
        )
        self._bar = self._progress.add_task("", total=None, visible=False, rate="")
        self._rate = Rate()
        self._progress.start()

    def say(self, text: str) -> None:
        from rich.text import Text

        self._progress.console.print(Text(text))

    def begin(self, what: str, total: int, done: int = 0) -> None:
        self._rate = Rate(done)
        self._progress.update(
            self._bar, description=what, total=total, completed=done, visible=True, rate=""
        )

    def at(self, done: int, total: int) -> None:
        rate = f"{self._rate.at(done):.0f}/s"
        self._progress.update(self._bar, completed=done, total=total, rate=rate)

    def close(self) -> None:
        self._progress.stop()
