"""The whole suite, to be imported with `*` by the test module of an engine."""

from tenure.testing.conformance.cancel import TestCancel
from tenure.testing.conformance.claim import TestClaim
from tenure.testing.conformance.claim_arms import TestExpired, TestPromote
from tenure.testing.conformance.claim_lapsed import TestLapsed
from tenure.testing.conformance.concurrency import TestConcurrency
from tenure.testing.conformance.extend import TestExtend
from tenure.testing.conformance.ids import TestIdentity
from tenure.testing.conformance.insert import TestInsert
from tenure.testing.conformance.query import TestFind, TestGet, TestNextDue, TestStats
from tenure.testing.conformance.requeue import TestRequeue
from tenure.testing.conformance.settle import TestSettle
from tenure.testing.conformance.signals import TestSignals
from tenure.testing.conformance.sweep import TestSweep
from tenure.testing.conformance.zombies import TestZombies

__all__ = [
    "TestCancel",
    "TestClaim",
    "TestConcurrency",
    "TestExpired",
    "TestExtend",
    "TestFind",
    "TestGet",
    "TestIdentity",
    "TestInsert",
    "TestLapsed",
    "TestNextDue",
    "TestPromote",
    "TestRequeue",
    "TestSettle",
    "TestSignals",
    "TestStats",
    "TestSweep",
    "TestZombies",
]
