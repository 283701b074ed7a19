"""Settings: where they come from, which one wins, and which source is named when one is bad."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tenure import QueueService
from tenure.core.lease import DEFAULT_LEASE
from tenure.errors import ConfigurationError, InvalidArguments
from tenure.settings import CODE, DEFAULT_URL, Settings, level_of, load


async def _async(*_: object) -> None: ...


def project(text: str) -> None:
    Path("pyproject.toml").write_text(text)


def test_nobody_need_say_anything() -> None:
    assert load({}) == Settings()
    assert load({"url": None, "lease": None}) == Settings(url=DEFAULT_URL, lease=DEFAULT_LEASE)


def test_arguments_win_over_the_environment_and_that_over_the_project(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project("[tool.tenure]\nurl = 'memory://'\nlease = 60\nconcurrency = 5\nlog_success = true\n")
    monkeypatch.setenv("TENURE_LEASE", "45.5")
    monkeypatch.setenv("TENURE_CONCURRENCY", "6")
    found = load({"concurrency": 7})
    assert found == Settings(url="memory://", lease=45.5, concurrency=7, log_success=True)
    monkeypatch.setenv("TENURE_LOG_SUCCESS", "false")
    monkeypatch.setenv("TENURE_LEASE", "")
    found = load({"log_success": False, "lease": 90})
    assert (found.log_success, found.lease, found.concurrency) == (False, 90, 6)


def test_a_service_and_its_workers_are_as_the_settings_say(monkeypatch: Any) -> None:
    monkeypatch.setenv("TENURE_URL", "memory://")
    jobs = QueueService(lease=20, concurrency=3, log_success=True)
    options = jobs.worker().options
    assert (jobs.url, options.lease, options.concurrency, options.log_success) == (
        "memory://",
        20,
        3,
        True,
    )
    assert jobs.worker(concurrency=4).options.concurrency == 4


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("LEASE", "soon", "float"),
        ("LEASE", "0.5", "at least 1"),
        ("LEASE", "nan", "finite"),
        ("CONCURRENCY", "many", "int"),
        ("CONCURRENCY", "0", "from 1 to 10000"),
        ("CONCURRENCY", "2.5", "int"),
        ("LOG_SUCCESS", "maybe", "bool"),
    ],
)
def test_a_bad_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, word: str
) -> None:
    monkeypatch.setenv(f"TENURE_{name}", value)
    with pytest.raises(ConfigurationError, match=f"TENURE_{name}: .*{word}"):
        load({})


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[tool.tenure]\nlease = 'x'", "lease: .*float"),
        ("[tool.tenure]\nlease = 0.1", "lease: .*at least 1"),
        ("[tool.tenure]\nconcurrency = true", "concurrency: .*int"),
        ("[tool.tenure]\nurl = 3", "url: .*str"),
        ("[tool.tenure]\nlog_success = 'yes'", "log_success: .*bool"),
        ("[tool.tenure]\nleese = 3", r"\[tool.tenure\] has an unknown key 'leese'"),
        ("[tool]\ntenure = 3", "tool.tenure must be a table"),
        ("[tool.tenure", "not valid TOML"),
    ],
)
def test_a_bad_project_file_is_named(text: str, word: str) -> None:
    project(text)
    with pytest.raises(ConfigurationError, match=rf"pyproject\.toml.*{word}"):
        load({})


@pytest.mark.parametrize(
    "text", ["", "[project]\nname = 'x'", "[tool.other]\nlease = 'x'", "tool = 'tenure'", "[broken"]
)
def test_what_is_not_meant_for_us_is_none_of_our_business(text: str) -> None:
    project(text)
    assert load({}) == Settings()


def test_a_project_file_that_cannot_be_read() -> None:
    Path("pyproject.toml").mkdir()
    assert load({}) == Settings()
    Path("pyproject.toml").rmdir()
    Path("pyproject.toml").write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match=r"pyproject\.toml is not valid TOML"):
        load({})


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    assert QueueService("memory://").url == "memory://"


def test_the_command_line_app_is_no_unknown_key() -> None:
    project("[tool.tenure]\napp = 'a:b'\nlease = 9")
    assert load({}).lease == 9


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"url": Path("jobs.db")}, "url must be text, not PosixPath"),
        ({"url": "mysql://x"}, "names no known engine"),
        ({"url": ""}, "names no known engine"),
        ({"lease": "30"}, "lease must be a number"),
        ({"lease": True}, "lease must be a number"),
        ({"concurrency": 0}, "concurrency must be an integer from 1"),
        ({"concurrency": True}, "concurrency must be an integer"),
        ({"log_success": "no"}, "log_success must be a bool"),
        ({"log_level": "LOUD"}, "log_level must be the name of a level"),
        ({"log_level": 1001}, "log_level must be .* a number from 0 to 1000"),
        ({"max_identity_bytes": 0}, "max_identity_bytes must be an integer from 1"),
        ({"max_identity_bytes": True}, "max_identity_bytes must be an integer"),
        ({"max_identity_bytes": 2**24 + 1}, "from 1 to 16777216"),
        ({"resolver": "x"}, "resolver must be a function"),
        ({"resolver": lambda ctx: {}}, "resolver must be an async function"),
        ({"provider": 3}, "provider must be a function"),
        ({"resolver": _async, "provider": _async}, "resolver and provider exclude each other"),
        ({"error_sanitizer": "x"}, "error_sanitizer must be a function"),
        ({"middleware": _async}, "middleware must be a list of functions"),
        ({"middleware": "x"}, "middleware must be a list of functions"),
        ({"middleware": [_async, 3]}, "middleware must be a list of async functions"),
        ({"middleware": [lambda job, step: None]}, "middleware must be a list of async"),
        ({"enqueue_middleware": [print]}, "enqueue_middleware must be a list of async"),
    ],
)
def test_a_bad_argument_is_named(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigurationError, match=word):
        QueueService(**{"url": "memory://"} | arguments)


def test_an_unknown_setting_is_refused_with_those_that_exist() -> None:
    with pytest.raises(InvalidArguments, match="'leese'; the settings are url, lease"):
        QueueService("memory://", leese=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", sorted(CODE))
def test_code_is_no_matter_of_the_surroundings(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A name in a file or a variable is never imported and called."""
    monkeypatch.setenv(f"TENURE_{name.upper()}", "os:system")
    assert load({}) == Settings()
    project(f"[tool.tenure]\n{name} = 'os:system'")
    with pytest.raises(ConfigurationError, match=f"unknown key '{name}'"):
        load({})


