"""Which servers, and under which prefix the keys are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import msgspec

from tenure.engines.urls import REDIS_KINDS, redact
from tenure.errors import ConfigurationError

NAMESPACE = "tenure"
PORT, SENTINEL_PORT = 6379, 26379
PARAMETERS = ("namespace", "timeout", "db", "verify", "cafile")
SENTINEL_PARAMETERS = ("sentinel_username", "sentinel_password")

_CLEAN = re.compile(r"[A-Za-z0-9_.:-]{1,60}")
Address = tuple[str, int]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Servers and a namespace on them.

    `kind` is the scheme without aliases, `shown` the address without secrets. `hosts`: the server,
    or the sentinels, or some nodes of the cluster; `path` the socket instead. `timeout`: seconds
    that a call may take in all. Raises `ConfigurationError` for a value that is not allowed.
    """

    kind: str
    shown: str
    hosts: tuple[Address, ...] = ()
    path: str = ""
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = None
    sentinel_username: str | None = None
    sentinel_password: str | None = None
    namespace: str = NAMESPACE
    timeout: float = 10.0
    verify: bool = True
    cafile: str | None = None

    def __post_init__(self) -> None:
        if not _CLEAN.fullmatch(self.namespace):
            raise ConfigurationError(
                f"namespace must be 1 to 60 letters, digits and '_.:-', not {self.namespace!r}"
            )
        if not 0 < self.timeout <= 3600:
            raise ConfigurationError(
                f"timeout must be above 0 and at most 3600, not {self.timeout:g}"
            )
        if self.db < 0 or (self.db and self.is_cluster):
            raise ConfigurationError(f"there is no database {self.db}; a cluster has 0 only")

    @property
    def prefix(self) -> str:
        """What every key begins with; by its hash tag all of them are in one slot of a cluster."""
        return f"{{{self.namespace}}}:"

    @property
    def is_tls(self) -> bool:
        return self.kind.startswith("rediss")

    @property
    def is_sentinel(self) -> bool:
        return self.kind.endswith("+sentinel")

    @property
    def is_cluster(self) -> bool:
        return self.kind.endswith("+cluster")


def place_of(url: str) -> Place:
    """The place that a URL names. Raises `ConfigurationError` naming what is wrong.

    - `redis://user:password@host:6379/0`, `rediss://` with TLS, `unix:///run/redis.sock?db=0`
    - `redis+sentinel://host:26379,host:26379/service/0`, with `sentinel_password=`
    - `redis+cluster://host:6379,host:6379`

    with `namespace=` (tenure), `timeout=` seconds, and for TLS `cafile=` and `verify=no`.
    """
    parts = urlsplit(url)
    kind = REDIS_KINDS[parts.scheme]
    shown = redact(f"{kind}{url[len(parts.scheme) :]}")
    given = _given(parts, PARAMETERS + (SENTINEL_PARAMETERS if "sentinel" in kind else ()))
    username, password, names = _authority(parts.netloc, shown)
    steps = [unquote(step) for step in parts.path.split("/") if step]
    service, path, db = "", "", given.get("db", "")
    hosts: tuple[Address, ...] = ()
    if kind == "unix":
        path = unquote(parts.path)
        if names or not path:
            raise ConfigurationError(
                f"{shown}: a socket is named by its path, as unix:///run/redis.sock"
            )
    elif kind.endswith("+sentinel"):
        if not steps:
            raise ConfigurationError(
                f"{shown}: name the service, as redis+sentinel://host:26379/mymaster"
            )
        service = steps.pop(0)
    if kind != "unix":
        if len(steps) > 1 or (steps and db):
            raise ConfigurationError(f"{shown}: behind the host is the number of a database")
        db = steps[0] if steps else db
        port = SENTINEL_PORT if kind.endswith("+sentinel") else PORT
        hosts = tuple(_address(host, port, shown) for host in names or ("localhost",))
        if len(hosts) > 1 and "+" not in kind:
            raise ConfigurationError(f"{shown}: only sentinels and clusters have several hosts")
    return Place(
        kind=kind,
        shown=shown,
        hosts=hosts,
        path=path,
        service=service,
        db=int(_number("the database", db or "0", int)),
        username=username,
        password=password,
        sentinel_username=given.get("sentinel_username"),
        sentinel_password=given.get("sentinel_password"),
        namespace=given.get("namespace", NAMESPACE),
        timeout=float(_number("timeout", given.get("timeout", "10"), float)),
        verify=_flag("verify", given.get("verify", "yes")),
        cafile=given.get("cafile"),
    )


def _given(parts: SplitResult, allowed: tuple[str, ...]) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in allowed:
            raise ConfigurationError(
                f"{parts.scheme}:// has no parameter {name!r}; allowed: {', '.join(allowed)}"
            )
        if name in found:
            raise ConfigurationError(f"the parameter {name!r} is given twice")
        found[name] = value
    return found


def _authority(netloc: str, shown: str) -> tuple[str | None, str | None, tuple[str, ...]]:
    """User, password and hosts."""
    before, _, after = netloc.rpartition("@")
    user, _, password = before.partition(":")
    hosts = tuple(after.split(",")) if after else ()
    if not all(hosts):
        raise ConfigurationError(f"{shown}: a host is missing")
    return unquote(user) or None, unquote(password) or None, hosts


def _address(host: str, port: int, shown: str) -> Address:
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname or "localhost", port if parts.port is None else parts.port
    except ValueError:
        raise ConfigurationError(f"{shown}: one of the hosts is none, or its port") from None


def _number(name: str, text: str, kind: type[float] | type[int]) -> float | int:
    try:
        return kind(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be a number, not {text!r}") from None


def _flag(name: str, text: str) -> bool:
    if text not in ("yes", "no"):
        raise ConfigurationError(f"{name} must be yes or no, not {text!r}")
    return text == "yes"
