"""Creating the tables, and upgrading them."""

from __future__ import annotations

import asyncio
import random

from psycopg import errors

from tenure.engines.postgres.link import Link, no_schema
from tenure.engines.postgres.place import (
    Place,
    PlacedStatements,
    migration_texts,
    schema_version,
)
from tenure.engines.postgres.steps import Ask, Rows
from tenure.errors import EngineUnavailable, SchemaError

_LOCK_PATIENCE = 0.25
"""Seconds that a migration waits for a table."""


def schema_of(place: Place) -> str:
    """The SQL of every migration, in order, to be read or printed."""
    first = f"{PlacedStatements(place)['create_schema']};\n"
    return "\n".join([first, *migration_texts(place)])


async def migrate(place: Place, statements: PlacedStatements) -> int:
    """Apply what is missing, in one transaction; of several starters the first one does it.

    Who waits for a table makes all wait who come after, so it waits for moments only, and tries
    again within the deadline: workers go on beside a transaction that has jobs locked.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + place.timeout
    while True:
        try:
            return await _apply(place, statements)
        except errors.LockNotAvailable as error:
            if clock() > deadline:
                raise EngineUnavailable(
                    f"migrate: a transaction held tables of {place.shown} for more than "
                    f"{place.timeout:g} s; `tenure doctor` names it"
                ) from error
        await asyncio.sleep(random.uniform(1, 3) * _LOCK_PATIENCE)


async def _apply(place: Place, statements: PlacedStatements) -> int:
    link = await Link.open(place, statements, place.timeout)
    try:
        async with link.connection.transaction():
            await link.ask(Ask("lock_migration", {"channel": place.channel}))
            asked = {"schema": place.schema, "table": f"{place.prefix}tenure_schema"}
            ((schema, ours),) = await link.ask(Ask("has_schema", asked))
            if not schema:
                await link.ask(Ask("create_schema"))
            found = _version(await link.ask(Ask("schema_version")), place) if ours else 0
            patience = str(round(_LOCK_PATIENCE * 1000))
            await link.ask(Ask("lock_patience", {"milliseconds": patience}))
            for text in migration_texts(place)[found:]:
                await link.connection.execute(text, prepare=False)
    finally:
        await link.close()
    return max(found, schema_version())


async def check(link: Link, place: Place) -> None:
    """Raise `SchemaError` unless the tables are there and known."""
    check_version(await link.ask(Ask("schema_version")), place)


def check_version(found: Rows, place: Place) -> None:
    """The same, of what the statement `schema_version` answered."""
    if _version(found, place) < schema_version():
        raise SchemaError(f"{place.shown} has an older schema; run `tenure migrate` first")


def _version(found: Rows, place: Place) -> int:
    if not found:
        raise SchemaError(no_schema(place))
    version, needed = found[0]
    if needed > schema_version():
        raise SchemaError(
            f"{place.shown} has schema version {version}, which needs a tenure that knows version "
            f"{needed}; this one knows {schema_version()}: upgrade tenure"
        )
    return int(version)
