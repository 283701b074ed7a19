"""What Django's connections do beside `atomic`, in the plain threads that they are made for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connections, transaction
from django.db.utils import DatabaseError

from tenure import QueueService
from tenure.engines.postgres import place_of
from tests.engines.callers import Django
from tests.servers.schemas import Schemas


@pytest.fixture
def store(postgres_schemas: Schemas) -> Iterator[str]:
    """The URL of an empty store."""
    borrowed = postgres_schemas.borrow()
    yield borrowed.url
    borrowed.give_back()


@pytest.fixture
def jobs(store: str) -> Iterator[QueueService]:
    service = QueueService(store)

    @service.task
    def ship(order: int) -> int:
        return order

    yield service
    service.sync.close()


@pytest.fixture
def own(store: str) -> Iterator[Django]:
    made = Django(place_of(store).conninfo)
    asyncio.run(made.open())
    connections["own"] = made.given  # in this thread, and not only on the loop that has ended
    yield made
    made.given.close()


def test_a_commit_tells_other_processes_without_an_event_loop(jobs, own, store):
    place = place_of(store)
    with psycopg.connect(place.conninfo, autocommit=True) as look:
        look.execute(f"LISTEN {place.channel}")
        with transaction.atomic("own"):
            handle = jobs.sync.using(own.given).enqueue("ship", 1)
        assert handle.created
        [heard] = look.notifies(timeout=20, stop_after=1)
        assert "default" in heard.payload


def test_transactions_that_are_managed_by_hand_wake_on_leaving(jobs, own):
    own.given.set_autocommit(False)
    with jobs.sync.using(own.given) as joined:
        handle = joined.enqueue("ship", 1)
        assert joined._joined._signals
        own.given.commit()
    assert not joined._joined._signals
    assert handle.job().state == "pending"
    own.given.set_autocommit(True)


def test_a_connection_of_another_thread_is_refused(jobs, own):
    with ThreadPoolExecutor(1) as pool, pytest.raises(DatabaseError, match="same thread"):
        pool.submit(jobs.sync.using(own.given).enqueue, "ship", 1).result(30)
