"""The settings of a service: arguments first, then `TENURE_*`, then `[tool.tenure]`."""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from tenure.core.durations import Seconds
from tenure.core.keys import DEFAULT_IDENTITY_MAX
from tenure.core.lease import DEFAULT_LEASE, lease_times
from tenure.core.retention import Retention
from tenure.errors import ConfigurationError, InvalidArguments

DEFAULT_URL = "sqlite:///tenure.db"
CONCURRENCY_MAX = 10_000
LEVEL_MAX = 1000
IDENTITY_MAX = 16 * 1024 * 1024


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What a service is told once.

    - `url`: where the jobs are: `sqlite:///relative.db`, `sqlite:////absolute.db` or `memory://`.
      Default `sqlite:///tenure.db`.
    - `lease`: seconds (1 to 86,400) after which a vanished worker's jobs are taken over.
    - `concurrency`: how many jobs a worker runs at once (1 to 10,000).
    - `log_success`: whether workers log a line for every completed job.
    - `app_name`: whose schedules are those that the code declares, where apps share a store; by
      default the module that makes the service.
    - `retention`: how long jobs that ended are kept; in the environment as JSON, in
      `pyproject.toml` as a table.
    - `log_level`: the level of that line, a name or number. Default `INFO`.
    - `max_identity_bytes`: how much JSON `unique_by="arguments"` may make a key of; 1 to 16 MiB,
      default 64 KiB.

    What is code is given to `QueueService(...)` only:

    - `resolver`: an async function of the job's context; the mapping that it gives fills the
      injected parameters of each attempt.
    - `provider`: a function of the job's context that gives an async context manager; what
      entering it gives fills them instead. It may have `open()` and `close()`, which join those
      of the service.
    - `error_sanitizer`: a function of an exception and its job that gives the text to be stored
      and logged, or the text and a traceback.
    - `middleware`: async functions of a job and `next` around every attempt.
    - `enqueue_middleware`: async functions of a draft and `next` around every enqueue.
    """

    url: str = DEFAULT_URL
    lease: Seconds = DEFAULT_LEASE
    concurrency: int = 50
    log_success: bool = False
    app_name: str | None = None
    retention: Retention = Retention()
    log_level: int | str = logging.INFO
    max_identity_bytes: int = DEFAULT_IDENTITY_MAX
    resolver: Callable[..., Any] | None = None
    provider: Callable[..., Any] | None = None
    error_sanitizer: Callable[..., Any] | None = None
    middleware: tuple[Callable[..., Any], ...] = ()
    enqueue_middleware: tuple[Callable[..., Any], ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.url, str):
            raise ConfigurationError(f"url must be text, not {type(self.url).__name__}")
        lease_times(self.lease)
        whole = isinstance(self.concurrency, int) and not isinstance(self.concurrency, bool)
        if not whole or not 1 <= self.concurrency <= CONCURRENCY_MAX:
            raise ConfigurationError(
                f"concurrency must be an integer from 1 to {CONCURRENCY_MAX}, "
                f"not {self.concurrency!r}"
            )
        if not isinstance(self.log_success, bool):
            raise ConfigurationError(f"log_success must be a bool, not {self.log_success!r}")
        app = self.app_name
        if app is not None and not (
            isinstance(app, str) and app.isprintable() and 0 < len(app) <= 200
        ):
            raise ConfigurationError(
                f"app_name must be text of 1 to 200 printable characters, not {app!r}"
            )
        if not isinstance(self.retention, Retention):
            raise ConfigurationError(f"retention must be a Retention, not {self.retention!r}")
        level_of(self.log_level, "log_level")
        size = self.max_identity_bytes
        whole = isinstance(size, int) and not isinstance(size, bool)
        if not whole or not 1 <= size <= IDENTITY_MAX:
            raise ConfigurationError(
                f"max_identity_bytes must be an integer from 1 to {IDENTITY_MAX}, not {size!r}"
            )
        self._check_code()

    def _check_code(self) -> None:
        if self.resolver is not None and self.provider is not None:
            raise ConfigurationError("resolver and provider exclude each other: give one of them")
        for name in ("resolver", "provider", "error_sanitizer"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ConfigurationError(f"{name} must be a function, not {value!r}")
        if self.resolver is not None:
            _check_async(self.resolver, "resolver must be an async function")
        for name in ("middleware", "enqueue_middleware"):
            for value in getattr(self, name):
                _check_async(value, f"{name} must be a list of async functions")

    def __repr__(self) -> str:
        """Without the URL's secrets: settings end up in logs and tracebacks."""
        scheme = self.url.partition("://")[0]
        return f"Settings(url='{scheme}://...', lease={self.lease!r}, ...)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("url", "..."), ("lease", self.lease)]


