"""Jobs in Redis or Valkey, shared by any number of machines. Needs `tenure[redis]`."""

from tenure.engines.redis.engine import RedisEngine
from tenure.engines.redis.place import Place, place_of

__all__ = ["Place", "RedisEngine", "place_of"]
