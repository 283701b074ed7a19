"""URLs of stores, fit to be shown."""

from __future__ import annotations

import re

_HIDDEN = "***"
_SECRET_WORDS = ("pass", "pwd", "secret", "token", "key", "auth", "credential")
_HOST = re.compile(r"[^:/?#]*(:\d+)?[/?]")
"""A host with its path or query: an `@` behind it is part of these."""

_FORMS = ("", "s", "+sentinel", "s+sentinel", "+cluster", "s+cluster")
REDIS_KINDS = {
    **{f"redis{form}": f"redis{form}" for form in _FORMS},
    **{f"valkey{form}": f"redis{form}" for form in _FORMS},
    "unix": "unix",
}
"""The schemes of URLs of Redis and Valkey, and what each is called everywhere else."""


def redact(url: str) -> str:
    """The URL with its passwords hidden, fit to be shown. Takes any text, and never raises.

    Passwords may hold characters that should have been escaped, so what is hidden goes up to the
    last `@` behind which a host may stand.
    """
    scheme, mark, rest = url.partition("://")
    if not mark:
        scheme, rest = "", url
    before, at, after = rest.rpartition("@")
    if at and not _HOST.match(before):
        name, colon, _ = before.partition(":")
        rest = f"{name}{colon}{_HIDDEN if colon else ''}@{after}"
    rest, _, query = rest.partition("#")[0].partition("?")
    query = "&".join(_redact_parameter(item) for item in query.split("&") if item)
    return f"{scheme}{mark}{rest}{'?' if query else ''}{query}"


def _redact_parameter(item: str) -> str:
    name, equals, _ = item.partition("=")
    secret = any(word in name.lower() for word in _SECRET_WORDS)
    return f"{name}{equals}{_HIDDEN}" if secret and equals else item
