"""Jobs in a SQLite file: durable, shared by the processes of one machine, nothing to set up."""

from tenure.engines.sqlite.connection import migration_sql
from tenure.engines.sqlite.engine import SQLiteEngine

__all__ = ["SQLiteEngine", "migration_sql"]
