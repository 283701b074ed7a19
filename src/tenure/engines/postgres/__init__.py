"""Jobs in a PostgreSQL database: durable, shared by any number of machines."""

from tenure.engines.postgres.engine import PostgresEngine
from tenure.engines.postgres.migrating import schema_of
from tenure.engines.postgres.place import Place, place_of

__all__ = ["Place", "PostgresEngine", "place_of", "schema_of"]
