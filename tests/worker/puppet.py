"""An engine in the hands of a test: it counts calls and fails as it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

from tenure.engines.protocol import Engine
from tenure.errors import EngineUnavailable

OPERATIONS = frozenset(
    "insert claim extend settle sweep get next_due cancel requeue find stats".split()
)


class Strings:
    """What moves the handles of one puppet; shared with its side handles."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.handles = 0
        """Side handles that are open now."""
        self.sizes: dict[str, list[int]] = {}
        self.away: set[str] = set()
        """Operations that fail before they take effect, for as long as they are in here."""
        self.before: dict[str, list[BaseException | None]] = {}
        self.after: dict[str, list[BaseException | None]] = {}
        """Errors of the next calls, one each, before or after their effect."""
        self.on_call: Callable[[str, tuple[Any, ...]], Any] | None = None

    def fail(self, *operations: str) -> None:
        self.away.update(operations or OPERATIONS)

    def heal(self) -> None:
        self.away.clear()


class Puppet:
    """Passes everything on to an engine, but for what its strings say."""

    def __init__(self, inner: Engine, strings: Strings | None = None) -> None:
        self._inner = inner
        self.strings = strings or Strings()

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name not in OPERATIONS:
            return real

        async def call(*args: Any, **kwargs: Any) -> Any:
            strings = self.strings
            strings.calls[name] += 1
            if args and isinstance(args[0], list | tuple):
                strings.sizes.setdefault(name, []).append(len(args[0]))
            if name in strings.away:
                raise EngineUnavailable(f"{name}: away")
            if strings.on_call is not None:
                await strings.on_call(name, args)
            _raise_next(strings.before.get(name))
            answer = await real(*args, **kwargs)
            _raise_next(strings.after.get(name))
            return answer

        return call

    async def __aenter__(self) -> Puppet:
        await self._inner.__aenter__()
        self.strings.handles += 1
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._inner.__aexit__(None, None, None)
        self.strings.handles -= 1

    def side(self) -> Puppet:
        return Puppet(self._inner.side(), self.strings)


def puppet(inner: Engine) -> tuple[Engine, Strings]:
    """An engine around `inner`, and what moves it."""
    made = Puppet(inner)
    return cast(Engine, made), made.strings


def _raise_next(errors: list[BaseException | None] | None) -> None:
    error = errors.pop(0) if errors else None
    if error is not None:
        raise error
