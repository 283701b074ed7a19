"""Receipts: a held lease as a string, with which another thread or process can end or prolong it.

A receipt holds no secret: the job's id, and the token and owner of the claim. It is worth something
only for as long as these match the row.
"""

from __future__ import annotations

import binascii
import json
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import NamedTuple

from tenure.errors import InvalidReceipt

_VERSION = "tr1"
_LONGEST = 4096


class Receipt(NamedTuple):
    """What a receipt says."""

    id: str
    token: int
    owner: str


def write(receipt: Receipt) -> str:
    """The receipt as text: letters, digits and `-_.` only."""
    body = json.dumps(list(receipt), separators=(",", ":")).encode()
    text = urlsafe_b64encode(body).rstrip(b"=").decode()
    return f"{_VERSION}.{text}.{_checksum(text)}"


def read(text: str) -> Receipt:
    """What a receipt says. Raises `InvalidReceipt` if it is none, or was changed on its way."""
    if not isinstance(text, str):
        raise InvalidReceipt(f"a receipt is a string, not {type(text).__name__}")
    version, dot, rest = text.partition(".")
    body, _, checksum = rest.partition(".")
    if not dot or len(text) > _LONGEST:
        raise InvalidReceipt("this is not a receipt of a lease")
    if version != _VERSION:
        raise InvalidReceipt(
            f"a receipt of format {version[:8]!r}; this version of tenure reads {_VERSION!r}"
        )
    if checksum != _checksum(body):
        raise InvalidReceipt("the receipt was changed or cut off on its way")
    try:
        job_id, token, owner = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, TypeError, binascii.Error):
        raise InvalidReceipt("the receipt cannot be read") from None
    whole = isinstance(token, int) and not isinstance(token, bool)
    if not (isinstance(job_id, str) and whole and isinstance(owner, str)):
        raise InvalidReceipt("the receipt cannot be read")
    return Receipt(job_id, token, owner)


def _checksum(body: str) -> str:
    return f"{zlib.crc32(f'{_VERSION}.{body}'.encode()):08x}"
