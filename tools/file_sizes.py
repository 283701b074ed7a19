"""Report what grows too large under ``src/``; exit 1 for what is far too large.

Reported: files over 400 lines, functions over 50 lines or with more than 8 parameters.
Refused: files over 500 lines, functions over 80. A function is measured without its docstring
and ``self`` or ``cls`` is no parameter. Files whose head says ``# Generated`` are left out.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE_REPORT, FILE_LIMIT = 400, 500
FUNCTION_REPORT, FUNCTION_LIMIT = 50, 80
PARAMETERS_REPORT = 8
HEAD_LINES = 5

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Finding:
    where: str
    text: str
    refused: bool

    def __str__(self) -> str:
        return f"{'REFUSED' if self.refused else 'large'}: {self.where}: {self.text}"


def survey(source: Path) -> list[Finding]:
    """All findings in the Python files under ``source``, in the order of their paths."""
    return [
        finding
        for path in sorted(source.rglob("*.py"))
        for finding in measure(path.relative_to(source.parent).as_posix(), path.read_text("utf-8"))
    ]


def measure(name: str, text: str) -> Iterator[Finding]:
    lines = text.splitlines()
    if any(line.startswith("# Generated") for line in lines[:HEAD_LINES]):
        return
    if len(lines) > FILE_REPORT:
        yield Finding(
            name, f"{len(lines)} lines, {FILE_REPORT} are enough", len(lines) > FILE_LIMIT
        )
    for node in ast.walk(ast.parse(text, name)):
        if isinstance(node, Function):
            yield from _measure_function(f"{name}:{node.lineno}", node)


def _measure_function(where: str, node: Function) -> Iterator[Finding]:
    length = function_lines(node)
    if length > FUNCTION_REPORT:
        text = f"{node.name}() has {length} lines, {FUNCTION_REPORT} are enough"
        yield Finding(where, text, length > FUNCTION_LIMIT)
    count = parameters(node)
    if count > PARAMETERS_REPORT:
        text = f"{node.name}() takes {count} parameters, {PARAMETERS_REPORT} are enough"
        yield Finding(where, text, refused=False)


def function_lines(node: Function) -> int:
    """Lines from ``def`` to the end, without the docstring."""
    end = node.end_lineno or node.lineno
    length = end - node.lineno + 1
    if ast.get_docstring(node, clean=False) is not None:
        docstring = node.body[0]
        length -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return length


def parameters(node: Function) -> int:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    if positional and positional[0].arg in {"self", "cls"}:
        positional = positional[1:]
    starred = [star for star in (arguments.vararg, arguments.kwarg) if star is not None]
    return len(positional) + len(arguments.kwonlyargs) + len(starred)


def main(root: Path = ROOT) -> int:
    findings = survey(root / "src")
    for finding in sorted(findings, key=lambda finding: not finding.refused):
        print(finding)
    return 1 if any(finding.refused for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())
