"""Write the generated files, or with ``--check`` tell which are stale.

A generator is a module in ``tools/generators/`` with::

    OUTPUTS: dict[str, Callable[[], str]] = {"src/tenure/sync.py": sync_face}

Keys are paths from the repository's root. ``docs/x.md#name`` means a region of a hand-written
file: what stands between ``<!-- generated: name -->`` and ``<!-- /generated: name -->``.
Python text is formatted before it is compared or written.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REFRESH = "refresh with: make generate"
DIFF_LINES = 30

Outputs = dict[str, Callable[[], str]]


class GenerateError(Exception):
    """A registry or a target that can't be used; the message says which."""


def discover(folder: Path) -> Outputs:
    """Collect ``OUTPUTS`` of every module in ``folder``; names with a leading ``_`` are helpers."""
    outputs: Outputs = {}
    for path in sorted(folder.glob("[!_]*.py")):
        spec = importlib.util.spec_from_file_location(f"tools.generators.{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found: Outputs | None = getattr(module, "OUTPUTS", None)
        if found is None:
            raise GenerateError(f"{path.name} has no OUTPUTS")
        if twice := sorted(outputs.keys() & found.keys()):
            raise GenerateError(f"{path.name} writes what another generator writes: {twice[0]}")
        outputs |= found
    return outputs


def expected(root: Path, key: str, text: str) -> tuple[Path, str]:
    """The file behind ``key`` and the whole text that it should hold."""
    name, _, region = key.partition("#")
    path = root / name
    if region:
        return path, _with_region(path, region, text)
    text = text.rstrip("\n") + "\n"
    return path, _formatted(text, path) if path.suffix == ".py" else text


def _with_region(path: Path, region: str, text: str) -> str:
    start, end = f"<!-- generated: {region} -->", f"<!-- /generated: {region} -->"
    if not path.is_file():
        raise GenerateError(f"{path.name}, which should hold the region '{region}', is missing")
    whole = path.read_text(encoding="utf-8")
    if whole.count(start) != 1 or whole.count(end) != 1:
        raise GenerateError(f"{path.name} needs one '{start}' and one '{end}'")
    before, _, rest = whole.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise GenerateError(f"{path.name} has '{end}' before '{start}'")
    body = text.strip("\n")
    # Blank lines around it: Markdown would take the text for a part of the comment.
    return f"{before}{start}\n\n{body}\n\n{end}{after}"


def _formatted(text: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(path), "-"],
        input=text,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    if done.returncode != 0:
        raise GenerateError(f"what is generated for {path.name} is no Python: {done.stderr}")
    return done.stdout


def stale(root: Path, outputs: Outputs, *, write: bool) -> list[tuple[str, str]]:
    """List ``(key, diff)`` for each target that is not as generated; ``write`` makes it so."""
    found = []
    for key, produce in sorted(outputs.items()):
        path, want = expected(root, key, produce())
        have = path.read_text(encoding="utf-8") if path.is_file() else ""
        if have == want and path.is_file():
            continue
        diff = difflib.unified_diff(
            have.splitlines(), want.splitlines(), "as it is", "as generated", lineterm="", n=1
        )
        found.append((key, "\n".join(list(diff)[:DIFF_LINES])))
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(want, encoding="utf-8")
    return found


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Write the generated files.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    check: bool = parser.parse_args(arguments).check
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))  # so that generators can import tools.*
    try:
        found = stale(root, discover(root / "tools" / "generators"), write=not check)
    except GenerateError as error:
        print(f"generate: {error}")
        return 1
    for key, diff in found:
        print(f"stale: {key}\n{diff}" if check else f"wrote {key}")
    if found and check:
        print(REFRESH)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
