"""From a URL to an engine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure.engines.open import open_engine, redact
from tenure.engines.sqlite import SQLiteEngine
from tenure.errors import ConfigurationError


def test_memory():
    assert open_engine("memory://").traits.name == "memory"


def test_an_absolute_path_has_four_slashes(tmp_path: Path):
    engine = open_engine(f"sqlite:///{tmp_path}/my%20jobs.db")
    assert isinstance(engine, SQLiteEngine)
    assert engine.url == f"sqlite:///{tmp_path}/my%20jobs.db"


def test_a_relative_path_has_three_and_is_fixed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    engine = open_engine("sqlite:///jobs.db")
    monkeypatch.chdir("/")
    assert engine.url == f"sqlite:///{os.path.realpath(tmp_path)}/jobs.db"


def test_parameters_are_taken(tmp_path: Path):
    open_engine(f"sqlite:///{tmp_path}/jobs.db?synchronous=normal&timeout=2.5")


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://host/db", r"'mysql://host/db' names no known engine; .* memory://, sqlite://"),
        ("jobs.db", "names no known engine"),
        ("", "names no known engine"),
        ("memory://x", "takes no path"),
        ("memory://?timeout=1", "memory:// has no parameter 'timeout'; it takes none"),
        ("sqlite://", "needs a path"),
        ("sqlite:///", "needs a path"),
        ("sqlite://jobs.db", r"takes no host, but has 'jobs\.db'"),
        ("sqlite:///:memory:", "needs a file"),
        ("sqlite:///a.db?sync=full", "has no parameter 'sync'; allowed: synchronous, timeout"),
        ("sqlite:///a.db?synchronous=off", "synchronous must be full or normal, not 'off'"),
        ("sqlite:///a.db?timeout=soon", "timeout must be a number of seconds, not 'soon'"),
        ("sqlite:///a.db?timeout=0", "timeout must be above 0"),
        ("sqlite:///a.db?timeout=nan", "timeout must be above 0"),
        ("sqlite:///a.db?timeout=1&timeout=2", "'timeout' is given twice"),
        ("sqlite:///a#b.db", "must be written as %23"),
    ],
)
def test_what_is_wrong_is_named(url: str, complaint: str):
    with pytest.raises(ConfigurationError, match=complaint):
        open_engine(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///jobs.db", "sqlite:///jobs.db"),
        ("sqlite:////var/jobs.db?timeout=3", "sqlite:////var/jobs.db?timeout=3"),
        ("memory://", "memory://"),
        ("postgresql://ann:hush@host:5432/db", "postgresql://ann:***@host:5432/db"),
        ("postgresql://ann@host/db", "postgresql://ann@host/db"),
        ("redis://:hush@host", "redis://:***@host"),
        ("x://h/db?password=hush&sslmode=on", "x://h/db?password=***&sslmode=on"),
        ("ann:hush@host/db", "ann:***@host/db"),
        ("postgresql://ann:hu/s?h#@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://ann:hu@sh@[::1/db", "postgresql://ann:***@[::1/db"),
        ("postgresql://host:5432/db?user=ann@corp", "postgresql://host:5432/db?user=ann@corp"),
        ("sqlite:////home/ann:x@corp/jobs.db", "sqlite:////home/ann:x@corp/jobs.db"),
        ("x://h?sslpassphrase=hush#hush", "x://h?sslpassphrase=***"),
    ],
)
def test_a_shown_url_holds_no_secret(url: str, shown: str):
    assert redact(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ann:hush@host/db",
        "sqlite://ann:hush@host/jobs.db",
        "memory://ann:hush@host",
        "postgresql://ann:hush@[::1/db",
        "postgresql://ann:hush@ho\u2100st/db",
        "ann:hush@host/db",
    ],
)
def test_a_refusal_shows_no_secret(url: str):
    with pytest.raises(ConfigurationError) as caught:
        open_engine(url)
    assert "hush" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
