"""`millstream audit-log`: who did what, from the broker's audit log: the topic or a file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import IO, Annotated, Any, Final

import typer

from millstream.cli.arguments import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    timestamp_ms,
)
from millstream.cli.failures import FAILED, CommandFailedError, complain
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import AUDIT_LOG_TOPIC

_LOOK_S: Final = 0.3


class Kind(Enum):
    """What events are about."""

    AUTHENTICATION = "authentication"
    MANAGEMENT = "management"
    DESCRIBE = "describe"
    PRODUCE = "produce"
    CONSUME = "consume"
    INTERBROKER = "interbroker"


def audit_log(
    file: Annotated[
        Path | None,
        typer.Option("--file", help="Read this file of the audit log instead of the topic."),
    ] = None,
    principal: Annotated[
        list[str] | None,
        typer.Option("--principal", "-p", metavar="User:NAME", help="User who acted."),
    ] = None,
    resource: Annotated[
        list[str] | None,
        typer.Option(
            "--resource", "-r", metavar="NAME", help="Topic, group, user or other resource."
        ),
    ] = None,
    kind: Annotated[
        list[Kind] | None, typer.Option("--kind", help="Kind of event; may be repeated.")
    ] = None,
    denied: Annotated[
        bool, typer.Option("--denied", help="Only denied actions and failed authentications.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(
            help="Start at a time: 2026-01-31T12:00, @MILLISECONDS, or 15m for 15 minutes ago."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Print the audit log: one line for each record that matches all options.

    Notes about records that the broker left out (because of its rate limit or a failed write) are
    always printed.
    """
    wanted = _Wanted(
        frozenset(principal or ()),
        frozenset(resource or ()),
        frozenset(each.value for each in kind or ()),
        denied,
        None
        if since is None
        else timestamp_ms(since, "--since", now_ms=time.time_ns() // 1_000_000),
    )
    lines = (
        _of_topic(bootstrap, wanted.since_ms, follow) if file is None else _of_file(file, follow)
    )
    unread = known = 0
    for line in lines:
        try:
            record = json.loads(line)
            matches = wanted.matches(record)
            known += 1
            if not matches:
                continue
            text = line.decode().rstrip() if as_json else sentence(record)
        except (ValueError, KeyError, TypeError, AttributeError):
            unread += 1  # what a power cut has left of a line
            continue
        print(text, flush=follow)
    if unread:
        complain(f"{unread} of the lines are not records of an audit log")
        if not known:
            raise typer.Exit(FAILED)


class _Wanted:
    """Which records are asked for."""

    def __init__(
        self,
        principals: frozenset[str],
        resources: frozenset[str],
        kinds: frozenset[str],
        is_denied: bool,
        since_ms: int | None,
    ) -> None:
        self._principals = principals
        self._resources = resources
        self._kinds = kinds
        self._is_denied = is_denied
        self.since_ms = since_ms

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Tell whether a record is asked for; one of what was left out always is, by its time."""
        data = record["data"]
        if self.since_ms is not None and _milliseconds(record["time"]) < self.since_ms:
            return False
        if "counts" in data:
            return True
        who = data["authenticationInfo"]
        names = {who["principal"], f"User:{who.get('metadata', {}).get('identifier')}"}
        if self._principals and not self._principals & names:
            return False
        if self._kinds and data["kind"] not in self._kinds:
            return False
        if self._is_denied and data["outcome"] not in ("denied", "failed"):
            return False
        return not self._resources or bool(self._resources & set(_names(data)))


def sentence(record: Mapping[str, Any]) -> str:
    """Return a record as a line: when, whether, who, from where, what, with which result."""
    data, when = record["data"], record["time"]
    if "counts" in data:
        counts = ", ".join(f"{count} {word}" for word, count in data["counts"].items())
        return _shown(f"{when} left out ({data['reason']}): {counts}")
    who, where = data["authenticationInfo"], data["requestMetadata"]
    result = data.get("result", {})
    parts = [when, data["outcome"], who["principal"], f"from {where['clientAddress']}"]
    if data["kind"] == "authentication":
        metadata = who.get("metadata", {})
        if "mechanism" in metadata:
            parts.append(metadata["mechanism"])
        if "identifier" in metadata:
            parts.append(f"as {metadata['identifier']}")
        if "message" in result:
            parts.append(f"({result['message']})")
        return _shown(" ".join(parts))
    info = data["authorizationInfo"]
    parts.append(data["methodName"].removeprefix("kafka."))
    named = info["resourceName"] or "-"
    parts.append(f"{info.get('operation', '-')} {info['resourceType']} {named}")
    if info["resourceType"] == "Cluster":
        about = [name for name in _names(data["request"]) if name]
        if about:
            more = f" and {len(about) - 3} more" if len(about) > 3 else ""
            parts.append(f"({', '.join(about[:3])}{more})")
    if "repeated" in data:
        parts.append(f"{data['repeated']['count']} times more")
    error = result.get("error") or ", ".join(
        f"{each['item']}: {each['error']}" for each in result.get("errors", ())
    )
    if error:
        parts.append(f"-> {error}")
    return _shown(" ".join(parts))


def _names(value: object) -> Iterator[str]:
    """Yield the names of resources in the data of a record."""
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, str) and key in _NAMING:
                yield each
            elif key == "entity" and isinstance(each, list):
                yield from (str(part.get("entityName")) for part in each)
            else:
                yield from _names(each)
    elif isinstance(value, list):
        for each in value:
            if isinstance(each, str):
                yield each
            else:
                yield from _names(each)


_NAMING: Final = frozenset(
    {"resourceName", "name", "topic", "topicName", "groupId", "resourceNameFilter"}
)


def _shown(text: str) -> str:
    """Return a text without what would move the cursor of a terminal."""
    return "".join(each if each.isprintable() else "?" for each in text)


def _milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def _of_file(path: Path, follow: bool) -> Iterator[bytes]:
    """Yield the lines of a file; the file that takes its name is read on where it is moved away."""
    if not follow:
        with path.open("rb") as file:
            yield from file
        return
    while True:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            time.sleep(_LOOK_S)
            continue
        with file:
            yield from _lines_until_moved(path, file)


def _lines_until_moved(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while True:
        is_moved = _is_another(path, file)
        while piece := file.readline():
            rest += piece
            if rest.endswith(b"\n"):
                yield rest
                rest = b""
        if is_moved:
            return
        time.sleep(_LOOK_S)


def _is_another(path: Path, file: IO[bytes]) -> bool:
    """Tell whether a path names another file, or one that was cut. While it names none, the broker
    goes on with the one that was moved away.
    """
    own = os.fstat(file.fileno())
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    return (own.st_dev, own.st_ino) != (found.st_dev, found.st_ino) or own.st_size < file.tell()


def _of_topic(bootstrap: str, since_ms: int | None, follow: bool) -> Iterator[bytes]:
    """Yield the values of the topic's records, by their time where it is read to its end."""
    from millstream.cli.consume import open_consumer, read, starts_of, topic_partitions_of
    from millstream.client.core.consumer.errors import RecordError

    try:
        partitions = topic_partitions_of(bootstrap, AUDIT_LOG_TOPIC)
    except KafkaError as error:
        if error.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise CommandFailedError(
            f"there is no topic {AUDIT_LOG_TOPIC} yet: brokers make it at the first event whose "
            "setting audit.log.* is `topic`; --file reads an audit log in a file"
        ) from None
    with open_consumer(bootstrap, read_committed=False) as consumer:
        ends = None if follow else consumer.end_offsets(partitions)
        since = None if since_ms is None else f"@{since_ms}"
        consumer.assign(partitions)
        for each, start in starts_of(consumer, partitions, None, since).items():
            consumer.seek(each, start)
        try:
            records = (
                record.value or b""
                for group in read(consumer, partitions, ends)
                for _, record in group
            )
            if follow:
                yield from records
            else:
                yield from sorted(records, key=_time_of)
        except RecordError as error:
            raise CommandFailedError(str(error)) from error


def _time_of(value: bytes) -> str:
    """Return a text that sorts as the time of a record."""
    try:
        return str(json.loads(value)["time"])
    except (ValueError, KeyError, TypeError):
        return ""
