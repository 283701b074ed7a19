"""Bytes <-> values. JSON by msgspec, with the silent conversions of JSON refused.

What JSON cannot hold faithfully (NaN, infinities, NUL characters, lone surrogates, keys that are
not strings, integers beyond 64 bits) is refused with the path to the value. Never pickle.
"""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import decimal
import enum
import math
import pathlib
import uuid
from collections.abc import Mapping
from typing import Any

import msgspec

from tenure.errors import PayloadError

JSON = "json"
MAX_DEPTH = 100

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_ATOMS = (
    bytes,
    bytearray,
    dt.datetime,
    dt.date,
    dt.time,
    dt.timedelta,
    uuid.UUID,
    decimal.Decimal,
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def encode(value: Any, root: str = "value") -> bytes:
    """The JSON bytes of `value`. Raises `PayloadError` naming the path from `root`."""
    plain = _plain(value, root, 0)
    try:
        return _encoder.encode(plain)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise PayloadError(f"{root}: cannot be stored as JSON: {error}") from error


def decode(data: bytes) -> Any:
    """Plain JSON values. Raises `PayloadError` for bytes that are not JSON."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PayloadError(f"stored value is not JSON: {error}") from error


def convert(value: Any, annotation: Any, path: str) -> Any:
    """A plain JSON value as the annotated type. Raises `PayloadError` naming `path`."""
    if annotation is Any or annotation is object:
        return value
    try:
        return msgspec.convert(value, annotation, dec_hook=_from_plain)
    except msgspec.ValidationError as error:
        raise PayloadError(f"{path}: {error}") from error
    except (TypeError, RecursionError) as error:
        raise PayloadError(f"{path}: {annotation!r} cannot be read from JSON: {error}") from error


def check_text(text: str, path: str) -> str:
    """`text` itself. Raises `PayloadError` if it holds a NUL or a lone surrogate."""
    if "\x00" in text:
        raise PayloadError(f"{path}: text with a NUL character cannot be stored")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise PayloadError(f"{path}: text with a lone surrogate cannot be stored") from error
    return text


def printable(text: str) -> str:
    """`text` with what cannot be stored (NUL, lone surrogates) shown as backslash escapes."""
    if "\x00" not in text and text.isascii():
        return text
    return text.replace("\x00", "\\x00").encode(errors="backslashreplace").decode()


def _plain(value: Any, path: str, depth: int) -> Any:
    """`value` as what msgspec encodes without losing anything, or an error that names the path."""
    kind = type(value)
    if kind is str:
        return check_text(value, path)
    if value is None or kind is bool:
        return value
    if kind is int:
        if not _INT_MIN <= value <= _INT_MAX:
            raise PayloadError(f"{path}: integers beyond 64 bits cannot be stored")
        return value
    if kind is float:
        if not math.isfinite(value):
            raise PayloadError(f"{path}: {value} cannot be stored; JSON has no such number")
        return value
    if depth >= MAX_DEPTH:
        raise PayloadError(f"{path}: nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return {
            _key(key, path): _plain(item, f"{path}.{key}", depth + 1) for key, item in value.items()
        }
    if isinstance(value, list | tuple | set | frozenset):
        fields = getattr(value, "_fields", None)
        if fields is None:
            items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
            return [_plain(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(items)]
        return [_plain(v, f"{path}.{f}", depth + 1) for f, v in zip(fields, value, strict=True)]
    return _plain_object(value, path, depth)


def _plain_object(value: Any, path: str, depth: int) -> Any:
    if isinstance(value, enum.Enum):
        return _plain(value.value, path, depth + 1)
    if isinstance(value, decimal.Decimal) and not value.is_finite():
        raise PayloadError(f"{path}: {value} cannot be stored; JSON has no such number")
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        raise PayloadError(f"{path}: a datetime needs a time zone; {value.isoformat()} is naive")
    if isinstance(value, _ATOMS):
        return value
    if isinstance(value, pathlib.PurePath):
        return check_text(str(value), path)
    if isinstance(value, str):
        return check_text(str(value), path)
    if isinstance(value, int):
        return _plain(int(value), path, depth)
    if isinstance(value, float):
        return _plain(float(value), path, depth)
    fields = _fields_of(value)
    if fields is not None:
        return {name: _plain(item, f"{path}.{name}", depth + 1) for name, item in fields.items()}
    dump = getattr(value, "model_dump", None)
    if callable(dump):  # a pydantic model, without importing pydantic
        return _plain(dump(mode="json"), path, depth + 1)
    raise PayloadError(f"{path}: {type(value).__qualname__} cannot be stored as JSON")


def _fields_of(value: Any) -> dict[str, Any] | None:
    """The fields of a dataclass or msgspec struct, by the names they are read back with."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True)
        fields = {encoded: getattr(value, name) for name, encoded in names}
        config = value.__struct_config__
        if config.tag_field is not None:
            fields = {config.tag_field: config.tag, **fields}
        return fields
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise PayloadError(f"{path}: key {key!r} is {type(key).__name__}; JSON keys are strings")
    return check_text(str(key), f"{path}.{printable(key)}")


def _from_plain(annotation: Any, value: Any) -> Any:
    """Types that msgspec does not read by itself."""
    if isinstance(annotation, type):
        if issubclass(annotation, pathlib.PurePath):
            return annotation(value)
        validate = getattr(annotation, "model_validate", None)
        if callable(validate):
            try:
                return validate(value)
            except Exception as error:
                raise ValueError(str(error)) from error
        if issubclass(annotation, bytearray):
            return bytearray(base64.b64decode(value))
    raise TypeError(f"values of {annotation!r} are not supported")
