"""Datagrams between the processes that use one file.

Whoever listens binds a unix socket, a mailbox, in a folder beside the database. Its name tells what
its owner wants to hear, so that nobody is woken for nothing: `qc-00000402-5f3a1b` wants signals of
queues and cancels, of the queues whose bits are set. Whoever has written sends a datagram to each.

All of it is best effort, and nothing here ever waits: a full mailbox, a missing right or a system
without such sockets costs the time until its owner looks at the file by itself (`watch.py`).
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from threading import Lock
from typing import NamedTuple
from zlib import crc32

import msgspec

from tenure.engines.protocol import Signal, Topic
from tenure.engines.sqlite import forks

LARGEST_MAIL = 8192
"""Bytes of a datagram; what does not fit is said as `ANY`."""

_LETTERS = {Topic.QUEUE: "q", Topic.DONE: "d", Topic.CANCEL: "c"}
_NAME = re.compile(r"(?P<letters>[qdc]*)-(?P<queues>[0-9a-f]{8})-[0-9a-f]{6}")
_EVERY_QUEUE = 0xFFFFFFFF
_LONGEST_ADDRESS = 100
"""Bytes; the systems allow from 103 on."""
_SETTLED_AFTER = 100_000_000
"""Nanoseconds after which a folder's time of change tells reliably whether it changed again."""
_READS = 50
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Signal]).decode
_SOMETHING = [Signal(Topic.ANY)]

Receive = Callable[[Iterable[Signal]], None]


class Address(NamedTuple):
    """A mailbox, and what its owner wants to hear."""

    name: str
    letters: str = ""
    queues: int = _EVERY_QUEUE

    @classmethod
    def make(cls, topics: Iterable[Topic], queues: Iterable[str] | None) -> Address:
        letters = "".join(letter for topic, letter in _LETTERS.items() if topic in set(topics))
        mask = _EVERY_QUEUE
        if queues is not None:
            mask = 0
            for queue in queues:
                mask |= _bit(queue)
        return cls(f"{letters}-{mask:08x}-{secrets.token_hex(3)}", letters, mask)

    @classmethod
    def parse(cls, name: str) -> Address | None:
        """None for a file that is no mailbox (yet)."""
        match = _NAME.fullmatch(name)
        return match and cls(name, match["letters"], int(match["queues"], 16))

    def wants(self, signal: Signal) -> bool:
        if signal.topic is Topic.ANY:
            return True
        if _LETTERS[signal.topic] not in self.letters:
            return False
        return signal.topic is not Topic.QUEUE or bool(self.queues & _bit(signal.key))


