"""Jobs in the memory of one process."""

from tenure.engines.memory.engine import MemoryEngine

__all__ = ["MemoryEngine"]
