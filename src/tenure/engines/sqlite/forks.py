"""What a forked child must not touch.

SQLite keeps notes about open files for the whole process, and its locks belong to a process. A
forked child inherits the notes without the locks. So whatever it does with such a file, through an
inherited connection or through a new one, it does unlocked: its commits are lost when the parent
closes (seen). Since those notes are process-wide, so is this module; it is the only such place.
"""

from __future__ import annotations

import ctypes
import itertools
import os
from typing import NamedTuple, TypeVar

from tenure.errors import EngineUnavailable


class OpenFile(NamedTuple):
    """One connection to a file, by the process that made it."""

    device: int
    inode: int
    pid: int
    serial: int
    path: str


# Only ever changed by single steps that the interpreter makes whole: a lock could be held by a
# thread that a forked child does not have.
_open_files: set[OpenFile] = set()
_descriptors: set[int] = set()
_connections: dict[int, object] = {}
_serials = itertools.count()


def opened(path: str) -> OpenFile:
    """Note that this process has a connection to the file."""
    status = os.stat(path)
    file = OpenFile(status.st_dev, status.st_ino, os.getpid(), next(_serials), path)
    _open_files.add(file)
    return file


def closed(file: OpenFile) -> None:
    """Note that the connection is gone."""
    _open_files.discard(file)


def replaced(path: str) -> bool:
    """Whether this process has a file open that is not at its path any more."""
    try:
        status = os.stat(path)
    except OSError:
        return True
    place, pid = (status.st_dev, status.st_ino), os.getpid()
    return any(
        file.path == path and file.pid == pid and file[:2] != place for file in tuple(_open_files)
    )


def check(path: str) -> None:
    """Raise `EngineUnavailable` if a process that this one was forked from has the file open."""
    try:
        status = os.stat(path)
    except OSError:
        return
    place, pid = (status.st_dev, status.st_ino), os.getpid()
    for file in tuple(_open_files):
        if file[:2] == place and file.pid != pid:
            raise EngineUnavailable(
                f"{path} was opened by process {file.pid}, from which this one was forked; SQLite "
                f"does not survive a fork: open it after forking only, or start processes by spawn"
            )


def keep(descriptor: int) -> int:
    """Have forked children close their copy, so that a lock ends with the process that took it."""
    _descriptors.add(descriptor)
    return descriptor


def close(descriptor: int) -> None:
    """Close a descriptor that was kept."""
    _descriptors.discard(descriptor)
    os.close(descriptor)


T = TypeVar("T")


def keep_alive(connection: T) -> T:
    """Have forked children never let go of this object, which would close their copy."""
    _connections[id(connection)] = connection
    return connection


def let_go(connection: object) -> None:
    """Undo `keep_alive`, before closing."""
    _connections.pop(id(connection), None)


def _close_in_child() -> None:
    for connection in _connections.values():
        # One reference more than there are: not even the end of the interpreter frees it.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
    _connections.clear()
    for descriptor in _descriptors:
        os.close(descriptor)  # does not unlock: the parent's own copy stays open
    _descriptors.clear()


os.register_at_fork(after_in_child=_close_in_child)