class Post:
    """The mailboxes of one file: makes our own and sends to those of others. From any thread."""

    def __init__(self, path: str) -> None:
        self.folder = f"{path}-wake"
        self.possible = _possible(self.folder)
        """Whether this system has what it takes."""
        self._own: frozenset[str] = frozenset()
        self._lock = Lock()
        self._socket: socket.socket | None = None
        self._turn = count(secrets.randbits(16))
        self._listed = 0
        self._changed = -1
        self._found: list[Address] = []

    def others(self) -> list[Address]:
        """The mailboxes that are not ours."""
        if not self.possible:
            return []
        with self._lock:
            try:
                self._look()
            except OSError:
                return []
            return [address for address in self._found if address.name not in self._own]

    def send(self, addresses: Sequence[Address], signals: Sequence[Signal], *, one: bool) -> None:
        """Tell the owners of mailboxes what they want to hear.

        `one`: of the signals about queues it is enough if one of them hears, each in its turn;
        another one is tried if that one does not take it.
        """
        with self._lock, suppress(OSError), _reachable(self.folder) as folder:
            if one:
                about = [signal for signal in signals if signal.topic is Topic.QUEUE]
                first = next(self._turn) % len(addresses)
                for address in (*addresses[first:], *addresses[:first]):
                    if self._tell(folder, address, about):
                        break
                signals = [signal for signal in signals if signal.topic is not Topic.QUEUE]
            for address in addresses:
                self._tell(folder, address, signals)

    @contextmanager
    def mailbox(
        self, topics: Iterable[Topic], queues: Iterable[str] | None, receive: Receive
    ) -> Iterator[None]:
        """Have what others send handed to `receive`, on the running event loop."""
        address = Address.make(topics, queues)
        loop, pid = asyncio.get_running_loop(), os.getpid()
        descriptor = self._bind(address.name) if self.possible else None
        if descriptor is None:
            yield
            return
        try:
            with suppress(NotImplementedError):  # an event loop without readers
                loop.add_reader(descriptor, _empty, descriptor, receive)
            yield
        finally:
            if pid == os.getpid():
                with suppress(NotImplementedError):
                    loop.remove_reader(descriptor)
                self._unbind(address.name, descriptor)

    def abandoned(self) -> list[str]:
        """The mailboxes whose owners were killed. Nothing is sent, and nothing removed."""
        if not self.possible:
            return []
        found = []
        with suppress(OSError), _reachable(self.folder) as folder:
            for name in sorted(filter(Address.parse, os.listdir(self.folder))):
                with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as asking:
                    try:
                        asking.connect(f"{folder}/{name}")
                    except ConnectionRefusedError:
                        found.append(name)
                    except OSError:
                        pass
        return found

    def close(self) -> None:
        """Let go of the sending socket; it comes back when it is needed."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def _look(self) -> None:
        """List the folder, unless nothing changed since it was listed."""
        changed = os.stat(self.folder).st_mtime_ns
        if changed == self._changed and self._listed - changed > _SETTLED_AFTER:
            return
        self._listed = time.time_ns()
        names = os.listdir(self.folder)
        self._found = [found for name in sorted(names) if (found := Address.parse(name))]
        self._changed = changed

    def _tell(self, folder: str, address: Address, signals: Iterable[Signal]) -> bool:
        """Whether the owner wants any of these signals and got them."""
        wanted = [signal for signal in signals if address.wants(signal)]
        if not wanted:
            return False
        mail = _encode(wanted)
        if len(mail) > LARGEST_MAIL:
            mail = _encode(_SOMETHING)
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)
        try:
            self._socket.sendto(mail, f"{folder}/{address.name}")
        except ConnectionRefusedError:  # its owner was killed
            with suppress(OSError):
                os.unlink(f"{folder}/{address.name}")
            return False
        except BlockingIOError:
            # Unread mail counts against the socket that sent it: go on with a fresh one, or the
            # full mailbox of one that stands still would keep us from telling the others.
            self._socket.close()
            self._socket = None
            return False
        except OSError:
            return False
        return True

    def _bind(self, name: str) -> int | None:
        """The descriptor of a new mailbox; None where there can be none."""
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._bind_in_folder(made, name)
        except OSError:
            made.close()
            return None
        made.setblocking(False)
        self._own |= {name}
        # As a bare descriptor, so that no object of a forked child closes it a second time.
        return forks.keep(made.detach())

    def _bind_in_folder(self, made: socket.socket, name: str) -> None:
        for attempt in count():
            try:
                with suppress(FileExistsError):
                    os.mkdir(self.folder)
                with _reachable(self.folder) as folder:
                    # Renamed into place: a sender must not find it before it can be sent to.
                    made.bind(f"{folder}/.{name[-6:]}")
                    os.rename(f"{folder}/.{name[-6:]}", f"{folder}/{name}")
                return
            except FileNotFoundError:  # whoever left last has just removed the folder
                if attempt >= 3:
                    raise

    def _unbind(self, name: str, descriptor: int) -> None:
        with suppress(OSError):
            os.unlink(f"{self.folder}/{name}")
        forks.close(descriptor)
        self._own -= {name}
        with suppress(OSError):
            os.rmdir(self.folder)  # refused while there are others


def _possible(folder: str) -> bool:
    return hasattr(socket, "AF_UNIX") and (_is_short(folder) or os.path.isdir("/proc/self/fd"))


def _is_short(folder: str) -> bool:
    return len(os.fsencode(folder)) < _LONGEST_ADDRESS - 32  # less the name of a socket


def _bit(queue: str) -> int:
    return int(1 << (crc32(queue.encode("utf-8", "surrogatepass")) & 31))


@contextmanager
def _reachable(folder: str) -> Iterator[str]:
    """A path to the folder that is short enough for the address of a socket."""
    if _is_short(folder):
        yield folder
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _empty(descriptor: int, receive: Receive) -> None:
    """Read what is in a mailbox; for an event loop, which calls again if something is left."""
    heard: list[Signal] = []
    for _ in range(_READS):
        try:
            mail = os.read(descriptor, LARGEST_MAIL)
        except OSError:
            break
        try:
            heard += _decode(mail)
        except msgspec.MsgspecError:
            heard += _SOMETHING
    receive(heard)
