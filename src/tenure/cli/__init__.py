"""The `tenure` command. Each command is a module of its own, imported when it is called."""

from __future__ import annotations

import sys


def main() -> None:
    """The entry point of `tenure` and of `python -m tenure`."""
    from tenure.cli.root import cli

    for stream in (sys.stdout, sys.stderr):
        # What the terminal cannot show is shown as an escape; a name must not end a command.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    cli.main(prog_name="tenure")
