"""What a command works on: the service of an app, or a store by its URL."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from types import ModuleType
from typing import Any, TypeVar

from tenure.cli.errors import Refusal, Unavailable
from tenure.service import QueueService
from tenure.settings import configured_app, configured_url

T = TypeVar("T")

_OURS = frozenset({"tenure", "importlib"})


def split(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """The app among the arguments, and the others.

    The first argument is the app if there is a colon in it: no task name and no id has one.
    """
    if arguments and ":" in arguments[0]:
        return arguments[0], list(arguments[1:])
    return None, list(arguments)


def find(given: str | None, *, show_traceback: bool = False) -> tuple[QueueService, bool]:
    """The service to work on, and whether it is that of an app, which knows its tasks."""
    place = given or configured_app() or configured_url()
    if place is None:
        raise Refusal(
            "which app? Give module:attribute or a URL as the first argument, "
            "or set TENURE_APP or TENURE_URL"
        )
    if "://" in place:
        return QueueService(place), False
    return load_app(place, show_traceback=show_traceback), True


def call(
    given: str | None,
    work: Callable[[QueueService, bool], Awaitable[T]],
    *,
    show_traceback: bool = False,
    creates: bool = False,
) -> T:
    """Do `work` with the opened service. It must be a store that other processes can reach.

    `creates` tells that the store need not be there yet, so that it is not opened for `work`.
    """
    service, is_app = find(given, show_traceback=show_traceback)
    _check_reach(service)
    if not creates and not is_app:
        _check_file(service.url)

    async def main() -> T:
        if creates:
            try:
                return await work(service, is_app)
            finally:
                await service.close()
        async with service:
            return await work(service, is_app)

    return asyncio.run(main())


def load_app(path: str, *, show_traceback: bool = False) -> QueueService:
    """The service at `module:attribute`, or the only one in `module`."""
    name, _, attribute = path.partition(":")
    module = _import(name, show_traceback=show_traceback)
    if not attribute:
        return _only_service(module)
    value: Any = module
    for part in attribute.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise Refusal(f"{name} has no {attribute!r}; {_services_in(module)}") from None
    service = _as_service(value)
    if service is None:
        raise Refusal(f"{path} is {_what(value)}, not a QueueService; {_services_in(module)}")
    return service


def _import(name: str, *, show_traceback: bool) -> ModuleType:
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        detail = _traceback(error) if show_traceback else ""
        raise Refusal(_import_message(name, folder, error), detail=detail) from error


def _traceback(error: BaseException) -> str:
    """The traceback from the user's own code on, without how we came there."""
    step = error.__traceback__
    while step is not None and step.tb_frame.f_globals.get("__name__", "").split(".")[0] in _OURS:
        step = step.tb_next
    return "".join(traceback.format_exception(type(error), error, step))


def _import_message(name: str, folder: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and _is_part_of(error.name, name):
        hint = ""
        if name.endswith(".py"):
            hint = f"; a module is named without .py, as in {name[:-3].replace('/', '.')}:jobs"
        return f"there is no module {name!r}, neither in {folder} nor installed{hint}"
    if isinstance(error, ValueError | TypeError) and not name.strip("."):
        return f"{name!r} is no module name; write module:attribute"
    place = _place(error)
    text = f"{type(error).__qualname__}: {error}" if str(error) else type(error).__qualname__
    return f"{name} cannot be imported: {text}{place} (--traceback shows more)"


def _is_part_of(missing: str | None, name: str) -> bool:
    return missing is not None and (name == missing or name.startswith(missing + "."))


def _place(error: BaseException) -> str:
    """Where it was raised; a syntax error says so itself."""
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError) or not frames:
        return ""
    return f", at {frames[-1].filename}:{frames[-1].lineno}"


def _only_service(module: ModuleType) -> QueueService:
    found = _services(module)
    services = {id(service): service for service in found.values()}
    if len(services) == 1:
        [service] = services.values()
        return service
    raise Refusal(_services_in(module))


def _services(module: ModuleType) -> dict[str, QueueService]:
    found = {name: _as_service(value) for name, value in vars(module).items()}
    return {name: service for name, service in found.items() if service is not None}


def _services_in(module: ModuleType) -> str:
    names = [f"{module.__name__}:{name}" for name in _services(module)]
    if not names:
        return f"there is no QueueService in {module.__name__}"
    return f"{module.__name__} has {', '.join(names)}"


def _as_service(value: Any) -> QueueService | None:
    """The service behind `value`, if it is one or the blocking face of one."""
    if isinstance(value, QueueService):
        return value
    if type(value).__module__ == "tenure.sync":
        inner = getattr(value, "async_service", None)
        return inner if isinstance(inner, QueueService) else None
    return None


def _what(value: Any) -> str:
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if isinstance(value, ModuleType):
        return f"the module {value.__name__}"
    kind = type(value).__qualname__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def _check_reach(service: QueueService) -> None:
    if service.url.startswith("memory:"):
        raise Refusal(
            "memory:// keeps its jobs inside one process, so this command would see none of them"
        )


def _check_file(url: str) -> None:
    """Refuse a file that is not there, where opening it would silently make an empty one."""
    scheme, _, path = url.partition(":///")
    if scheme == "sqlite" and not os.path.exists(path):
        raise Unavailable(f"there is no {path}; `tenure migrate {url}` makes it")
