"""How a process writes its own log: lines of text, or objects with ``log.format=json``."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Final, Protocol

from millstream.config.sections.monitoring import JSON

TEXT_FORMAT: Final = "%(asctime)s %(levelname)s %(message)s"


class Stream(Protocol):
    """Where lines go."""

    def write(self, text: str, /) -> object:
        """Write a line with its end."""


class JsonFormatter(logging.Formatter):
    """Writes a record as an object: ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``,
    ``thread`` where that is not the main one, and ``exception`` with a stack.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return one line without its end."""
        when = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.threadName not in (None, "MainThread"):
            line["thread"] = str(record.threadName)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return json.dumps(line, ensure_ascii=False)


def configure_log(form: str, level: str, stream: Stream) -> None:
    """Write the log of this process to a stream from now on; ``form`` is that of `log.format`, and
    ``level`` that of `log.level`.
    """
    logging.basicConfig(level=level.upper(), stream=stream, format=TEXT_FORMAT)
    if form == JSON:
        for handler in logging.getLogger().handlers:
            handler.setFormatter(JsonFormatter())


def of_process(name: str, line: str, form: str) -> str:
    """Return a line of another process's log with the name of the process."""
    if form != JSON:
        return f"[{name}] {line}"
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    if not isinstance(found, dict):  # what an interpreter writes when it ends
        found = {"level": "INFO", "message": line}
    return json.dumps({"process": name, **found}, ensure_ascii=False)
