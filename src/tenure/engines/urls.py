"""URLs of stores, fit to be shown."""

from __future__ import annotations

from urllib.parse import urlsplit

_HIDDEN = "***"
_SECRET_WORDS = ("password", "passwd", "secret", "token", "key")


def redact(url: str) -> str:
    """The URL with its passwords hidden, fit to be shown."""
    parts = urlsplit(url)
    netloc = parts.netloc
    if "@" in netloc:
        user, _, host = netloc.rpartition("@")
        name, colon, _ = user.partition(":")
        netloc = f"{name}{colon}{_HIDDEN if colon else ''}@{host}"
    query = "&".join(_redact_parameter(item) for item in parts.query.split("&") if item)
    # Not by urlunsplit, which counts slashes its own way where there is no host.
    head = f"{parts.scheme}://" if "://" in url else ""
    return f"{head}{netloc}{parts.path}{'?' if query else ''}{query}"


def _redact_parameter(item: str) -> str:
    name, equals, _ = item.partition("=")
    secret = any(word in name.lower() for word in _SECRET_WORDS)
    return f"{name}{equals}{_HIDDEN}" if secret and equals else item
