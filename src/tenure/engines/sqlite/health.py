"""What endangers a file, or points at something that went wrong with it."""

from __future__ import annotations

import os
import sqlite3
import stat

from tenure.core.fleet import Finding
from tenure.engines.sqlite import forks
from tenure.engines.sqlite.checkpoints import LARGE
from tenure.engines.sqlite.connection import Place
from tenure.engines.sqlite.database import ReadOnly
from tenure.engines.sqlite.mail import Post
from tenure.engines.sqlite.reader import Reader
from tenure.engines.sqlite.thread import Call, Transaction

SAFE_SQLITE = (3, 51, 3)
"""From here on a checkpoint can't meet a commit in a way that loses a part of the log."""

LOG_ALARM = 4 * LARGE
"""Bytes of the log that nobody should see."""

WASTE_ALARM = 64 * 1024 * 1024
"""Bytes of the file that hold nothing, if they are more than half of it."""

CHECK_TIMEOUT = 3600.0
"""Seconds after which a check gives up."""

_SIDE_FILES = ("-wal", "-shm", "-gate", "-turn")
_QUICK_CHECK_SHOWN = 3


def examine(tx: Transaction, path: str) -> list[Finding]:
    """What a quick look at the file, its settings and the files beside it shows."""
    found = [
        _version(sqlite3.sqlite_version_info),
        _mode(tx, path),
        _identity(path),
        _names(path),
        _journal(path),
        _log(path),
        _waste(tx, path),
        *_rights(path),
        _mailboxes(path),
    ]
    return [finding for finding in found if finding is not None]


async def check(place: Place) -> list[Finding]:
    """Whether the file is sound: reads all of it, on a connection of its own."""
    reader = Reader(lambda: ReadOnly(place), lambda: 0, CHECK_TIMEOUT)
    reader.start()
    call = Call("check", lambda tx, now: _check(tx, place.path), None, 1)
    reader.submit(call)
    try:
        found: list[Finding] = await call.future
        return found
    finally:
        reader.stop()


def _check(tx: Transaction, path: str) -> list[Finding]:
    lines = [row[0] for row in tx.execute("PRAGMA quick_check(10)")]
    if lines == ["ok"]:
        return []
    shown = "; ".join(" ".join(line.split()) for line in lines[:_QUICK_CHECK_SHOWN])
    text = f"{path} is damaged: {shown}"
    remedy = "stop all workers, keep a copy of all its files, and restore a backup or let "
    return [Finding("file-damaged", text, remedy + "`sqlite3 FILE .recover` save what it can")]


def _version(version: tuple[int, ...]) -> Finding | None:
    if version >= SAFE_SQLITE:
        return None
    number, safe = (".".join(map(str, v)) for v in (version, SAFE_SQLITE))
    text = f"SQLite {number} has a rare race that can damage a file; {safe} has not"
    remedy = "let nothing but tenure write to the file, which avoids that race; or use a Python "
    return Finding("sqlite-old", text, remedy + f"with SQLite {safe} or newer", problem=False)


def _mode(tx: Transaction, path: str) -> Finding | None:
    mode = tx.execute("PRAGMA journal_mode")[0][0]
    if mode == "wal":
        return None
    text = f"{path} is in journal mode {mode!r}, so readers and writers block each other"
    return Finding("file-not-wal", text, "stop whatever changed it; opening it again repairs it")


def _identity(path: str) -> Finding | None:
    if not forks.replaced(path):
        return None
    text = f"{path} was removed or replaced while it was open: what is written here is lost"
    return Finding("file-replaced", text, "restart all processes that use the file")


def _names(path: str) -> Finding | None:
    try:
        names = os.stat(path).st_nlink
    except OSError:
        return None
    if names == 1:
        return None
    text = f"{path} has {names} names (hard links); whoever uses another one corrupts the file"
    return Finding("file-linked", text, "leave it one name; symbolic links do no harm")


def _journal(path: str) -> Finding | None:
    if not os.path.exists(f"{path}-journal"):
        return None
    text = f"{path}-journal is there: a program writes to the file without the write-ahead log"
    return Finding("file-journal", text, "find out which program that is")


def _log(path: str) -> Finding | None:
    try:
        size = os.stat(f"{path}-wal").st_size
    except OSError:
        return None
    if size <= LOG_ALARM:
        return None
    text = f"{path}-wal has {size // 1_000_000} MB: somebody keeps a transaction open that reads, "
    text += "or writes without letting tenure run checkpoints"
    return Finding(
        "log-large", text, "end that transaction; look for idle shells and reports", False
    )


def _waste(tx: Transaction, path: str) -> Finding | None:
    pages, free, size = (
        tx.execute(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")
    )
    if free * size <= WASTE_ALARM or 2 * free <= pages:
        return None
    text = f"{free * size // 1_000_000} MB of {path} hold nothing"
    remedy = "nothing, they are used again; or run `VACUUM` while no worker runs"
    return Finding("file-sparse", text, remedy, problem=False)


def _rights(path: str) -> list[Finding]:
    """Files that one of the users of the database cannot use, or that everybody can."""
    found = []
    try:
        main = os.stat(path)
    except OSError:
        return []
    for side in (f"{path}{suffix}" for suffix in _SIDE_FILES):
        try:
            status = os.stat(side)
        except OSError:
            continue
        if status.st_uid != main.st_uid:
            text = f"{side} belongs to another user ({status.st_uid}) than {path} ({main.st_uid})"
            remedy = "let one user run all processes, and give him all files beside the database"
            found.append(Finding("file-owner", text, remedy, problem=False))
    if stat.S_IMODE(main.st_mode) & stat.S_IWOTH:
        text = f"every user of this machine may write to {path}"
        remedy = f"chmod o-w {path}: whoever writes jobs there has them run by your workers"
        found.append(Finding("file-open-to-all", text, remedy, problem=False))
    return found


def _mailboxes(path: str) -> Finding | None:
    names = Post(path).abandoned()
    if not names:
        return None
    text = f"{len(names)} sockets in {path}-wake were left by processes that were killed"
    return Finding("sockets-left", text, "nothing: the next write removes them", problem=False)
