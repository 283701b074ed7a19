"""The task of the demo."""

from __future__ import annotations

import time
from pathlib import Path

from tenure.core.retry import RetryPolicy
from tenure.demo.measure import Measured, measure
from tenure.tasks import task


@task(
    name="measure_file",
    max_attempts=2,
    retry=RetryPolicy.constant(0.3, jitter=0.5),
    timeout=60,
)
def measure_file(path: Path, pause: float = 0.0) -> Measured:
    """Measure one file. A few files alone would be done before anybody could look: they pause."""
    time.sleep(pause)
    return measure(path)
