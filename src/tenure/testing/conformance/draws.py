"""What the steps of a history are drawn from. Few draws each: they are what a history costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st

from tenure.core.durations import SECOND
from tenure.core.job import PRIORITY_MAX, PRIORITY_MIN
from tenure.core.limits import NO_LIMITS, Limits, Rate
from tenure.core.outcomes import Cancelled, Completed, Errored, Released, ReleaseReason, Snoozed
from tenure.core.retry import RetryPolicy
from tenure.engines.protocol import ALL_ARMS, Arm
from tenure.testing.conformance.kit import FINISHED, FOREVER, RAISE, REPLACE, RETURN, STARTED, boom
from tenure.testing.conformance.steps import KEYS, OWNERS, QUEUES, TASKS, Wish

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., None])


def some(items: tuple[T, ...]) -> st.SearchStrategy[tuple[T, ...]]:
    """A few of these items, mostly all."""
    whole = [items, items, *((item,) for item in items)]
    return st.sampled_from([*whole, tuple(reversed(items))])


MANY = st.sampled_from((1, 2, 3, 4, 5, 0))
BACK = st.integers(0, 11)
IDS = st.lists(st.integers(-1, 15), min_size=1, max_size=4)
OWNER = st.sampled_from(OWNERS)
LEASE = st.sampled_from((30 * SECOND, 5 * SECOND, SECOND))
TIMES: list[dict[str, Any]] = [
    *({}, {}, {}, {}, {"delay": 1}, {"delay": SECOND}, {"delay": 10 * SECOND}),
    *({"expires_in": SECOND}, {"expires_in": 60 * SECOND}),
    {"delay": SECOND, "expires_in": 5 * SECOND},
]
BUDGETS: list[dict[str, Any]] = [
    {"max_attempts": 3},
    {"max_attempts": 1},
    {"max_attempts": 2, "max_lapses": 0},
    {"max_attempts": 3, "max_lapses": 1, "max_interruptions": 0},
    {"max_attempts": 2, "retry": RetryPolicy(base=0.5, factor=2.0, cap=4.0)},
]
PRIORITIES = st.sampled_from((0, 0, 1, -1, PRIORITY_MIN, PRIORITY_MAX))
AGAIN = st.sampled_from((None, None, None, None, None, 0, 3))
KEYED: list[dict[str, Any]] = [
    {"unique_key": key, "unique_until": until, "on_conflict": policy}
    for key, until in ((KEYS[0], FINISHED), (KEYS[1], FOREVER), (KEYS[0], STARTED))
    for policy in (RETURN, RETURN, REPLACE, RAISE)
]
POLICY = st.sampled_from((RETURN, RETURN, REPLACE, RAISE))
FLOW: list[dict[str, Any]] = [
    *[{}] * 3,
    {"concurrency_key": "c"},
    {"concurrency_key": "d"},
    {"rate_key": "r"},
    {"concurrency_key": "c", "rate_key": "r"},
    {"fair_key": "f"},
    {"fair_key": "g", "concurrency_key": "c"},
]
MORE = st.builds(
    lambda times, budget, flow: times | budget | flow,
    st.sampled_from(TIMES),
    st.sampled_from(BUDGETS),
    st.sampled_from(FLOW),
)
LIMITS = st.sampled_from(
    [
        Limits(key_concurrency=1, key_rate=Rate(1, 30 * SECOND)),
        Limits(key_rate=Rate(1, 5 * SECOND)),
        None,
        NO_LIMITS,
        Limits(key_concurrency=1),
        Limits(key_concurrency=2, key_rate=Rate(1, 5 * SECOND)),
        Limits(key_concurrency=1, rate=Rate(2, SECOND, 2)),
        Limits(concurrency=1, key_rate=Rate(1, SECOND, 2)),
        Limits(concurrency=3, key_concurrency=1, rate=Rate(1, SECOND, 3), key_rate=Rate(3, SECOND)),
        Limits(rate=Rate(1, 30 * SECOND)),
    ]
)
WISH = st.builds(Wish, st.sampled_from(TASKS), st.sampled_from(QUEUES), PRIORITIES, MORE, AGAIN)
FLOWING = st.builds(
    lambda wish, keys: wish._replace(queue="a", more=wish.more | keys, again=None),
    WISH,
    st.sampled_from(({"rate_key": "r"}, {"concurrency_key": "c", "rate_key": "r"})),
)
KEYED_WISH = st.builds(
    lambda wish, key: wish._replace(more=wish.more | key), WISH, st.sampled_from(KEYED)
)
OUTCOMES = st.sampled_from(
    [
        Completed(b'"done"'),
        Completed(),
        Errored(boom()),
        Errored(boom("at once"), after=0),
        Errored(boom("later"), after=SECOND),
        Errored(boom("never"), retryable=False),
        Snoozed(0),
        Snoozed(SECOND),
        Snoozed(50 * SECOND),
        *(Released(reason) for reason in ReleaseReason),
        Cancelled(),
        Cancelled(boom("stop")),
    ]
)
FORGED = st.sampled_from(
    [*[{}] * 12, {"token": 1}, {"token": -1}, {"owner": "host:9:z"}, {"id": "nobody"}]
)
TICKETS = st.lists(st.tuples(BACK, FORGED), min_size=1, max_size=4)
ROOM = st.sampled_from(({}, {}, {"a": 0}, {"a": 1}, {"a": 2, "b": 1}))
ARMS = st.sampled_from([ALL_ARMS, ALL_ARMS, *(frozenset({arm}) for arm in Arm)])

ACTIONS: list[st.SearchStrategy[tuple[str, dict[str, Any]]]] = []


def action(weight: int, **draws: st.SearchStrategy[Any]) -> Callable[[F], F]:
    """Make a method of `History` a step, with arguments drawn from these, so often as weighted."""

    def mark(method: F) -> F:
        drawn = st.tuples(st.just(method.__name__), st.fixed_dictionaries(draws))
        ACTIONS.extend([drawn] * weight)
        return method

    return mark
