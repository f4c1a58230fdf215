"""The log as objects, one on each line."""

from __future__ import annotations

import json
import logging
import sys

from millstream.server.log_format import JsonFormatter, of_process


def record(message: str, *arguments: object, exc_info: object = None) -> logging.LogRecord:
    return logging.LogRecord(
        "millstream.x",
        logging.WARNING,
        "x.py",
        1,
        message,
        arguments,
        exc_info,  # type: ignore[arg-type]
    )


def test_a_line_is_an_object() -> None:
    line = JsonFormatter().format(record("a %s\nline of “%s”", "b", "ü"))
    assert "\n" not in line
    found = json.loads(line)
    assert found.pop("time").endswith("Z")
    assert found == {
        "level": "WARNING",
        "logger": "millstream.x",
        "message": "a b\nline of “ü”",
    }


def test_an_exception_is_part_of_it() -> None:
    try:
        raise ValueError("no")
    except ValueError:
        line = JsonFormatter().format(record("failed", exc_info=sys.exc_info()))
    assert "ValueError: no" in json.loads(line)["exception"]


def test_lines_of_a_process_say_of_which() -> None:
    assert of_process("broker 1", "a line", "text") == "[broker 1] a line"
    found = json.loads(of_process("broker 1", '{"level": "INFO", "message": "m"}', "json"))
    assert found == {"process": "broker 1", "level": "INFO", "message": "m"}
    assert json.loads(of_process("keeper", "12", "json"))["message"] == "12"
    assert json.loads(of_process("keeper", "Traceback", "json"))["process"] == "keeper"
