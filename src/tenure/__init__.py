"""tenure: durable background work for Python, held on leases."""

from tenure.context import JobContext
from tenure.core.directives import Cancel, Discard, Handoff, Retry, Snooze
from tenure.core.job import Job, JobError, Progress
from tenure.core.limits import rate
from tenure.core.query import CancelResult, RequeueResult
from tenure.core.retry import RetryPolicy
from tenure.core.states import State
from tenure.errors import JobFailed, LeaseLost, TenureError
from tenure.handles import JobHandle
from tenure.service import QueueService
from tenure.signatures import INJECTED
from tenure.tasks import BoundTask, Task, TaskRef, task

__all__ = [
    "INJECTED",
    "BoundTask",
    "Cancel",
    "CancelResult",
    "Discard",
    "Handoff",
    "Job",
    "JobContext",
    "JobError",
    "JobFailed",
    "JobHandle",
    "LeaseLost",
    "Progress",
    "QueueService",
    "RequeueResult",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "State",
    "Task",
    "TaskRef",
    "TenureError",
    "rate",
    "task",
]
