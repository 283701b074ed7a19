"""Collecting tasks: modules, all their children, and what stands in the way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tenure import QueueService, task
from tenure.errors import ConfigurationError

FILES = {
    "__init__.py": "",
    "__main__.py": "raise SystemExit('a program, not a module')",
    "mail.py": "from tenure import task\n@task\nasync def send(to: str) -> None: ...\nhelper = 3\n",
    "again.py": "from {name}.mail import send\n",
    "deep/__init__.py": "",
    "deep/down.py": "from tenure import task\n@task(name='dig')\ndef _hidden() -> None: ...\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with tasks, forgotten afterwards."""
    folder = tmp_path / "collected"
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text.replace("{name}", "collected"))
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [n for n in sys.modules if n.split(".")[0] == "collected"]:
        del sys.modules[name]


def known(*sources: Any) -> tuple[str, ...]:
    return QueueService("memory://", tasks=sources).tasks.names


def test_a_package_gives_the_tasks_of_all_its_modules(package: Path) -> None:
    assert known("collected") == ("dig", "send")


def test_a_module_gives_its_own(package: Path) -> None:
    assert known("collected.mail") == ("send",)
    assert known(sys.modules["collected.mail"]) == ("send",)
    assert known("collected.again", "collected.mail") == ("send",)


def test_a_task_gives_itself() -> None:
    @task
    def alone() -> None: ...

    assert known(alone, alone) == ("alone",)


def test_two_services_may_know_one_task() -> None:
    @task
    def shared() -> None: ...

    assert known(shared) == known(shared) == ("shared",)


def test_a_module_that_fails_is_not_passed_over(package: Path) -> None:
    (package / "deep" / "broken.py").write_text("import nothing_of_that_name\n")
    with pytest.raises(ModuleNotFoundError, match="nothing_of_that_name"):
        known("collected")
    with pytest.raises(ModuleNotFoundError, match="collected_not"):
        known("collected_not")


def test_two_modules_with_one_name_are_named(package: Path) -> None:
    (package / "deep" / "other.py").write_text("from tenure import task\n@task\ndef send(): ...\n")
    with pytest.raises(ConfigurationError, match="'send': collected") as caught:
        known("collected")
    assert "collected.mail:2" in str(caught.value)
    assert "collected.deep.other:2" in str(caught.value)


class Lazy:
    """Like the proxies of web frameworks: asking for its class outside a request fails."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        raise RuntimeError("outside of a request")


def test_lazy_objects_are_left_alone(package: Path) -> None:
    __import__("collected.mail").mail.request = Lazy()
    assert known("collected.mail") == ("send",)


def bare() -> None: ...


@pytest.mark.parametrize(
    ("sources", "word"),
    [
        ("collected", "must be a list"),
        (3, "must be a list"),
        ([bare], r"neither a module nor a task; was the function decorated"),
        ([QueueService], "neither a module nor a task"),
    ],
)
def test_what_holds_no_tasks_is_refused(sources: Any, word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        QueueService("memory://", tasks=sources)
