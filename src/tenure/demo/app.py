"""What the worker processes of the demo run: `tenure worker tenure.demo.app:jobs`."""

from __future__ import annotations

import os
import signal
import threading

from tenure.demo.tasks import measure_file
from tenure.service import QueueService

jobs = QueueService(tasks=[measure_file])


def _end_with_the_demo() -> None:
    """Stop this worker when the demo is gone, even if that was killed: its end of the pipe is."""
    try:
        while os.read(0, 1):
            pass
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


if os.environ.get("TENURE_DEMO_PIPE"):
    threading.Thread(target=_end_with_the_demo, name="demo-pipe", daemon=True).start()
