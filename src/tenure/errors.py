"""Every error tenure raises on purpose. All derive from `TenureError`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tenure.core.job import Job


class TenureError(Exception):
    """Base of all errors raised by tenure."""


class ConfigurationError(TenureError, ValueError):
    """A setting or an option has a value that is not allowed; the message names both."""


class UnknownTask(TenureError, LookupError):
    """The name belongs to no task of this service."""


class InvalidArguments(TenureError, TypeError):
    """Arguments or options are missing, unknown or of the wrong shape."""


class PayloadError(TenureError, ValueError):
    """A value cannot be stored or read back; the message names the path to it."""


class IdentityTooLarge(PayloadError):
    """The arguments that a unique key would be made of are more than `allowed` bytes."""

    def __init__(self, actual: int, allowed: int) -> None:
        self.actual = actual
        self.allowed = allowed
        super().__init__(
            f"the identity of these arguments takes {actual} bytes of JSON; {allowed} are allowed "
            "(max_identity_bytes); a unique_key of your own avoids the limit"
        )

    def __reduce__(self) -> tuple[type[IdentityTooLarge], tuple[int, int]]:
        return type(self), (self.actual, self.allowed)


class InvalidTransition(TenureError, ValueError):
    """The life cycle has no such step. Seeing this error means a defect in tenure or an engine."""


class MissingDependency(TenureError, LookupError):
    """A parameter marked `INJECTED` was filled by nobody."""


class LeaseLost(TenureError):
    """The lease is gone: it ran out, or the job was settled, cancelled by force or taken over."""


class InvalidReceipt(TenureError, ValueError):
    """The text is no receipt of a lease, or was changed on its way."""


class Stopped(TenureError):
    """Raised by `ctx.check()` in a body that should end: cancelled, timed out, or shutting down."""


class JobNotFound(TenureError, LookupError):
    """No job has this id (it may have been pruned)."""


class ScheduleNotFound(TenureError, LookupError):
    """No schedule has this name."""


class JobNotClaimable(TenureError):
    """The job cannot be run now: it runs elsewhere, is not due yet, or has ended."""


class DuplicateJob(TenureError):
    """The unique key is taken. `existing` is the id of the job that has it."""

    def __init__(self, key: str, existing: str) -> None:
        self.key = key
        self.existing = existing
        super().__init__(f"the unique key {key!r} is taken by job {existing}")

    def __reduce__(self) -> tuple[type[DuplicateJob], tuple[str, str]]:
        return type(self), (self.key, self.existing)


class UniquenessConflict(TenureError, ValueError):
    """One unique key was used with two policies; neither job was changed."""


class EngineUnavailable(TenureError, ConnectionError):
    """The store did not answer, or not in time. Whether the operation took effect is unknown."""


class SchemaError(TenureError):
    """The store's schema is missing, foreign, or of a version this library cannot use."""


class JobEnded(TenureError):
    """Base of the errors that `result()` raises for a job that did not complete.

    `job` is the final job; its stored error, if any, is in the message.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        super().__init__(job.describe_end())

    def __reduce__(self) -> tuple[type[JobEnded], tuple[Job]]:
        return type(self), (self.job,)  # by default copies are made from the message alone


class JobFailed(JobEnded):
    """The job spent its attempts, or failed in a way that is not retried."""


class JobCancelled(JobEnded):
    """The job was cancelled before it completed."""


class JobExpired(JobEnded):
    """The job's `expires_at` passed before it could start."""
