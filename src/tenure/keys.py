"""Keys of jobs for limits and turns: a value, or a function of the arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from tenure.core import codec
from tenure.errors import ConfigurationError, InvalidArguments, PayloadError

KeyOf = str | Callable[..., str | None] | None
"""A key; or what makes it of those arguments of a call that its parameters name; or none."""

KEY_MAX = 512
"""Bytes of a key."""

KEYS = ("concurrency_key", "rate_key", "fair_key")


def check_key_of(value: Any, name: str) -> None:
    """Raise `ConfigurationError` for what can be no key, and makes none."""
    if callable(value):
        try:
            inspect.signature(value)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{name}: what {value!r} takes is unknown; write a function of the arguments"
            ) from error
        return
    if value is not None:
        _checked(value, name, ConfigurationError)


def made_keys(options: Any, arguments: Callable[[], Mapping[str, Any]]) -> dict[str, str]:
    """Those keys of a call that functions make. `arguments`: of the call, by parameter name.

    Raises `InvalidArguments`, naming the option, for a function that takes something else, and
    `PayloadError` for what it makes; what it raises itself goes through.
    """
    makers = {name: made for name in KEYS if callable(made := getattr(options, name))}
    if not makers:
        return {}
    given = arguments()
    found: dict[str, str] = {}
    for name, maker in makers.items():
        value = maker(**_wanted(maker, name, given))
        if value is not None:
            found[name] = _checked(value, name, PayloadError)
    return found


def _wanted(maker: Callable[..., Any], name: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Those of the arguments that a function takes."""
    parameters = inspect.signature(maker).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return given
    for parameter in parameters:
        if parameter.name not in given and parameter.default is parameter.empty:
            known = ", ".join(given) or "none"
            raise InvalidArguments(
                f"{name}: its function wants {parameter.name!r}; the arguments are {known}"
            )
    names = {parameter.name for parameter in parameters}
    return {key: value for key, value in given.items() if key in names}


def _checked(value: Any, name: str, refusal: type[ValueError]) -> str:
    if not isinstance(value, str):
        raise refusal(f"{name} must be text, not {type(value).__name__}")
    try:
        size = len(codec.check_text(value, name).encode())
    except PayloadError as error:
        raise refusal(str(error)) from error
    if not 1 <= size <= KEY_MAX:
        raise refusal(f"{name} must have 1 to {KEY_MAX} bytes, not {size}")
    return value
