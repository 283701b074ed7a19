"""What came out: counted from the rows, and held against a plain computation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from tenure.core.job import Job
from tenure.core.states import State
from tenure.demo.kill import Kill
from tenure.demo.measure import Measured

_LARGEST = 10
_WHERE = re.compile(r" \([^()]*, line \d+\)$")


class FileSize(msgspec.Struct, frozen=True):
    """A file among the largest."""

    path: str
    size: int
    lines: int


class Failure(msgspec.Struct, frozen=True):
    """Files that failed alike. `job` is the id of the first one's."""

    error: str
    count: int
    path: str
    job: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of one demo.

    `lapsed` counts leases that ran out; `taken_over` the jobs of the killed worker that another
    one brought to an end; `differences` names files where a job and the plain computation differ.
    """

    url: str
    queue: str
    files: int
    completed: int
    failed: int
    unfinished: int
    bytes: int
    lines: int
    functions: int
    classes: int
    largest: list[FileSize]
    failures: list[Failure]
    killed: Kill | None
    lapsed: int
    taken_over: list[str]
    retried: int
    differences: list[str]
    seconds: float

    @property
    def good(self) -> bool:
        """Whether every job is final and agrees with the plain computation."""
        return not self.unfinished and not self.differences


Answers = Mapping[Path, Measured | str]


def outcomes(jobs: Iterable[Job]) -> dict[Path, Measured | str]:
    """What each file's job came to: its result, or its error as text."""
    return {path_of(job): _outcome(job) for job in jobs}


def path_of(job: Job) -> Path:
    """The file that a job is about."""
    return Path(job.arguments["path"])


def _outcome(job: Job) -> Measured | str:
    if job.state is State.COMPLETED:
        return msgspec.convert(job.result, Measured)
    return f"{job.error.kind}: {job.error.message}" if job.error else f"({job.state})"


def differences(found: Answers, plain: Answers) -> list[str]:
    """The files, one by one, where the two disagree or that only one of them has."""
    return sorted(str(p) for p in found.keys() | plain.keys() if found.get(p) != plain.get(p))


def make(
    jobs: Sequence[Job],
    plain: Answers,
    *,
    place: tuple[str, str],
    killed: Kill | None,
    seconds: float,
) -> Report:
    """The report on these jobs; `place` is the URL and the queue."""
    found = outcomes(jobs)
    good = {path: answer for path, answer in found.items() if isinstance(answer, Measured)}
    url, queue = place
    return Report(
        url=url,
        queue=queue,
        files=len(jobs),
        completed=sum(job.state is State.COMPLETED for job in jobs),
        failed=sum(job.state is State.FAILED for job in jobs),
        unfinished=sum(not job.state.final for job in jobs),
        bytes=sum(answer.size for answer in good.values()),
        lines=sum(answer.lines for answer in good.values()),
        functions=sum(answer.functions for answer in good.values()),
        classes=sum(answer.classes for answer in good.values()),
        largest=_largest(good),
        failures=_failures(jobs),
        killed=killed,
        lapsed=sum(job.lapses for job in jobs),
        taken_over=_taken_over(jobs, killed),
        retried=sum(job.row.failures > 1 or _recovered(job) for job in jobs),
        differences=differences(found, plain),
        seconds=round(seconds, 2),
    )


def _recovered(job: Job) -> bool:
    return job.state is State.COMPLETED and job.row.failures > 0


def _largest(found: Mapping[Path, Measured]) -> list[FileSize]:
    ordered = sorted(found.items(), key=lambda item: item[1].size, reverse=True)
    return [FileSize(str(path), m.size, m.lines) for path, m in ordered[:_LARGEST]]


def _taken_over(jobs: Iterable[Job], killed: Kill | None) -> list[str]:
    if killed is None:
        return []
    held = set(killed.held)
    return [job.id for job in jobs if job.id in held and job.lapses and job.owner != killed.owner]


def _failures(jobs: Iterable[Job]) -> list[Failure]:
    """Failed jobs by their error, without the place in the file; the most frequent first."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        if job.state is not State.COMPLETED and job.state.final and job.error is not None:
            text = f"{job.error.kind}: {_WHERE.sub('', job.error.message)}"
            groups.setdefault(text, []).append(job)
    failures = [
        Failure(text, len(group), str(path_of(group[0])), group[0].id)
        for text, group in groups.items()
    ]
    return sorted(failures, key=lambda failure: (-failure.count, failure.error))


def commands(report: Report, program: str) -> Iterator[str]:
    """Commands that show what happened."""
    yield f"{program} queues {report.url}"
    if report.failures:
        yield f"{program} jobs {report.url} --state failed"
        yield f"{program} job show {report.url} {report.failures[0].job}"
    for job_id in report.taken_over[:1]:
        yield f"{program} job show {report.url} {job_id}"
