"""The same numbers without tenure: one plain loop over the files, in a thread of the demo."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence
from pathlib import Path

from tenure.demo.measure import Measured, attempt


class PlainCheck:
    """Measures files one after the other, beside whatever else the process does."""

    def __init__(self, files: Sequence[Path]) -> None:
        self.answers: dict[Path, Measured | str] = {}
        self._files = list(files)
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="demo-check", daemon=True)

    def start(self) -> None:
        """Begin, if that was not done before."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """End early; does nothing when all is done."""
        self._stopped = True

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what others' code does is not ours to remark on
            for path in self._files:
                if self._stopped:
                    return
                self.answers[path] = attempt(path)
