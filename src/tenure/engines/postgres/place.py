"""Which database, and under which names the tables are there."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import msgspec
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tenure.core.job import COLUMNS
from tenure.core.schedule import Schedule
from tenure.engines.sql import Statements, load, read_text
from tenure.engines.urls import redact
from tenure.errors import ConfigurationError

PACKAGE = "tenure.engines.postgres"
STATEMENTS = load(PACKAGE, "statements.sql")
SCHEMA = "tenure"
CONNECTIONS = 8
PARAMETERS = ("schema", "prefix", "timeout", "connections")
SCHEDULE_COLUMNS = Schedule.__struct_fields__

_CLEAN = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_INTEGERS = frozenset(
    """priority claims failures max_attempts lapses max_lapses releases max_interruptions
    payload_size log_level""".split()
)
_BIGINTS = frozenset(
    """rank token lease_until available_at expires_at created_at queued_at started_at finished_at
    dispatched_at tick""".split()
)
_OTHERS = {"timeout": "double precision", "payload": "bytea", "result": "bytea"}
FLAGS = frozenset({"ready", "cancel_requested", "log_success"})
_RELATIONS = tuple(
    """jobs jobs_pkey jobs_ready jobs_waiting jobs_waiting_lane jobs_overdue jobs_running
    jobs_unique jobs_tick jobs_blocked_slot jobs_blocked_rate jobs_slots jobs_next jobs_turns
    rates rates_pkey rates_wake finished finished_pkey finished_at finished_tick reservations
    reservations_pkey queues queues_pkey workers workers_pkey schedules schedules_pkey revisions
    revisions_pkey events events_pkey events_of_job tenure_schema tenure_schema_pkey""".split()
)
_TABLES = frozenset(
    """jobs finished reservations queues rates workers schedules revisions events
    tenure_schema""".split()
)


class Place(msgspec.Struct, frozen=True):
    """A database, by what libpq takes, and the names in it.

    `shown` is the address without secrets. `timeout`: seconds that a call may take in all.
    `connections`: how many a handle opens at most. Raises `ConfigurationError` for a value that is
    not allowed.
    """

    conninfo: str
    shown: str
    schema: str = SCHEMA
    prefix: str = ""
    timeout: float = 10.0
    connections: int = CONNECTIONS

    def __post_init__(self) -> None:
        if not _CLEAN.fullmatch(self.schema):
            raise ConfigurationError(_unclean("schema", self.schema))
        if self.prefix and not _CLEAN.fullmatch(self.prefix):
            raise ConfigurationError(_unclean("prefix", self.prefix))
        if not 0 < self.timeout <= 3600:
            raise ConfigurationError(
                f"timeout must be above 0 and at most 3600, not {self.timeout:g}"
            )
        if not 1 <= self.connections <= 100:
            raise ConfigurationError(f"connections must be 1 to 100, not {self.connections}")

    @property
    def channel(self) -> str:
        """Where this store's wake-ups are told; short, whatever the names are."""
        names = f"{self.schema}.{self.prefix}".encode()
        return f"tenure_{hashlib.sha256(names).hexdigest()[:16]}"

    def compose(self, text: str) -> str:
        """SQL with the names of this place in it."""
        return sql.SQL(text).format(**self.parts()).as_string(None)

    def parts(self) -> dict[str, sql.SQL]:
        """What stands in braces in our SQL, rendered."""
        return {name: sql.SQL(part.as_string(None)) for name, part in self._parts()}

    def _parts(self) -> Iterator[tuple[str, sql.Composable]]:
        yield "schema", sql.Identifier(self.schema)
        for name in _RELATIONS:
            full = f"{self.prefix}{name}"
            # An index and a constraint stand where their table is, and are named without it.
            names = (self.schema, full) if name in _TABLES else (full,)
            yield name, sql.Identifier(*names)
            yield f"at_{name}", sql.Identifier(self.schema, full)
        yield "channel", sql.Identifier(self.channel)
        yield "now", _NOW
        yield "columns", _columns()
        yield "j_columns", _columns("j.")
        yield "values", sql.SQL(", ").join(map(_value, COLUMNS))
        yield "settled_columns", _settled()
        yield "expired_columns", _expired()
        yield "schedule_columns", sql.SQL(", ").join(map(sql.Identifier, SCHEDULE_COLUMNS))


