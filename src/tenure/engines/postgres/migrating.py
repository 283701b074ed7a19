"""Creating the tables, and upgrading them."""

from __future__ import annotations

from tenure.engines.postgres.link import Link, no_schema
from tenure.engines.postgres.place import (
    Place,
    PlacedStatements,
    migration_texts,
    schema_version,
)
from tenure.engines.postgres.steps import Ask, Rows
from tenure.errors import SchemaError


def schema_of(place: Place) -> str:
    """The SQL of every migration, in order, to be read or printed."""
    first = f"{PlacedStatements(place)['create_schema']};\n"
    return "\n".join([first, *migration_texts(place)])


async def migrate(place: Place, statements: PlacedStatements) -> int:
    """Apply what is missing, in one transaction; of several starters the first one does it."""
    link = await Link.open(place, statements, place.timeout)
    try:
        async with link.connection.transaction():
            await link.ask(Ask("lock_migration", {"channel": place.channel}))
            asked = {"schema": place.schema, "table": f"{place.prefix}tenure_schema"}
            ((schema, ours),) = await link.ask(Ask("has_schema", asked))
            if not schema:
                await link.ask(Ask("create_schema"))
            found = _version(await link.ask(Ask("schema_version")), place) if ours else 0
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
