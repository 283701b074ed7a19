"""Lists as PostgreSQL takes them fastest: in its binary form, of a type that is always the same.

On a connection that does not know these dumpers, as one of a caller, they are lists like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Any

import psycopg
from psycopg.adapt import Dumper
from psycopg.pq import Format

_HEAD = Struct("!iiIii").pack
_SIZE = Struct("!i").pack
_NULL = _SIZE(-1)


class Texts(list[str | None]):
    """For `text[]`."""


class Blobs(list[bytes | None]):
    """For `bytea[]`."""


class Flags(list[bool | None]):
    """For `boolean[]`."""


class Integers(list[int | None]):
    """For `integer[]`."""


class Bigints(list[int | None]):
    """For `bigint[]`."""


class Doubles(list[float | None]):
    """For `double precision[]`."""


def sparse(kind: type[list[Any]], values: Iterable[Any]) -> list[Any] | None:
    """The values, or None if there are none but None: `unnest` fills up what is missing."""
    found = kind(values)
    return None if found.count(None) == len(found) else found


class _Varying(Dumper):
    """Elements of any length."""

    format = Format.BINARY
    element = 0

    def encoded(self, items: Sequence[Any]) -> Iterable[bytes | None]:
        raise NotImplementedError

    def dump(self, obj: Sequence[Any]) -> bytes:
        if not obj:
            return _HEAD(0, 0, self.element, 0, 0)[:12]
        parts = [_HEAD(1, 1 if None in obj else 0, self.element, len(obj), 1)]
        for item in self.encoded(obj):
            if item is None:
                parts.append(_NULL)
            else:
                parts.append(_SIZE(len(item)))
                parts.append(item)
        return b"".join(parts)


class _TextsDumper(_Varying):
    oid = 1009
    element = 25

    def encoded(self, items: Sequence[str | None]) -> Iterable[bytes | None]:
        return [None if item is None else item.encode() for item in items]


class _BlobsDumper(_Varying):
    oid = 1001
    element = 17

    def encoded(self, items: Sequence[bytes | None]) -> Iterable[bytes | None]:
        return items


class _Fixed(Dumper):
    """Elements of one length."""

    format = Format.BINARY
    element = 0
    width = 0
    code = ""

    def dump(self, obj: Sequence[Any]) -> bytes:
        if not obj:
            return _HEAD(0, 0, self.element, 0, 0)[:12]
        if None in obj:
            return self._with_nulls(obj)
        both = [self.width] * (2 * len(obj))
        both[1::2] = obj
        body = Struct("!" + f"i{self.code}" * len(obj)).pack(*both)
        return _HEAD(1, 0, self.element, len(obj), 1) + body

    def _with_nulls(self, obj: Sequence[Any]) -> bytes:
        one = Struct(f"!i{self.code}").pack
        parts = [_NULL if item is None else one(self.width, item) for item in obj]
        return b"".join((_HEAD(1, 1, self.element, len(obj), 1), *parts))


class _FlagsDumper(_Fixed):
    oid, element, width, code = 1000, 16, 1, "?"


class _IntegersDumper(_Fixed):
    oid, element, width, code = 1007, 23, 4, "i"


class _BigintsDumper(_Fixed):
    oid, element, width, code = 1016, 20, 8, "q"


class _DoublesDumper(_Fixed):
    oid, element, width, code = 1022, 701, 8, "d"


_DUMPERS: tuple[tuple[type, type[Dumper]], ...] = (
    (Texts, _TextsDumper),
    (Blobs, _BlobsDumper),
    (Flags, _FlagsDumper),
    (Integers, _IntegersDumper),
    (Bigints, _BigintsDumper),
    (Doubles, _DoublesDumper),
)


def teach(connection: psycopg.AsyncConnection[Any] | psycopg.Connection[Any]) -> None:
    """Make a connection of ours know these lists."""
    for kind, dumper in _DUMPERS:
        connection.adapters.register_dumper(kind, dumper)
