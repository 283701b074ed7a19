"""The application of the flow test: jobs of many keys, of which one may run at a time."""

from __future__ import annotations

import os

from tenure import QueueService

jobs = QueueService(os.environ.get("CHAOS_URL", "sqlite:///keys.db"))


@jobs.task(concurrency_key=lambda key: f"key-{key}", max_lapses=1000)
async def touch(key: int) -> int:
    """Nothing; who holds the key meanwhile is written down by the store."""
    return key
