"""The double of a transaction pooler for PostgreSQL, as PgBouncer in its transaction mode is one.

A client has a session of the server for one transaction, and for the next one another. What was
set, prepared or listened to in a session stays there, for whoever gets it next.
"""

from __future__ import annotations

import asyncio
import itertools
import struct
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.servers.proxy import Proxy

SESSIONS = 6
_SSL, _GSS, _CANCEL = 80877103, 80877104, 80877102
_IDLE = b"I"
_numbers = itertools.count(1)


class Inbox:
    """Whole messages as they come, one by one; waiting for one may be given up without loss."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._messages: asyncio.Queue[bytes] = asyncio.Queue()
        self._task = asyncio.ensure_future(self._read(reader))

    async def get(self) -> bytes:
        """The next message. Raises `EOFError` at the end."""
        message = await self._messages.get()
        if not message:
            self._messages.put_nowait(b"")
            raise EOFError
        return message

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                self._messages.put_nowait(await _read(reader))
        except (OSError, asyncio.IncompleteReadError):
            self._messages.put_nowait(b"")


class Session(NamedTuple):
    """A session of the server."""

    inbox: Inbox
    writer: asyncio.StreamWriter
    key: bytes
    greeting: bytes


class Pooler(Proxy):
    """Stands in front of the server that `url` names; lets in anybody, as the user of that URL."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        super().__init__(parts.port)
        self._user = parts.username or ""
        self._password = parts.password or ""
        self._free: dict[str, _Sessions] = {}
        self._running: dict[bytes, Session | None] = {}
        self.transactions = 0
        """How often a session was lent."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parameters = await self._startup(reader, writer)
        if parameters is None:
            return
        free = await self._sessions(parameters["database"])
        key = struct.pack("!II", next(_numbers), 0)
        session = await self._lent(free)
        writer.write(session.greeting + _message(b"K", key) + _message(b"Z", _IDLE))
        free.put_nowait(session)
        self._running[key] = None
        try:
            await self._transactions(Inbox(reader), writer, free, key)
        except EOFError:
            pass
        finally:
            del self._running[key]

    async def _startup(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Mapping[str, str] | None:
        """The parameters of a client; None if it wanted something else, which is done."""
        while True:
            length, code = struct.unpack("!II", await reader.readexactly(8))
            body = await reader.readexactly(length - 8)
            if code in (_SSL, _GSS):
                writer.write(b"N")
            elif code == _CANCEL:
                await self._cancel(body)
                return None
            else:
                words = [word.decode() for word in body.split(b"\0")]
                return dict(zip(words[::2], words[1::2], strict=False))

    async def _cancel(self, key: bytes) -> None:
        session = self._running.get(key)
        if session is not None:
            _, writer = await asyncio.open_connection("127.0.0.1", self._target)
            writer.write(struct.pack("!II", 16, _CANCEL) + session.key)
            await writer.drain()
            writer.close()

    async def _transactions(
        self, inbox: Inbox, writer: asyncio.StreamWriter, free: _Sessions, key: bytes
    ) -> None:
        """Lend a session to this client for each of its transactions."""
        while True:
            first = await inbox.get()
            if first[:1] == b"X":
                return
            session = await self._lent(free)
            self.transactions += 1
            self._running[key] = session
            try:
                await self._transaction(inbox, writer, session, first)
            except BaseException:
                session.writer.close()  # in the middle of something: nobody may have it
                await self._add(free)
                raise
            finally:
                self._running[key] = None
            free.put_nowait(session)

    async def _transaction(
        self, inbox: Inbox, writer: asyncio.StreamWriter, session: Session, first: bytes
    ) -> None:
        owed = 0  # answers that end with ReadyForQuery

        def send(message: bytes) -> None:
            nonlocal owed
            owed += message[:1] in (b"Q", b"S")
            session.writer.write(message)

        send(first)
        asking = asyncio.ensure_future(inbox.get())
        answering = asyncio.ensure_future(session.inbox.get())
        try:
            while True:
                await asyncio.wait({asking, answering}, return_when=asyncio.FIRST_COMPLETED)
                await self._flowing.wait()
                while asking.done():
                    send(asking.result())
                    asking = asyncio.ensure_future(inbox.get())
                    await asyncio.sleep(0)
                if answering.done():
                    message = answering.result()
                    writer.write(message)
                    owed -= message[:1] == b"Z"
                    if message[:1] == b"Z" and message[-1:] == _IDLE and not owed:
                        return
                    answering = asyncio.ensure_future(session.inbox.get())
        finally:
            asking.cancel()
            answering.cancel()

    async def _lent(self, free: _Sessions) -> Session:
        """The next session, but for those that were cut meanwhile."""
        while (session := await free.get()).writer.is_closing():
            await self._add(free)
        return session

    async def _sessions(self, database: str) -> _Sessions:
        if database not in self._free:
            free = self._free[database] = _Sessions(database)
            for _ in range(SESSIONS):
                await self._add(free)
        return self._free[database]

    async def _add(self, free: _Sessions) -> None:
        free.put_nowait(await self._session(free.database))

    async def _session(self, database: str) -> Session:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers.add(writer)
        words = ["user", self._user, "database", database, "client_encoding", "UTF8", ""]
        body = struct.pack("!I", 3 << 16) + "\0".join(words).encode() + b"\0"
        writer.write(struct.pack("!I", len(body) + 4) + body)
        greeting, key = b"", b""
        while True:
            message = await _read(reader)
            kind, body = message[:1], message[5:]
            if kind == b"R" and body[:4] == b"\0\0\0\3":
                writer.write(_message(b"p", self._password.encode() + b"\0"))
            elif kind in (b"R", b"S"):
                greeting += message
            elif kind == b"K":
                key = body
            elif kind == b"Z":
                return Session(Inbox(reader), writer, key, greeting)
            elif kind == b"E":
                raise OSError(body.decode(errors="replace"))


class _Sessions(asyncio.Queue[Session]):
    """In turns, so that a client hardly ever gets the same one twice."""

    def __init__(self, database: str) -> None:
        super().__init__()
        self.database = database


async def _read(reader: asyncio.StreamReader) -> bytes:
    """One message, with its kind and length."""
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!I", head[1:])
    return head + await reader.readexactly(length - 4)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body
