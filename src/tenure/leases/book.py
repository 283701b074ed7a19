"""What is kept, what is due, and what an answer means: the keeper's decisions.

No thread, no I/O and no clock in here: `now` (monotonic seconds) comes with every call, and the
keeper's lock is held around each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tenure.core.durations import SECOND
from tenure.core.lease import Busy, Extended, Extension, Failed, Lost, retry_wait, throttle_wait
from tenure.errors import EngineUnavailable
from tenure.leases.client import LeaseClient
from tenure.leases.desk import Desk, Entry
from tenure.leases.filed import Filed
from tenure.leases.holder import Holder
from tenure.leases.lease import DEADLINE, Doubt, Lease
from tenure.leases.request import Errand, Request
from tenure.leases.traffic import Traffic

TOO_LATE = 0.05
"""With less than this many seconds left, a failed renewal is not tried again."""

RELEASED = "released"


class Book(Traffic):
    """All leases of a keeper. A lease has at most one extension in flight."""

    def add(self, client: LeaseClient, leases: Iterable[Lease]) -> list[Lease]:
        """Keep these; returns those that were not kept before."""
        desk = self._desk(client)
        added = []
        for lease in leases:
            entry = self._keep(lease, desk)
            if entry is not None:
                desk.place(entry, self._renewal(lease))
                added.append(lease)
        return added

    def discard(self, client: LeaseClient) -> list[Lease]:
        """Forget a client and its leases, which are returned."""
        desk = self._desks.pop(id(client), None)
        if desk is None:
            return []
        self._dismiss(desk, RuntimeError("the lease client was discarded"))
        return self.remove([x for x, entry in self._entries.items() if entry.desk is desk])

    def close(self, reason: str) -> Filed:
        """Lose every lease, and forget them and all clients."""
        filed = Filed()
        for lease in list(self._entries):
            self._lose(lease, reason, filed)
        for desk in self._desks.values():
            self._dismiss(desk, RuntimeError("the lease keeper was closed"))
        self._desks.clear()
        self._ground(0.0)
        return filed

    def give_up(self, error: BaseException | None) -> None:
        """Nobody is there to run errands."""
        for desk in self._desks.values():
            self._dismiss(desk, error)

    def nudge(self, ids: Iterable[str], now: float) -> None:
        """Make these due; those in flight again, as soon as they are answered."""
        for name in ids:
            for entry in self._ids.get(name, ()):
                self._hasten(entry, now)

    def ask(self, client: LeaseClient, errand: Errand) -> None:
        """Extend a lease once, kept or not, as soon as no other extension of it is in flight."""
        self._desk(client).errands.append(errand)

    def suspend(self, lease: Lease, now: float) -> bool:
        """Let the deadline stand still, and renew nothing; False if the lease is lost.

        Raises `RuntimeError` if it is not kept.
        """
        entry = self._entries.get(lease)
        if lease._over(now):
            return False
        if entry is None:
            raise RuntimeError(f"the lease of {lease.id} is not kept by this keeper")
        lease._suspended += 1
        entry.desk.place(entry, math.inf)
        return True

    def resume(self, lease: Lease, now: float) -> Doubt | None:
        """The end of a suspension: what is answered from now on decides. None: nothing is to be.

        The store let nobody in meanwhile, whatever the deadline says; from now on it may.
        """
        lease._suspended -= 1
        entry = self._entries.get(lease)
        if entry is None or lease._reason is not None or lease._suspended:
            return None
        doubt = lease._question(now, until=now + lease.times.interval)
        self._hasten(entry, now)
        return doubt

    def question(self, now: float) -> list[Lease]:
        """Trust no lease until it has been extended once more; returns the leases."""
        for lease, entry in self._entries.items():
            lease._question(now)
            if not lease._suspended:
                self._hasten(entry, now)
        return list(self._entries)

    def lose(self, holder: Holder, reason: str, late: float | None = None) -> Filed:
        """Lose the leases of an event loop; given `late`, only those whose limit passed by then."""
        filed = Filed()
        for lease in self.held_by(holder):
            if late is None or (lease.limit is not None and lease.limit <= late):
                self._lose(lease, reason, filed)
        return filed

    def carry_over(self, now: float) -> None:
        """The loop that sent the requests in flight is gone: what they carried is due now."""
        for entry in self._entries.values():
            if entry.flight is not None:
                entry.flight = None
                entry.desk.place(entry, math.inf if entry.lease._suspended else now)
        self._ground(now)

    def next_wake(self) -> float | None:
        """When `due` has something to do again."""
        at = min((desk.next_event() for desk in self._desks.values()), default=math.inf)
        return None if at == math.inf else at

    def due(self, now: float) -> Filed:
        """The requests to send now, and the leases whose deadline has passed.

        A request counts as in flight until `answered` or `failed` has been called for it.
        """
        filed = Filed()
        for desk in list(self._desks.values()):
            if desk.empty and desk.stateless:
                del self._desks[id(desk.client)]
                filed.idle.append(desk.client)
                continue
            ripe = self._ripe(desk, now, filed)
            for start in range(0, len(ripe), desk.batch):
                entries = ripe[start : start + desk.batch]
                filed.requests.append(self._send(Request(desk, entries, now)))
            for errand in desk.errands:
                if errand.request is None and errand.due_at() <= now:
                    filed.requests.append(self._send_errand(desk, errand, now))
        return filed

    def answered(self, request: Request, answers: Sequence[Extension], now: float) -> Filed:
        """File sound answers; those for leases removed or lost meanwhile are ignored."""
        filed = Filed()
        if any(not isinstance(answer, Failed) for answer in answers):
            request.desk.streak = 0
        if request.errand is None:
            self._renewals_answered(request, answers, now, filed)
        else:
            self._errand_answered(request, request.errand, answers[0], now, filed)
        self._land(request, now)
        return filed

    def failed(
        self,
        request: Request,
        now: float,
        error: BaseException | None = None,
        after: float | None = None,
    ) -> Filed:
        """Plan the retry of a request that was not answered, for all its leases together.

        `after`: the service's own word on when, in seconds.
        """
        filed = Filed()
        desk, errand = request.desk, request.errand
        desk.streak += 1
        filed.streak = desk.streak
        entries = [entry for entry in request.entries if entry.flight is request]
        for entry in entries:
            entry.flight = None
        if errand is None:
            self._put_off(desk, entries, now, filed, after)
        else:
            for entry in entries:
                self._replan(entry, now)
            self._put_off_errand(desk, errand, now, error, after)
        self._land(request, now)
        return filed

    def _ripe(self, desk: Desk, now: float, filed: Filed) -> list[Entry]:
        """What is to be renewed now; what cannot be is given its next event."""
        ripe = []
        for entry in desk.ripe(now):
            lease = entry.lease
            if lease._over(now):
                self._lose(lease, DEADLINE, filed)
            elif lease._suspended:
                desk.place(entry, math.inf)
            elif lease._flight is not None:
                entry.again = entry.again or entry.flight is None
                desk.place(entry, lease._deadline)
            else:
                ripe.append(entry)
        return ripe

    def _send_errand(self, desk: Desk, errand: Errand, now: float) -> Request:
        entry = self._entries.get(errand.lease)
        entries = [] if entry is None or entry.desk is not desk else [entry]
        if errand.lease._flight is not None:
            # It has been waited for long enough. What it does later is undone by a repetition.
            errand.overtook = errand.lease._flight
            self._overtaking.append((errand, desk))
            entries = []
        errand.request = Request(desk, entries, now, errand)
        return self._send(errand.request)

    def _renewals_answered(
        self, request: Request, answers: Sequence[Extension], now: float, filed: Filed
    ) -> None:
        desk = request.desk
        waiting: dict[float | None, list[Entry]] = {}
        for entry, beat, answer in zip(request.entries, request.beats, answers, strict=True):
            if entry.flight is not request:
                continue
            entry.flight = None
            if isinstance(answer, Lost):
                self._lose(entry.lease, answer.reason, filed)
            elif isinstance(answer, Failed):
                filed.failed.append((entry.lease, answer.message))
                waiting.setdefault(answer.after, []).append(entry)
            elif isinstance(answer, Busy) and entry.lease._doubt is not None:
                # The lock may be that of another who takes the job over just now.
                filed.failed.append((entry.lease, "busy"))
                waiting.setdefault(None, []).append(entry)
            else:
                if isinstance(answer, Extended) and beat.progress is not None:
                    entry.told = beat.progress
                self._prolong(entry, request.sent_at, answer, now, filed)
        if len(filed.failed) == len(answers):
            desk.streak += 1
        filed.streak = desk.streak
        for after, entries in waiting.items():
            self._put_off(desk, entries, now, filed, after)

    def _errand_answered(
        self, request: Request, errand: Errand, answer: Extension, now: float, filed: Filed
    ) -> None:
        lease = errand.lease
        entry = next((entry for entry in request.entries if entry.flight is request), None)
        if entry is not None:
            entry.flight = None
        if isinstance(answer, Failed):
            if entry is not None:
                self._replan(entry, now)
            error = EngineUnavailable(answer.message or "the extension was not answered")
            self._put_off_errand(request.desk, errand, now, error, answer.after)
            return
        if isinstance(answer, Lost) and lease in self._entries:
            self._lose(lease, answer.reason, filed)
        elif isinstance(answer, Lost) or errand.seconds == 0:
            # Nobody waits to be told: the holder has stopped, or gave it back.
            lease._end(answer.reason if isinstance(answer, Lost) else RELEASED)
            self._drop(lease)
        elif entry is not None:
            self._prolong(entry, request.sent_at, answer, now, filed)
        else:
            seconds = answer.seconds if isinstance(answer, Extended) else errand.seconds
            lease._prolong(request.sent_at, seconds, now)
        self._finish(request.desk, errand, answer)

    def _prolong(
        self, entry: Entry, sent_at: float, answer: Extended | Busy, now: float, filed: Filed
    ) -> None:
        lease = entry.lease
        if isinstance(answer, Extended):
            seconds, kind = answer.seconds, filed.extended
        else:
            # The holder's own transaction locks the row: as good as a full lease.
            seconds, kind = lease._asks(sent_at), filed.busy
        if not lease._prolong(sent_at, seconds, now):
            self._lose(lease, DEADLINE, filed)
            return
        kind.append(lease)
        if answer.cancel_requested and lease._request_cancel():
            filed.cancelled.append(lease)
        entry.failures = 0
        self._replan(entry, now)

    def _put_off(
        self, desk: Desk, entries: list[Entry], now: float, filed: Filed, after: float | None
    ) -> None:
        """Try these again later, all together, but for those whose time is up."""
        waiting = []
        for entry in entries:
            entry.again = False
            entry.failures += 1
            filed.fresh = filed.fresh or entry.failures == 1
            if entry.lease._over(now):
                self._lose(entry.lease, DEADLINE, filed)
            elif entry.lease._suspended:
                desk.place(entry, math.inf)
            else:
                waiting.append(entry)
        if waiting:
            self._retry(desk, waiting, now, filed, after)

    def _retry(
        self, desk: Desk, entries: list[Entry], now: float, filed: Filed, after: float | None
    ) -> None:
        if after is None:
            backoff = desk.retry.delay(max(e.failures for e in entries), self._roll()) / SECOND
        else:
            backoff = throttle_wait(after, min(e.lease.times.interval for e in entries))
        deadlines = [entry.lease._deadline for entry in entries]
        hopeful = [deadline for deadline in deadlines if deadline - now > TOO_LATE]
        delay = retry_wait(backoff, min(hopeful), now) if hopeful else None
        filed.delay = delay if filed.delay is None else filed.delay
        for entry, deadline in zip(entries, deadlines, strict=True):
            if delay is None or deadline - now <= TOO_LATE:
                desk.place(entry, deadline)
            else:
                desk.place(entry, now + delay)

    def _put_off_errand(
        self,
        desk: Desk,
        errand: Errand,
        now: float,
        error: BaseException | None,
        after: float | None,
    ) -> None:
        errand.request = None
        errand.tries -= 1
        lease = errand.lease
        if errand.tries == 0 or lease._deadline - now <= TOO_LATE:
            self._finish(desk, errand, None, error)
            return
        if after is None:
            wait = errand.backoff(self._roll())
        else:
            wait = throttle_wait(after, lease.times.interval)
        errand.at = now + retry_wait(wait, lease._deadline, now)

    def _finish(
        self,
        desk: Desk,
        errand: Errand,
        answer: Extension | None,
        error: BaseException | None = None,
    ) -> None:
        if errand in desk.errands:
            desk.errands.remove(errand)
        errand.end(answer, error)

    def _dismiss(self, desk: Desk, error: BaseException | None) -> None:
        errands, desk.errands = desk.errands, []
        for errand in errands:
            errand.end(None, error)

    def _lose(self, lease: Lease, reason: str, filed: Filed) -> None:
        first = lease._lose(reason)  # before whoever waits for a word about it is woken
        self._drop(lease)
        if first:
            filed.lost.append(lease)
