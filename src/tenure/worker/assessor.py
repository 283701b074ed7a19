"""How a body ended, as the outcome that its job is settled with."""

from __future__ import annotations

import inspect
import logging
from typing import Any

from tenure.clock import Clock
from tenure.context import JobContext, Stopping
from tenure.core import codec
from tenure.core.directives import Cancel, Directive, Handoff, Retry, Snooze
from tenure.core.durations import SECOND
from tenure.core.job import JobError, JobRow
from tenure.core.outcomes import (
    Cancelled,
    Completed,
    Errored,
    Outcome,
    Released,
    ReleaseReason,
    Snoozed,
)
from tenure.errors import PayloadError
from tenure.tasks import Task
from tenure.worker.endings import deadly, follows_cancellation, interruption, single
from tenure.worker.failure import Describer
from tenure.worker.surroundings import End

log = logging.getLogger("tenure.worker")

NO_THREAD_SNOOZE = SECOND

Ending = Outcome | Handoff | None
"""What to settle with; `Handoff`: somebody else settles; None: the lease is lost."""


class NoThread(RuntimeError):
    """The system gives no thread for a `def` body."""


def put_off(row: JobRow, error: BaseException) -> Outcome:
    """The outcome where there is no thread, which is not the job's fault."""
    log.warning("job %s (%s) has to wait: %s", row.id, row.task, error)
    return Snoozed(NO_THREAD_SNOOZE)


class Assessor:
    """Turns the end of one attempt's body into an outcome, by the rules of its task.

    `told` says why the body had been told to stop when it ended, if it had. Afterwards `fatal` is
    an exception that must end the worker, if there is one. Raises nothing of the body's.
    """

    def __init__(
        self,
        context: JobContext,
        task: Task[..., Any],
        describer: Describer,
        *,
        clock: Clock,
        max_result: int,
    ) -> None:
        self.fatal: BaseException | None = None
        self._row = context.job.row
        self._context = context
        self._task = task
        self._describer = describer
        self._clock = clock
        self._max_result = max_result

    def ended(self, end: End, told: Stopping | None) -> Ending:
        """The outcome of a body that ended, by whatever."""
        if end.error is not None:
            return self.raised(end.error, told, cleanup=end.cleanup)
        if told == "timeout":
            return self._timed_out("it returned too late")
        return self._completed(end.result, told)

    def unstarted(self, told: Stopping | None) -> Outcome | None:
        match told:
            case "cancel":
                return Cancelled()
            case "lost":
                return None
            case _:
                return Released(ReleaseReason.UNSTARTED)

    def left_behind(self, told: Stopping | None) -> Ending:
        """The outcome of an attempt whose body does not end."""
        match told:
            case "cancel":
                return Cancelled(self._error("cancelled", "cancelled, but the body still runs"))
            case "shutdown":
                return Released(ReleaseReason.SHUTDOWN)
            case "lost":
                return None
            case _:
                return self._timed_out("the body still runs")

    def _completed(self, result: Any, told: Stopping | None) -> Ending:
        try:
            data = self._encode(result)
        except Exception as error:
            # The side effects happened, so running the body again would not be a remedy.
            return self._errored(error, retryable=False)
        except BaseException as error:
            return self.raised(error, told)
        return Completed(data)

    def _encode(self, result: Any) -> bytes | None:
        if inspect.iscoroutine(result):
            result.close()
            raise PayloadError(
                "result: the body returned a coroutine that nobody awaited; "
                "a task that awaits must be an `async def` itself"
            )
        return codec.encode_result(result, self._max_result)

    def raised(
        self, error: BaseException, told: Stopping | None, *, cleanup: bool = False
    ) -> Ending:
        """The outcome of a body that ended by an exception, and whether the worker must end.

        `cleanup`: the body ended well, and what was provided to it did not; then no rule of the
        task is asked.
        """
        if deadly(error):
            self.fatal = error
            return None if told == "lost" else Released(ReleaseReason.SHUTDOWN)
        if told == "lost":
            return None
        alone = single(error)
        if isinstance(alone, NoThread):
            return put_off(self._row, alone)
        if isinstance(alone, Directive) and not cleanup:
            return self._directed(alone, alone)
        if interruption(error) or (told == "shutdown" and follows_cancellation(error)):
            return self._interrupted(error)
        if told == "timeout":
            return self._timed_out(f"then raised {type(error).__qualname__}")
        return self._errored(error) if cleanup else self._by_rules(alone, error)

    def _directed(self, directive: Directive, error: BaseException) -> Ending:
        """What a directive says; `error` is what there is to be told."""
        match directive:
            case Retry():
                return Errored(
                    self._described(error), after=directive.after, spread=directive.spread
                )
            case Snooze():
                return Snoozed(directive.delay)
            case Cancel():
                return Cancelled(self._described(error, "cancelled"))
            case Handoff():
                return directive
            case _:
                return self._errored(error, retryable=False)

    def _by_rules(self, alone: BaseException, error: BaseException) -> Ending:
        """What the task's rules say about an exception, which may be `alone` in groups."""
        rules = self._task.spec.failure_rules
        said = True if rules is None else rules.answer(alone, self._context.job)
        if isinstance(said, Directive):
            return self._directed(said, error)
        return self._errored(error, retryable=said)

    def _timed_out(self, detail: str = "") -> Ending:
        """The rules see a timeout as a `TimeoutError`."""
        described = self._timeout_error(detail)
        rules = self._task.spec.failure_rules
        if rules is None:
            return Errored(described)
        said = rules.answer(TimeoutError(described.message), self._context.job)
        match said:
            case bool():
                return Errored(described, retryable=said)
            case Retry():
                return Errored(described, after=said.after, spread=said.spread)
            case Cancel():
                return Cancelled(described)
            case Snooze():
                return Snoozed(said.delay)
            case _:
                return Errored(described, retryable=False)

    def _interrupted(self, error: BaseException) -> Ending:
        match self._context.stopping:
            case "cancel":
                return Cancelled()
            case "timeout":
                return self._timed_out()
            case "shutdown":
                return Released(ReleaseReason.SHUTDOWN)
            case "lost":
                return None
            case None:
                return self._by_rules(single(error), error)

    def _errored(self, error: BaseException, *, retryable: bool = True) -> Errored:
        return Errored(self._described(error), retryable=retryable)

    def _described(self, error: BaseException, kind: str | None = None) -> JobError:
        at = self._clock.time_us()
        return self._describer.error(error, self._row, at=at, kind=kind)

    def _error(self, kind: str, message: str) -> JobError:
        at = self._clock.time_us()
        return JobError(kind=kind, message=message, attempt=self._row.attempt, at=at)

    def _timeout_error(self, detail: str = "") -> JobError:
        limit = self._row.timeout or 0.0
        text = f"the attempt took longer than its limit of {limit:g} seconds"
        return self._error("timeout", f"{text}; {detail}" if detail else text)
