"""What a store must hold, as text to read, or to run by hand where an application may not."""

from __future__ import annotations

from tenure.errors import ConfigurationError


def schema_sql(url: str) -> str:
    """The SQL of every migration of the engine that `url` names, in order.

    Raises `ConfigurationError` for an engine without SQL.
    """
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from tenure.engines.sqlite.connection import migration_sql

        return migration_sql()
    if scheme in ("postgresql", "postgres"):
        from tenure.engines.postgres import place_of, schema_of

        return schema_of(place_of(url))
    raise ConfigurationError(f"{scheme}:// needs no SQL")
