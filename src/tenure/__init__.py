"""tenure: durable background work for Python, held on leases."""

from tenure.ambient import correlation, current_job
from tenure.context import JobContext
from tenure.core.directives import Cancel, Discard, Handoff, Retry, Snooze
from tenure.core.job import Job, JobError, Progress
from tenure.core.limits import rate
from tenure.core.query import CancelResult, RequeueResult
from tenure.core.retention import Retention
from tenure.core.retry import RetryPolicy
from tenure.core.states import State
from tenure.errors import (
    DuplicateJob,
    JobCancelled,
    JobExpired,
    JobFailed,
    LeaseLost,
    TenureError,
)
from tenure.failures import retry_after_of
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
    "DuplicateJob",
    "Handoff",
    "Job",
    "JobCancelled",
    "JobContext",
    "JobError",
    "JobExpired",
    "JobFailed",
    "JobHandle",
    "LeaseLost",
    "Progress",
    "QueueService",
    "RequeueResult",
    "Retention",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "State",
    "Task",
    "TaskRef",
    "TenureError",
    "correlation",
    "current_job",
    "rate",
    "retry_after_of",
    "task",
]
