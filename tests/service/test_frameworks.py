"""One module-level service inside the loops that frameworks make."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from tenure import QueueService


@pytest.fixture
def jobs(tmp_path: Path) -> QueueService:
    service = QueueService(f"sqlite:///{tmp_path}/site.db")

    @service.task
    async def greet(name: str) -> str:
        return f"hello, {name}"

    return service


def flask(jobs: QueueService) -> Flask:
    app = Flask("site")

    @app.get("/async/<name>")
    async def view(name: str) -> dict[str, Any]:
        handle = await jobs.enqueue("greet", name)
        return {"id": handle.id, "seen": len(await jobs.find())}

    @app.get("/sync/<name>")
    def plain(name: str) -> dict[str, Any]:
        return {"id": jobs.sync.enqueue("greet", name).id, "seen": len(jobs.sync.find())}

    return app


def test_async_views_of_flask_each_have_a_loop_of_their_own(jobs: QueueService) -> None:
    client = flask(jobs).test_client()
    seen = [client.get(f"/{kind}/{n}").get_json() for n in range(3) for kind in ("async", "sync")]
    assert [answer["seen"] for answer in seen] == [1, 2, 3, 4, 5, 6]
    assert len({answer["id"] for answer in seen}) == 6
    jobs.sync.close()


async def call(app: Any, scope: dict[str, Any], *events: str) -> list[str]:
    """Drive an ASGI application by hand through these events."""
    waiting = [{"type": event} for event in events]
    sent: list[str] = []

    async def receive() -> dict[str, Any]:
        return waiting.pop(0)

    async def send(event: dict[str, Any]) -> None:
        sent.append(event["type"])

    await app(scope, receive, send)
    return sent


def test_a_lifespan_opens_and_closes(jobs: QueueService) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        """What every ASGI framework does with a lifespan."""
        assert scope["type"] == "lifespan"
        await receive()
        async with jobs.lifespan(app):
            await send({"type": "lifespan.startup.complete"})
            await receive()
            assert jobs._life.begun
        await send({"type": "lifespan.shutdown.complete"})

    sent = asyncio.run(call(app, {"type": "lifespan"}, "lifespan.startup", "lifespan.shutdown"))
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert not jobs._life.begun


def test_a_notebook_awaits_and_is_told_not_to_block(jobs: QueueService) -> None:
    """Cells share one running loop: `await` works, the blocking face says why it does not."""

    async def cells() -> None:
        handle = await jobs.enqueue("greet", "Ada")
        with pytest.raises(RuntimeError, match="await the async method instead"):
            jobs.sync.find()
        await jobs.worker(burst=True).run()
        assert await handle.result(timeout=5) == "hello, Ada"
        await jobs.close()

    asyncio.run(cells())