def test_a_level_is_given_by_name_or_number(monkeypatch: pytest.MonkeyPatch) -> None:
    for text in ("debug", "DEBUG", "10"):
        monkeypatch.setenv("TENURE_LOG_LEVEL", text)
        assert level_of(load({}).log_level, "log_level") == 10
    monkeypatch.delenv("TENURE_LOG_LEVEL")
    for text in ("'debug'", "10"):
        project(f"[tool.tenure]\nlog_level = {text}")
        assert level_of(load({}).log_level, "log_level") == 10


def test_a_bad_url_of_the_surroundings_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_URL", "mysql://user:hunter2@host/x")
    with pytest.raises(ConfigurationError, match=r"TENURE_URL or \[tool.tenure\] url: ") as caught:
        QueueService()
    assert "hunter2" not in str(caught.value)


def test_settings_are_shown_without_secrets() -> None:
    found = load({"url": "redis://user:hunter2@host/0"})
    assert "hunter2" not in f"{found!r} {found} {found.__rich_repr__()}"
    assert "redis" in repr(found)


def test_a_relative_file_stays_where_it_was(tmp_path: Path, monkeypatch: Any) -> None:
    jobs = QueueService("sqlite:///jobs.db")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert jobs.sync.find() == []
    jobs.sync.close()
    assert os.listdir(tmp_path / "other") == []
    assert (tmp_path / "jobs.db").exists()
