"""What callers give as their connection: that of a driver, of SQLAlchemy or of Django."""

from tenure.engines.callers.base import AsyncCaller, Caller, Given
from tenure.engines.callers.kinds import caller_of, kind_of

__all__ = ["AsyncCaller", "Caller", "Given", "caller_of", "kind_of"]
