"""Runs one block of Python from the docs, given as the argument; top-level `await` is allowed."""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from typing import Any


def main(source: str) -> None:
    sys.path.insert(0, "")
    code = compile(source, "<docs>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"__name__": "__main__"}
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


main(sys.argv[1])