class PlacedStatements:
    """The statements of the engine, with the names of one place; composed when first used."""

    def __init__(self, place: Place, statements: Statements = STATEMENTS) -> None:
        self._statements = statements
        self._parts = place.parts()
        self._composed: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        text = self._composed.get(name)
        if text is None:
            composed = sql.SQL(self._statements[name]).format(**self._parts)
            text = self._composed[name] = composed.as_string(None)
        return text


def place_of(url: str) -> Place:
    """The place that a `postgresql://` URL names; what is no parameter of ours is for libpq.

    Raises `ConfigurationError` naming what is wrong.
    """
    parts = urlsplit(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    ours = {name: given.pop(name) for name in PARAMETERS if name in given}
    # Not by urlunsplit, which counts slashes its own way where there is no host.
    address = f"postgresql://{parts.netloc}{parts.path}"
    shown = redact(f"{address}{'?' if parts.query else ''}{parts.query}")
    query = urlencode(given, quote_via=quote)
    conninfo = f"{address}{'?' if query else ''}{query}"
    try:
        conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError as error:
        raise ConfigurationError(f"{shown}: {_without_secrets(str(error))}") from None
    return Place(
        conninfo,
        shown,
        schema=ours.get("schema", SCHEMA),
        prefix=ours.get("prefix", ""),
        timeout=float(_number("timeout", ours.get("timeout", "10"), float)),
        connections=int(_number("connections", ours.get("connections", str(CONNECTIONS)), int)),
    )


def migration_texts(place: Place) -> list[str]:
    """The SQL of every migration, in order, with the names of this place."""
    return [place.compose(read_text(PACKAGE, f"migrations/{name}")) for name in _MIGRATIONS]


def schema_version() -> int:
    """The version that this library creates: the number of its last migration."""
    return len(_MIGRATIONS)


_MIGRATIONS = ("0001.sql", "0002.sql")
_NOW = sql.SQL(
    "coalesce(%(now)s::bigint, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)"
)


def _columns(table: str = "") -> sql.SQL:
    # Without quotes: the driver remembers only what it has parsed of short statements.
    return sql.SQL(", ".join(f"{table}{name}" for name in COLUMNS))


def _value(name: str) -> sql.Composed:
    kind = sql.SQL(_type_of(name))
    return sql.SQL("{}::{}").format(sql.Placeholder(name), kind)


def _type_of(name: str) -> str:
    if name in FLAGS:
        return "boolean"
    if name in _INTEGERS:
        return "integer"
    if name in _BIGINTS:
        return "bigint"
    return _OTHERS.get(name, "text")


def _instead(replaced: Mapping[str, sql.Composable]) -> sql.Composed:
    """The columns of `gone`, but for those that are replaced."""
    return sql.SQL(", ").join(replaced.get(n, sql.SQL(f"gone.{n}")) for n in COLUMNS)


def _settled() -> sql.Composed:
    names = "state failures lapses releases result error errors".split()
    changed: dict[str, sql.Composable] = {n: sql.Identifier("gone", f"to_{n}") for n in names}
    changed |= {"lease_until": sql.SQL("NULL::bigint"), "ready": sql.SQL("false")}
    return _instead(changed | {"finished_at": sql.Identifier("gone", "now")})


def _expired() -> sql.Composed:
    changed = {"state": sql.SQL("'expired'"), "ready": sql.SQL("false")}
    changed["blocked"] = sql.SQL("NULL::text")
    return _instead({**changed, "finished_at": sql.Identifier("gone", "now")})


def _unclean(name: str, value: str) -> str:
    return (
        f"{name} must be lower-case letters, digits and underscores, at most 40, "
        f"and not begin with a digit; not {value!r}"
    )


def _number(name: str, text: str, kind: type[float] | type[int]) -> float | int:
    try:
        return kind(text)
    except ValueError:
        raise ConfigurationError(f"{name} must be a number, not {text!r}") from None


def _without_secrets(text: str) -> str:
    return text.strip() if "@" not in text else "libpq does not take this address"
