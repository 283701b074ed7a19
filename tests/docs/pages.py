"""Turns a page of the docs into one shell script that does what a reader would do.

- A `python` block whose first line is `# name.py` is written to that file.
- Any other `python` block is run as it stands; `await` is allowed outside functions.
- A `shell` block is run by the same shell as the ones before it.
- Blocks after a comment `<!-- not run: reason -->` are left out; other languages are only shown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]

_FENCE = re.compile(
    r"^(?P<skip><!-- not run: [^\n]+ -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
_FILE = re.compile(r"# (?P<name>[\w/]+\.py)\n")
_KNOWN = {"python", "shell", "text", "toml", "json", "mermaid", "sql", ""}


class Block(NamedTuple):
    language: str
    text: str
    line: int


def pages() -> list[Path]:
    """Every page a reader may follow."""
    docs = [p for p in sorted((ROOT / "docs").rglob("*.md")) if "decisions" not in p.parts]
    return [ROOT / "README.md", *docs]


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page that are run, in order."""
    for match in _FENCE.finditer(text):
        language = match["language"]
        if language not in _KNOWN:
            raise ValueError(f"a block of an unknown language: {language}")
        if match["skip"] is None and language in ("python", "shell"):
            yield Block(language, match["text"], text.count("\n", 0, match.start()) + 1)


def script(text: str) -> str:
    """The page as a bash script; empty if nothing is run."""
    parts = []
    for block in blocks(text):
        parts.append(f"echo '--- line {block.line}'")
        if block.language == "shell":
            parts.append(block.text)
        elif named := _FILE.match(block.text):
            parts.append(f"printf %s {shlex.quote(block.text)} > {named['name']}")
        else:
            parts.append(f"python {shlex.quote(str(RUNNER))} {shlex.quote(block.text)}")
    return "\n".join(parts)


RUNNER = Path(__file__).with_name("run_block.py")
