"""core/ids.py and the id source: RFC 9562 version 7, and an order that no clock can break."""

from __future__ import annotations

import functools
import itertools
import operator
import os
import random
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.clock import IdSource, SystemClock, SystemRandom
from tenure.core.ids import uuid7
from tests.core.rows import NOW


@given(
    ms=st.integers(0, 2**48 - 1), counter=st.integers(0, 2**26 - 1), tail=st.integers(0, 2**48 - 1)
)
def test_the_layout_is_that_of_version_7(ms, counter, tail):
    text = uuid7(ms, counter, tail)
    value = uuid.UUID(text)
    assert str(value) == text
    assert value.version == 7
    assert value.variant == uuid.RFC_4122
    assert value.int >> 80 == ms
    assert (value.int >> 64 & 0xFFF) << 14 | (value.int >> 48 & 0x3FFF) == counter
    assert value.int & (2**48 - 1) == tail


def test_a_known_id():
    assert uuid7(0x017F22E279B0, 0xCC3 << 14 | 0x18C4, 0xDC0C0C07398F) == (
        "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"  # the example in RFC 9562, appendix A.6
    )


@given(st.tuples(st.integers(0, 2**48 - 1), st.integers(0, 2**26 - 1)))
def test_text_sorts_by_time_and_then_by_counter(pair):
    ms, counter = pair
    text = uuid7(ms, counter, 0)
    if counter:
        assert uuid7(ms, counter - 1, 2**48 - 1) < text
    if ms:
        assert uuid7(ms - 1, 2**26 - 1, 2**48 - 1) < text


def source(times: Iterable[int], bits: Callable[[int], int] | None = None) -> IdSource:
    ticks = iter(times)
    return IdSource(lambda: next(ticks), bits or random.Random(1).getrandbits)


def increasing(ids: list[str]) -> bool:
    return all(a < b for a, b in itertools.pairwise(ids))


def test_a_hundred_thousand_in_one_millisecond():
    make = IdSource(lambda: NOW)
    ids = [make() for _ in range(100_000)]
    assert increasing(ids)
    assert {uuid.UUID(i).int >> 80 for i in ids} == {NOW // 1000}


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=200))
def test_a_clock_that_jumps(steps):
    make = source([NOW + 1000 * step for step in steps])
    assert increasing([make() for _ in steps])


@pytest.mark.parametrize("start", [-5, 0, 999])
def test_a_clock_at_or_before_the_epoch(start):
    make = source([start] * 3)
    ids = [make() for _ in range(3)]
    assert increasing(ids)
    assert all(uuid.UUID(i).version == 7 for i in ids)


def test_a_used_up_counter_borrows_the_next_millisecond():
    def full(bits):
        return (1 << 26) - 2 if bits == 25 else 5  # so that two ids use the counter up

    make = source([NOW] * 5, full)
    ids = [make() for _ in range(5)]
    assert increasing(ids)
    assert [(uuid.UUID(i).int >> 80) - NOW // 1000 for i in ids] == [0, 0, 1, 1, 2]


def test_half_of_the_counter_is_left_for_a_burst():
    asked = []

    def bits(count):
        asked.append(count)
        return (1 << count) - 1

    source([NOW], bits)()
    assert asked == [25, 48]


def test_sources_do_not_meet():
    makers = [IdSource(lambda: NOW) for _ in range(50)]
    ids = {make() for make in makers for _ in range(200)}
    assert len(ids) == 10_000


def test_random_bits_are_in_range_and_use_all_of_it():
    bits = SystemRandom()
    drawn = [bits(k) for k in [25, 48] * 2000]
    assert all(0 <= value < 1 << k for value, k in zip(drawn, [25, 48] * 2000, strict=True))
    assert len(set(drawn)) > 3990
    for k, values in ((25, drawn[::2]), (48, drawn[1::2])):
        assert functools.reduce(operator.or_, values) == (1 << k) - 1


def test_a_forked_child_draws_other_bits():
    bits = SystemRandom()
    bits(48)  # so that some are there, taken in advance
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, str(bits(48)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        assert int(answer.read()) != bits(48)


def test_threads_do_not_meet_within_a_source():
    make = IdSource(lambda: NOW)
    with ThreadPoolExecutor(8) as pool:
        batches = list(pool.map(lambda _: [make() for _ in range(2000)], range(8)))
    assert len({i for batch in batches for i in batch}) == 16_000
    assert all(increasing(batch) for batch in batches)


def test_the_system_clock_reads_time_in_the_units_it_names():
    clock = SystemClock()
    assert abs(clock.time_us() - time.time() * 1e6) < 5e6
    assert clock.monotonic() <= clock.monotonic()
    assert uuid.UUID(IdSource()()).version == 7
