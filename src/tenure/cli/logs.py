"""The log lines of a worker process: for people on the error output, or JSON on the output."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

from tenure.cli.text import block, line

LEVELS = ("debug", "info", "warning", "error")

_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def set_up(level: str, *, as_json: bool) -> None:
    """Send log records of this level and above to the terminal.

    An application that has set up logging itself keeps its handlers; with `as_json` they are
    replaced, so that the output holds nothing else.
    """
    root = logging.getLogger()
    if root.handlers and not as_json:
        logging.getLogger("tenure").setLevel(level.upper())
        return
    handler = logging.StreamHandler(sys.stdout if as_json else sys.stderr)
    handler.setFormatter(JsonLines() if as_json else Lines())
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class Lines(logging.Formatter):
    """Time, level and message. Text of jobs cannot steer the terminal or fake a line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created).astimezone()
        text = f"{moment:%H:%M:%S} {record.levelname:<7} {line(record.getMessage())}"
        if record.exc_info:
            text += "\n" + block("".join(traceback.format_exception(*record.exc_info))).rstrip()
        return text


class JsonLines(logging.Formatter):
    """One JSON object per record: time, level, logger, message, and what the record holds more."""

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        values |= {k: v for k, v in record.__dict__.items() if k not in _OWN and k not in values}
        if record.exc_info:
            values["traceback"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(values, default=str)
