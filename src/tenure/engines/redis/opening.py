"""Making a store on its first use, and looking whether the server can keep it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenure.engines.redis.link import Asks
from tenure.errors import SchemaError

VERSION = 1
"""Of the keys and what they hold; see docs/reference/redis-keys.md."""

MIN_LIBRARY = 1
"""The least version of the keys that a library must know to work on a store that we make."""

OLDEST = {"valkey": (7, 2), "redis": (6, 2)}


async def make(link: Asks) -> int:
    """Make the store, if there is none, and check it. Raises `SchemaError`; returns the version."""
    _check_server(await info(link, b"server"))
    _, version, least = await link.run("open", [str(VERSION), str(MIN_LIBRARY)], repeat=True)
    if int(least) > VERSION:
        raise SchemaError(
            f"{link.place.shown} was made by a newer version of tenure, which asks for one that "
            f"knows version {int(least)} of its keys; this one knows {VERSION}"
        )
    return int(version)


async def info(link: Asks, *sections: bytes) -> Mapping[str, str]:
    """What the server says of itself."""
    found: dict[str, str] = {}
    for section in sections:
        text: Any = await link.command(b"INFO", section)
        for line in text.decode().splitlines():
            name, colon, value = line.partition(":")
            if colon:
                found[name] = value
    return found


def product(server: Mapping[str, str]) -> tuple[str, tuple[int, ...]]:
    """Which product a server is, and its version."""
    name = "valkey" if "valkey_version" in server else "redis"
    text = server.get(f"{name}_version", "0")
    numbers = (part for part in text.split(".")[:2] if part.isdigit())
    return name, tuple(map(int, numbers))


def _check_server(server: Mapping[str, str]) -> None:
    name, version = product(server)
    if version < OLDEST[name]:
        wanted = ".".join(map(str, OLDEST[name]))
        raise SchemaError(
            f"{name.title()} {wanted} or newer is needed; this is {'.'.join(map(str, version))}"
        )
