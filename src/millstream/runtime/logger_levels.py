"""The levels of this process's loggers, under the names that Kafka's tools use (KIP-412).

A broker's loggers are a resource of their own (BROKER_LOGGER): their levels are read and changed
while the broker runs, and forgotten when it stops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from millstream.controller.config_changes import ConfigOperation, OperationType
from millstream.model.errors import ErrorCode, KafkaError

ROOT: Final = "root"

_LEVELS: Final = {"FATAL": 50, "ERROR": 40, "WARN": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}
_PACKAGE: Final = __name__.partition(".")[0]


def logger_levels() -> dict[str, str]:
    """Return the effective level of the root and of each of our loggers, by name."""
    names = sorted(
        name
        for name, logger in logging.Logger.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == _PACKAGE
    )
    return {name: _level_name(_logger(name)) for name in (ROOT, *names)}


def check_operations(operations: Iterable[ConfigOperation]) -> None:
    """Raise the KafkaError of the first operation that cannot be (Kafka:
    ``RuntimeLoggerManager.validateLogLevelConfigs``).
    """
    known = logger_levels()
    for operation in operations:
        name = operation.name
        if operation.type not in (OperationType.SET, OperationType.DELETE):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{operation.type.name} operation is not allowed for the BROKER_LOGGER resource",
            )
        if name not in known:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if operation.type is OperationType.SET and operation.text not in _LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {operation.text} as it is not a supported "
                f"log level. Valid log levels are {', '.join(sorted(_LEVELS))}",
            )
        if operation.type is OperationType.DELETE and name == ROOT:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Removing the log level of the {ROOT} logger is not allowed",
            )


def apply_operations(operations: Iterable[ConfigOperation]) -> None:
    """Carry out operations that were checked: set a level, or let it follow its parent again."""
    for operation in operations:
        level = logging.NOTSET if operation.text is None else _LEVELS[operation.text]
        deleted = operation.type is OperationType.DELETE
        _logger(operation.name).setLevel(logging.NOTSET if deleted else level)


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _level_name(logger: logging.Logger) -> str:
    level = logger.getEffectiveLevel()
    return next((name for name, floor in _LEVELS.items() if level >= floor), "TRACE")
