"""The application of the chaos tests on PostgreSQL: effects in the database of the jobs.

Each body writes an effect and ends its job in one transaction. A body that is told to dies by
SIGKILL at a chosen point, once, and with it the whole worker; a file tells that it has.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Literal

import asyncpg
import psycopg
import sqlalchemy
from sqlalchemy.orm import Session

from tenure import INJECTED, JobContext, QueueService

URL = os.environ.get("CHAOS_URL", "postgresql:///bank")
PLACE = URL.partition("?")[0]
EFFECT = "INSERT INTO bank.effects (job, token) VALUES ('{}', {})"

Point = Literal["", "written", "completed", "committed"]
"""Where to die: after the effect, after `complete_in`, after the commit."""

jobs = QueueService(URL)
_maker = sqlalchemy.create_engine(PLACE.replace("postgresql", "postgresql+psycopg", 1))


class Deadly:
    """The points of one body."""

    def __init__(self, ctx: JobContext, die: Point) -> None:
        self._die = die
        self._note = Path(f"died-{ctx.job_id}")

    def at(self, point: Point) -> None:
        if point == self._die and not self._note.exists():
            self._note.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@jobs.task(max_lapses=1000, max_attempts=3)
def by_psycopg(number: int, die: Point = "", *, ctx: JobContext = INJECTED) -> None:
    points = Deadly(ctx, die)
    with psycopg.connect(PLACE) as connection:
        connection.execute(EFFECT.format(ctx.job_id, ctx.token))
        points.at("written")
        ctx.complete_in_sync(connection, number)
        points.at("completed")
    points.at("committed")


@jobs.task(max_lapses=1000, max_attempts=3)
def by_sqlalchemy(number: int, die: Point = "", *, ctx: JobContext = INJECTED) -> None:
    points = Deadly(ctx, die)
    with Session(_maker) as session, session.begin():
        session.execute(sqlalchemy.text(EFFECT.format(ctx.job_id, ctx.token)))
        points.at("written")
        ctx.complete_in_sync(session, number)
        points.at("completed")
    points.at("committed")


@jobs.task(max_lapses=1000, max_attempts=3)
async def by_asyncpg(number: int, die: Point = "", *, ctx: JobContext = INJECTED) -> None:
    points = Deadly(ctx, die)
    connection = await asyncpg.connect(PLACE)
    try:
        async with connection.transaction():
            await connection.execute(EFFECT.format(ctx.job_id, ctx.token))
            points.at("written")
            await ctx.complete_in(connection, number)
            points.at("completed")
    finally:
        await connection.close()
    points.at("committed")


TASKS = (by_psycopg, by_sqlalchemy, by_asyncpg)
