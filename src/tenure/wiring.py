"""From the settings of a service to what its jobs are run in."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypedDict

from tenure.core.durations import Seconds
from tenure.core.retention import Retention
from tenure.drafts import EnqueueMiddleware
from tenure.settings import Settings
from tenure.worker.failure import Describer, Sanitizer
from tenure.worker.surroundings import Middleware, Provider, Resolver, Surroundings


class ServiceSettings(TypedDict, total=False):
    """The settings by name, for `QueueService(...)`; see `Settings`. None: not given."""

    lease: Seconds | None
    concurrency: int | None
    log_success: bool | None
    log_level: int | str | None
    app_name: str | None
    retention: Retention | None
    max_identity_bytes: int | None
    resolver: Resolver | None
    provider: Provider | None
    error_sanitizer: Sanitizer | None
    middleware: Sequence[Middleware] | None
    enqueue_middleware: Sequence[EnqueueMiddleware] | None


class Companion:
    """What is opened before a service and closed after it: a provider, or a resolver.

    Its `open()` and `close()` may be missing, `def` or `async def`.
    """

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    async def open(self) -> None:
        await self._call("open")

    async def close(self) -> None:
        await self._call("close")

    async def _call(self, name: str) -> None:
        function = getattr(self._owner, name, None)
        if callable(function):
            answer = function()
            if inspect.isawaitable(answer):
                await answer


def surroundings_of(settings: Settings) -> Surroundings:
    """What every body of the service is run in."""
    return Surroundings(
        resolver=settings.resolver,
        provider=settings.provider,
        middleware=settings.middleware,
        describer=Describer(settings.error_sanitizer),
    )


def companion_of(settings: Settings) -> Companion | None:
    """What is opened and closed with the service, if there is such a thing."""
    owner = settings.provider or settings.resolver
    return None if owner is None else Companion(owner)
