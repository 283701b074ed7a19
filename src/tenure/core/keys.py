"""Unique keys that are made of a task, or of a task and its arguments.

The same call gives the same key in every process and on every version of Python: canonical JSON
(members sorted, no spaces), SHA-256, and a version that tells later formats apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import msgspec

from tenure.core import codec
from tenure.errors import ConfigurationError, IdentityTooLarge, PayloadError

VERSION = 1
KEY_MAX = 512
"""The longest unique key, in bytes of UTF-8."""

DEFAULT_IDENTITY_MAX = 64 * 1024
"""How many bytes of canonical JSON a key may be made of, unless settings say otherwise."""

_canonical = msgspec.json.Encoder(order="sorted")


def task_key(task: str) -> str:
    """The key of a task, whatever its arguments."""
    return _key("task", {"task": task, "version": VERSION})


def arguments_key(task: str, arguments: Mapping[str, Any], limit: int) -> str:
    """The key of a task with these arguments, which are plain JSON values.

    Raises `IdentityTooLarge` if their canonical JSON has more than `limit` bytes.
    """
    values = {"arguments": arguments, "task": task, "version": VERSION}
    return _key("arguments", values, limit)


def check_key(value: Any, what: str) -> str:
    """`value` itself if it can be a unique key; else `ConfigurationError` naming `what`."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} must be text, not {type(value).__name__}")
    try:
        size = len(codec.check_text(value, what).encode())
    except PayloadError as error:
        raise ConfigurationError(str(error)) from error
    if not 1 <= size <= KEY_MAX:
        raise ConfigurationError(f"{what} must have 1 to {KEY_MAX} bytes, not {size}")
    return value


def _key(kind: str, values: Mapping[str, Any], limit: int | None = None) -> str:
    data = _canonical.encode(values)
    if limit is not None and len(data) > limit:
        raise IdentityTooLarge(len(data), limit)
    return f"{kind}:v{VERSION}:{hashlib.sha256(data).hexdigest()}"
