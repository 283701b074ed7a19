"""The whole suite, to be imported with `*` by the test module of an engine."""

from tenure.testing.conformance.cancel import TestCancel
from tenure.testing.conformance.claim import TestClaim
from tenure.testing.conformance.claim_arms import TestExpired, TestPromote
from tenure.testing.conformance.claim_lapsed import TestLapsed
from tenure.testing.conformance.claim_resume import TestResume
from tenure.testing.conformance.claim_room import TestPaused, TestRoom
from tenure.testing.conformance.concurrency import TestConcurrency
from tenure.testing.conformance.extend import TestExtend
from tenure.testing.conformance.fair import TestFairShare, TestFairShareAndOperations
from tenure.testing.conformance.firing import TestFire, TestOverlap
from tenure.testing.conformance.history import TestEvents
from tenure.testing.conformance.ids import TestIdentity
from tenure.testing.conformance.insert import TestInsert
from tenure.testing.conformance.limits import TestConcurrencyOfKeys
from tenure.testing.conformance.limits_queue import TestConcurrencyOfQueues
from tenure.testing.conformance.limits_rate import TestRateOfKeys, TestRateOfQueues
from tenure.testing.conformance.lost_replies import TestLostReplies
from tenure.testing.conformance.presence import TestPresence
from tenure.testing.conformance.prune import TestInspect, TestPrune
from tenure.testing.conformance.query import TestFind, TestGet, TestNextDue, TestStats
from tenure.testing.conformance.requeue import TestRequeue
from tenure.testing.conformance.reservations import TestReservations
from tenure.testing.conformance.schedules import TestSchedules
from tenure.testing.conformance.settle import TestSettle
from tenure.testing.conformance.signals import TestSignals
from tenure.testing.conformance.sweep import TestSweep
from tenure.testing.conformance.traits import TestTraits
from tenure.testing.conformance.unique import TestReplace, TestRequeueKeys, TestUniqueKeys
from tenure.testing.conformance.unique_batch import TestUniqueBatch, TestUniqueRaces
from tenure.testing.conformance.zombies import TestZombies

__all__ = [
    "TestCancel",
    "TestClaim",
    "TestConcurrency",
    "TestConcurrencyOfKeys",
    "TestConcurrencyOfQueues",
    "TestEvents",
    "TestExpired",
    "TestExtend",
    "TestFairShare",
    "TestFairShareAndOperations",
    "TestFind",
    "TestFire",
    "TestGet",
    "TestIdentity",
    "TestInsert",
    "TestInspect",
    "TestLapsed",
    "TestLostReplies",
    "TestNextDue",
    "TestOverlap",
    "TestPaused",
    "TestPresence",
    "TestPromote",
    "TestPrune",
    "TestRateOfKeys",
    "TestRateOfQueues",
    "TestReplace",
    "TestRequeue",
    "TestRequeueKeys",
    "TestReservations",
    "TestResume",
    "TestRoom",
    "TestSchedules",
    "TestSettle",
    "TestSignals",
    "TestStats",
    "TestSweep",
    "TestTraits",
    "TestUniqueBatch",
    "TestUniqueKeys",
    "TestUniqueRaces",
    "TestZombies",
]
