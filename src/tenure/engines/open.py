"""From a URL to an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tenure.clock import SYSTEM_CLOCK, Clock
from tenure.engines.protocol import Engine
from tenure.engines.urls import REDIS_KINDS
from tenure.engines.urls import redact as redact
from tenure.errors import ConfigurationError

Maker = Callable[[SplitResult, Clock], Engine]


def open_engine(url: str, *, clock: Clock = SYSTEM_CLOCK) -> Engine:
    """The engine that a URL names, not opened yet: use it with `async with`.

    - `memory://`: in this process, for tests
    - `sqlite:///jobs.db` (relative to the working directory), `sqlite:////var/lib/app/jobs.db`;
      with `?synchronous=full` or `normal`, and `timeout=` seconds until a call gives up
    - `postgresql://user@host:5432/database`, with what libpq takes (`?sslmode=require`), and
      `schema=` (tenure), `prefix=` of the tables' names, `timeout=`, and `connections=` (8) at most
    - `redis://user:password@host:6379/0`, `rediss://` with TLS, `unix:///run/redis.sock`,
      `redis+sentinel://host:26379,host:26379/service`, `redis+cluster://host:6379,host:6379`, or
      the same with `valkey`; with `namespace=` (tenure), `timeout=`, for TLS `cafile=`, `verify=`

    Raises `ConfigurationError` naming what is wrong and what is allowed.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may quote the password
        raise ConfigurationError(f"{redact(url)!r} is no URL") from None
    if parts.scheme not in _MAKERS:
        allowed = ", ".join(f"{scheme}://" for scheme in _MAKERS)
        raise ConfigurationError(
            f"{redact(url)!r} names no known engine; a URL begins with one of {allowed}"
        )
    return _MAKERS[parts.scheme](parts, clock)


def _parameters(parts: SplitResult, allowed: tuple[str, ...]) -> Mapping[str, str]:
    """The query parameters, each at most once and known."""
    found = _once(parts)
    for name in found:
        if name not in allowed:
            choice = f"allowed: {', '.join(allowed)}" if allowed else "it takes none"
            raise ConfigurationError(f"{parts.scheme}:// has no parameter {name!r}; {choice}")
    return found


def _once(parts: SplitResult) -> dict[str, str]:
    """The query parameters, each at most once."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in found:
            raise ConfigurationError(f"the parameter {name!r} is given twice")
        found[name] = value
    if parts.fragment:
        raise ConfigurationError("a '#' in a path must be written as %23")
    return found


def _memory(parts: SplitResult, clock: Clock) -> Engine:
    from tenure.engines.memory import MemoryEngine

    _parameters(parts, ())
    if parts.netloc or parts.path:
        raise ConfigurationError("memory:// takes no path")
    return MemoryEngine(clock=clock)


def _sqlite(parts: SplitResult, clock: Clock) -> Engine:
    from tenure.engines.sqlite import SQLiteEngine

    given = _parameters(parts, ("synchronous", "timeout"))
    if parts.netloc:
        raise ConfigurationError(
            f"sqlite:// takes no host, but has {redact(parts.netloc)!r}; a relative path has three "
            f"slashes (sqlite:///jobs.db), an absolute one four (sqlite:////var/lib/app/jobs.db)"
        )
    path = unquote(parts.path.removeprefix("/"))
    if not path:
        raise ConfigurationError("sqlite:// needs a path, as in sqlite:///jobs.db")
    if path == ":memory:" or "\x00" in path:
        raise ConfigurationError(f"sqlite:// needs a file, not {path!r}; memory:// keeps no file")
    synchronous = given.get("synchronous", "full")
    return SQLiteEngine(
        path, synchronous=synchronous, timeout=_seconds(given.get("timeout")), clock=clock
    )


def _postgresql(parts: SplitResult, clock: Clock) -> Engine:
    try:
        from tenure.engines.postgres import PostgresEngine, place_of
    except ImportError as error:
        raise ConfigurationError(
            f"postgresql:// needs psycopg; install tenure[postgres] ({error})"
        ) from error

    _once(parts)
    url = f"postgresql://{parts.netloc}{parts.path}{'?' if parts.query else ''}{parts.query}"
    return PostgresEngine(place_of(url), clock=clock)


def _redis(parts: SplitResult, clock: Clock) -> Engine:
    try:
        from tenure.engines.redis import RedisEngine, place_of
    except ImportError as error:
        raise ConfigurationError(
            f"{parts.scheme}:// needs redis-py; install tenure[redis] ({error})"
        ) from error

    _once(parts)
    url = f"{parts.scheme}://{parts.netloc}{parts.path}{'?' if parts.query else ''}{parts.query}"
    return RedisEngine(place_of(url), clock=clock)


def _seconds(value: str | None, default: float = 10.0) -> float:
    if value is None:
        return default
    try:
        return float(value)
    except ValueError:
        raise ConfigurationError(f"timeout must be a number of seconds, not {value!r}") from None


_MAKERS: Mapping[str, Maker] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgresql,
    "postgres": _postgresql,
    **dict.fromkeys(REDIS_KINDS, _redis),
}
