"""Text of jobs, made harmless: a terminal must show it, never obey it."""

from __future__ import annotations

_PLAIN_LINES = frozenset("\n\t")


def line(text: object) -> str:
    """`text` on one line: what does not print (escape sequences, line ends, lone surrogates,
    marks that reverse the writing) is shown as a backslash escape.
    """
    return _escaped(str(text), frozenset())


def block(text: object) -> str:
    """The same for text of several lines, which stay lines."""
    return _escaped(str(text), _PLAIN_LINES)


def short(text: object, limit: int = 100) -> str:
    """The beginning of `text` on one line."""
    shown = line(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def span(seconds: float) -> str:
    """A length of time in its largest unit: `45s`, `12m`, `3h`, `9d`."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f}{unit}"
    return f"{max(0.0, seconds):.0f}s"


def size(count: float) -> str:
    """A number of bytes as people read it."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _escaped(text: str, kept: frozenset[str]) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in kept else _escape(c) for c in text)


def _escape(character: str) -> str:
    if character == "\n":
        return "\\n"
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
