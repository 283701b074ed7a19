"""A small lease service over HTTP, for clients of other people: one lease per request.

    PATCH /lease/<receipt>   {"seconds": n}   ->  200 {"seconds": granted}

It listens on a free port of the loopback, in a thread of its own, measures leases with the clock it
is given, and fails as it is told: a status with headers, a reset, or no answer at all.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Mapping
from email.utils import formatdate
from types import MappingProxyType
from typing import Any, NamedTuple

from tests.leases.kit import ManualClock

RESET = "reset"
SILENCE = "silence"


class Fault(NamedTuple):
    """What to do to a request instead of serving it."""

    status: int
    headers: Mapping[str, str] = MappingProxyType({})


class HttpError(Exception):
    """What the clients below raise; shaped like the exceptions of common HTTP clients."""

    def __init__(self, response: Response) -> None:
        self.response = response
        super().__init__(f"status {response.status_code}")


class Response(NamedTuple):
    status_code: int
    headers: dict[str, str]
    body: bytes


class Asked(NamedTuple):
    receipt: str
    seconds: float
    authorization: str
    at: float


class HttpService:
    """Started by `with`; thread-safe as far as tests need it."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.until: dict[str, float] = {}
        self.settled: set[str] = set()
        self.faults: deque[Fault | str] = deque()
        self.asked: list[Asked] = []
        self.password = "one"
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> HttpService:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def grant(self, receipt: str, seconds: float = 300.0) -> str:
        self.until[receipt] = self.clock.now + seconds
        return receipt

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _read(reader)) is not None:
                if not await self._answer(*request, writer):
                    return
        finally:
            writer.close()

    async def _answer(
        self, path: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> bool:
        receipt = path.rsplit("/", 1)[1]
        seconds = json.loads(body)["seconds"]
        sender = headers.get("authorization", "")
        self.asked.append(Asked(receipt, seconds, sender, self.clock.now))
        fault = self.faults.popleft() if self.faults else None
        if fault == SILENCE:
            await asyncio.sleep(3600)
        if fault == RESET:
            sock: socket.socket = writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if isinstance(fault, Fault):
            await _write(writer, fault.status, fault.headers, {"error": "as told"})
            return True
        status = self._change(receipt, seconds, sender)
        await _write(writer, status, {}, {"seconds": seconds})
        return True

    def _change(self, receipt: str, seconds: float, sender: str) -> int:
        if sender != f"Bearer {self.password}":
            return 401
        if receipt in self.settled:
            return 410
        if receipt not in self.until:
            return 404
        if self.until[receipt] <= self.clock.now:
            return 409
        self.until[receipt] = self.clock.now + seconds
        return 200


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], bytes] | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode().split("\r\n")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return first.split(" ")[1], headers, body


async def _write(
    writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str], value: Any
) -> None:
    body = json.dumps(value).encode()
    given = {"Date": formatdate(usegmt=True), **headers, "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {text}\r\n" for name, text in given.items())
    writer.write(f"HTTP/1.1 {status} x\r\n{lines}\r\n".encode() + body)
    await writer.drain()


class Clients:
    """The same client twice: one that blocks, one that awaits."""

    def __init__(self, service: HttpService, timeout: float = 0.3) -> None:
        self.service = service
        self.timeout = timeout
        self.token = "one"
        self.refreshed = 0

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def renew(self, receipt: str, seconds: float) -> float:
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.service.port, timeout=self.timeout
        )
        try:
            body = json.dumps({"seconds": seconds})
            connection.request("PATCH", f"/lease/{receipt}", body, self._headers())
            response = connection.getresponse()
            return _granted(Response(response.status, dict(response.getheaders()), response.read()))
        finally:
            connection.close()

    async def arenew(self, receipt: str, seconds: float) -> float:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.service.port)
        try:
            body = json.dumps({"seconds": seconds}).encode()
            headers = {**self._headers(), "Content-Length": str(len(body))}
            lines = "".join(f"{name}: {text}\r\n" for name, text in headers.items())
            writer.write(f"PATCH /lease/{receipt} HTTP/1.1\r\n{lines}\r\n".encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            answers = dict(line.split(": ", 1) for line in head[1:] if line)
            content = await reader.readexactly(int(answers["Content-Length"]))
            return _granted(Response(int(head[0].split(" ")[1]), answers, content))
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("the service hung up") from error
        finally:
            writer.close()

    def refresh(self) -> None:
        self.refreshed += 1
        self.token = self.service.password

    async def arefresh(self) -> None:
        self.refresh()


def _granted(response: Response) -> float:
    if response.status_code != 200:
        raise HttpError(response)
    return float(json.loads(response.body)["seconds"])
