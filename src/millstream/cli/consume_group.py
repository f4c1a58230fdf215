"""`millstream consume --group`: print records as a member of a consumer group."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import typer

from millstream.cli.arguments import WAIT_MS, bootstrap_servers, check_topic
from millstream.cli.record_text import Piece
from millstream.client import Consumer
from millstream.client.core.consumer.errors import CommitFailedError, RebalanceInProgressError
from millstream.model.errors import ConfigError
from millstream.records.record import Record

_WAIT_S: Final = 0.5

_DECIDED: Final = {
    "bootstrap.servers": "--bootstrap-server gives it",
    "enable.auto.commit": "offsets are committed once their records are written out",
    "group.id": "--group gives it",
}
"""Settings that -X cannot give, and why."""


def consume_group(
    bootstrap: str,
    topic: str,
    group: str,
    *,
    render: Piece,
    count: int | None,
    settings: Mapping[str, str],
) -> None:
    """Print records until Ctrl-C, or so many; the group's offsets follow what is written out.

    ``settings`` are a consumer's, as group.protocol=consumer; a group without offsets begins with
    the first record. A record may come again, to this member or to another, if the group rebalances
    before its offset is committed. BadParameter for a setting that there is not, or that is decided
    here.
    """
    for name, reason in _DECIDED.items():
        if name in settings:
            raise typer.BadParameter(f"{name}: {reason}", param_hint="-X")
    given = {
        "client.id": "millstream-cli",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "allow.auto.create.topics": False,
        "default.api.timeout.ms": WAIT_MS,
        **settings,
    }
    output = sys.stdout.buffer
    remaining = count
    try:
        member = Consumer[bytes, bytes](
            given,
            bootstrap_servers=bootstrap_servers(bootstrap),
            group_id=group,
            enable_auto_commit=False,
        )
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="-X") from None
    with member as consumer:
        check_topic(bootstrap, topic)
        consumer.subscribe([topic])
        while remaining is None or remaining > 0:
            records = consumer.poll(_WAIT_S, max_records=remaining)
            output.write(
                b"".join(
                    render(
                        each.topic_partition,
                        Record(each.offset, each.timestamp, each.key, each.value, each.headers),
                    )
                    for each in records
                )
            )
            output.flush()
            if remaining is not None:
                remaining -= len(records)
            if records:
                with suppress(CommitFailedError, RebalanceInProgressError):
                    consumer.commit()
