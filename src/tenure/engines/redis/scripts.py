"""The Lua scripts: one for each operation, in a file of its own, with the parts that they share."""

from __future__ import annotations

import hashlib
import re
from functools import cache

from tenure.core.durations import LAST_INSTANT
from tenure.core.job import RANK_STEP
from tenure.core.limits import PARKED_MAX
from tenure.engines.redis.rows import BODY_HEAD, FIELDS, INSIDE
from tenure.engines.sql import read_text

_INCLUDE = re.compile(r"^-- include: (?P<parts>.+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


class Script:
    """One script: its text, and the name under which a server remembers it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text.encode()
        self.sha = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()

    def command(self, prefix: bytes, now: int | None, arguments: bytes) -> bytes:
        """The command that runs it, if the server knows it; as it goes over the wire."""
        return packed(b"EVALSHA", self.sha, b"1", prefix, _instant(now), arguments)

    def whole(self, prefix: bytes, now: int | None, arguments: bytes) -> bytes:
        """The command with the full text, by which the server learns it."""
        return packed(b"EVAL", self.text, b"1", prefix, _instant(now), arguments)


@cache
def script(name: str) -> Script:
    """The script of a name, with the parts that it includes in front of it."""
    own = _source(f"scripts/{name}.lua")
    found = _INCLUDE.search(own)
    parts = found["parts"].split() if found else []
    texts = [_source(f"scripts/parts/{part}.lua") for part in parts]
    text = _COMMENT.sub("", "\n".join((_fields(), *texts, own)))
    # Written into the text: as locals, each function that is made would look for those it uses.
    constants = _constants()
    names = re.compile(rf"\b(?:{'|'.join(constants)})\b")
    return Script(name, names.sub(lambda found: constants[found[0]], text))


def packed(*values: bytes) -> bytes:
    """A command as it goes over the wire."""
    parts = [b"*%d\r\n" % len(values)]
    for value in values:
        parts += (b"$%d\r\n" % len(value), value, b"\r\n")
    return b"".join(parts)


def _instant(now: int | None) -> bytes:
    return b"" if now is None else b"%d" % now


def _source(path: str) -> str:
    return read_text("tenure.engines.redis", path)


def _fields() -> str:
    quoted = ", ".join(f'"{name}"' for name in FIELDS)
    return f"local FIELDS = {{{quoted}}}"


def _constants() -> dict[str, str]:
    """What scripts have to know of `core`, and the places of fields, by the names they use."""
    places = {name.upper(): str(place) for place, name in enumerate(FIELDS, 1)}
    return places | {
        "BODY": str(len(FIELDS) + 1),
        "RESULT": str(len(FIELDS) + 2),
        "BODY_HEAD": str(BODY_HEAD),
        "INSIDE": str(len(INSIDE)),
        "RANK_STEP": str(RANK_STEP),
        "LAST_INSTANT": f'"{LAST_INSTANT}"',
        "PARKED_MAX": str(PARKED_MAX),
    }