def level_of(value: Any, name: str) -> int:
    """The number of a logging level given by name or number. Raises `ConfigurationError`."""
    number = value
    if isinstance(value, str):
        numeric = value.isascii() and value.isdigit()
        number = int(value) if numeric else logging.getLevelNamesMapping().get(value.upper())
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= LEVEL_MAX:
        return number
    raise ConfigurationError(
        f"{name} must be the name of a level, such as 'INFO', or a number from 0 to {LEVEL_MAX}, "
        f"not {value!r}"
    )


def load(arguments: Mapping[str, Any], folder: Path | None = None) -> Settings:
    """The settings: `arguments` that are not None, then environment, then `pyproject.toml`.

    The environment variable of `lease` is `TENURE_LEASE`, and so on. `[tool.tenure]` is read from
    the `pyproject.toml` in `folder` (default: the current one). Raises `ConfigurationError` naming
    the source for an unknown key or a bad value.
    """
    values = _from_pyproject(folder or Path())
    values |= _from_environment(os.environ)
    values |= {name: value for name, value in arguments.items() if value is not None}
    unknown = values.keys() - set(Settings.__struct_fields__)
    if unknown:
        known = ", ".join(Settings.__struct_fields__)
        raise InvalidArguments(f"unknown setting {min(unknown)!r}; the settings are {known}")
    for name in ("middleware", "enqueue_middleware"):
        if name in values:
            values[name] = _functions(values[name], name)
    return Settings(**values)


CODE = frozenset("resolver provider error_sanitizer middleware enqueue_middleware".split())
"""Settings that are code, and so cannot come from text."""

_TEXTUAL = frozenset(Settings.__struct_fields__) - CODE


def _check_async(value: Any, rule: str) -> None:
    """Refuse what is surely not an async function; objects that are called may be."""
    plain = inspect.isroutine(value) and not inspect.iscoroutinefunction(value)
    if plain or not callable(value):
        raise ConfigurationError(f"{rule}, not {value!r}")


def _functions(value: Any, name: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{name} must be a list of functions, not {value!r}")
    return tuple(value)


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    texts = {
        name: environment[f"TENURE_{name.upper()}"]
        for name in _TEXTUAL
        if environment.get(f"TENURE_{name.upper()}")
    }
    return _typed(texts, lambda name: f"TENURE_{name.upper()}", strict=False)


def configured_app(folder: Path | None = None) -> str | None:
    """The app that commands work on by default: `TENURE_APP`, or `app` of `[tool.tenure]`.

    Raises `ConfigurationError` if it is no text.
    """
    app = os.environ.get("TENURE_APP")
    if app:
        return app
    file, table = _pyproject(folder or Path())
    app = table.get("app")
    if app is not None and not isinstance(app, str):
        raise ConfigurationError(f"{file}: [tool.tenure] app must be text, not {app!r}")
    return app


def calling_module() -> str:
    """The module outside of tenure that called; a script goes by the name it is imported by."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] == "tenure" and frame.f_back:
        frame = frame.f_back
    name, spec = str(frame.f_globals.get("__name__", "")), frame.f_globals.get("__spec__")
    if name != "__main__":
        return name or "tenure"
    return str(spec.name) if spec is not None else Path(frame.f_code.co_filename).stem or name


def configured_url(folder: Path | None = None) -> str | None:
    """The URL that was configured for the surroundings; None if nobody did."""
    _, table = _pyproject(folder or Path())
    url = os.environ.get("TENURE_URL") or table.get("url")
    return None if url is None else str(url)


def _pyproject(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file that may hold settings, and its `[tool.tenure]`."""
    file = folder / "pyproject.toml"
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError):
        return file, {}
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not valid TOML: {error}") from error
    return file, _table_in(text, file) if "tenure" in text else {}


def _from_pyproject(folder: Path) -> dict[str, Any]:
    file, table = _pyproject(folder)
    unknown = table.keys() - _TEXTUAL - {"app"}
    if unknown:
        raise ConfigurationError(f"{file}: [tool.tenure] has an unknown key {min(unknown)!r}")
    settings = {name: value for name, value in table.items() if name != "app"}
    return _typed(settings, lambda name: f"{file}: [tool.tenure] {name}", strict=True)


def _table_in(text: str, file: Path) -> dict[str, Any]:
    import tomllib  # here, as few need it and every start would pay for it

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file} is not valid TOML: {error}") from error
    tool = document.get("tool", {})
    table = tool.get("tenure", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise ConfigurationError(f"{file}: tool.tenure must be a table")
    return table


def _typed(
    values: Mapping[str, Any], source: Callable[[str], str], *, strict: bool
) -> dict[str, Any]:
    types = {field.name: field.type for field in msgspec.structs.fields(Settings)}
    typed: dict[str, Any] = {}
    for name, value in values.items():
        kind = float if name == "lease" else types[name]
        try:
            if isinstance(value, str) and value.lstrip().startswith("{"):
                value = msgspec.json.decode(value)
            typed[name] = msgspec.convert(value, kind, strict=strict)
            Settings(**{name: typed[name]})
        except (msgspec.DecodeError, ConfigurationError) as error:
            raise ConfigurationError(f"{source(name)}: {error}") from error
    return typed
