"""Every block of code in the docs is run, in order, as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, pages, script
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

LINK = re.compile(r"\]\((?P<target>[^)#\s]+)(#[^)]*)?\)")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_what_the_page_says_works(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    commands = script(page.read_text(encoding="utf-8"))
    if not commands:
        pytest.skip("nothing to run on this page")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # The plugin by name, too: an installation that is older than the plugin does not tell of it.
    more = {"PATH": path, "PYTHONWARNINGS": "error", "PYTEST_PLUGINS": "pytest_tenure"}
    environment = {**os.environ, **more}
    if "postgresql:///shop" in commands:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        server.create_database("shop")
        request.addfinalizer(lambda: server.drop_database("shop"))
        environment |= server.environment
    if "redis://localhost:6379" in commands:
        valkey: ValkeyServer = request.getfixturevalue("valkey_server")
        request.addfinalizer(lambda: valkey.forget("shop"))
        commands = commands.replace("redis://localhost:6379", f"redis://127.0.0.1:{valkey.port}")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=110,
        text=True,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("page", pages(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for match in LINK.finditer(page.read_text(encoding="utf-8")):
        target = match["target"]
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_a_page_is_read_block_by_block() -> None:
    text = (
        "```python\n# a.py\nx = 1\n```\ntext\n```shell\necho hi\n```\n"
        "<!-- not run: no need -->\n```shell\nfalse\n```\n```python\nprint(1)\n```\n"
    )
    assert [b.language for b in blocks(text)] == ["python", "shell", "python"]
    commands = script(text)
    assert "> a.py" in commands
    assert "false" not in commands


def test_a_block_that_fails_fails_the_page(tmp_path: Path) -> None:
    commands = script("```python\nraise SystemExit(3)\n```\n```shell\necho reached\n```\n")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "reached" not in done.stdout


def test_the_evidence_names_tests_that_are_there() -> None:
    text = (ROOT / "docs/explain/evidence.md").read_text(encoding="utf-8")
    named = [found for found in re.findall(r'make pytest ARGS="([^"]+)"', text) if "/" in found]
    assert len(named) >= 10
    for arguments in named:
        for part in arguments.split():
            path, _, test = part.partition("::")
            assert (ROOT / path).exists(), part
            assert not test or test in (ROOT / path).read_text(encoding="utf-8"), part
