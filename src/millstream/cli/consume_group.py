"""`millstream consume --group`: print records as a member of a consumer group."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

import typer

from millstream.cli.arguments import WAIT_MS, bootstrap_servers, check_topic
from millstream.cli.client_options import names_on_command_line, settings_of
from millstream.cli.record_text import Piece
from millstream.cli.waiting import Waiting
from millstream.client import Consumer
from millstream.client.core.consumer.errors import CommitFailedError, RebalanceInProgressError
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicPartition
from millstream.records.record import Record

_WAIT_S: Final = 0.5

_DECIDED: Final = {
    "enable.auto.commit": "offsets are committed once their records are written out",
    "group.id": "--group gives it",
}
"""Settings that the command decides, and why."""


def consume_group(
    bootstrap: str,
    topic: str,
    group: str,
    *,
    render: Piece,
    count: int | None,
    exit_at_end: bool = False,
) -> None:
    """Print records until Ctrl-C, or so many; the group's offsets follow what is written out.

    With ``exit_at_end`` until the group has read what is there now: this member its partitions,
    others theirs.

    A group without offsets begins with the first record. A record may come again, to this member or
    to another, if the group rebalances before its offset is committed. BadParameter for a setting
    that there is not, or that is decided here.
    """
    settings = settings_of(ConsumerSettings)
    settings.pop("bootstrap.servers", None)
    typed = names_on_command_line()
    for name, reason in _DECIDED.items():
        settings.pop(name, None)  # of a file that other programs use too
        if name in typed:
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
    with member as consumer, Waiting(consumer.unreachable):
        check_topic(bootstrap, topic)
        ends = _ends(consumer, topic) if exit_at_end else None
        consumer.subscribe([topic])
        while (remaining is None or remaining > 0) and (
            ends is None or not _has_read(consumer, ends)
        ):
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


def _ends(consumer: Consumer[bytes, bytes], topic: str) -> dict[TopicPartition, Offset]:
    """Return the end of each partition that has records."""
    partitions = [each.topic_partition for each in consumer.partitions_for(topic)]
    begins = consumer.beginning_offsets(partitions)
    ends = consumer.end_offsets(partitions)
    return {each: end for each, end in ends.items() if end > begins[each]}


def _has_read(consumer: Consumer[bytes, bytes], ends: dict[TopicPartition, Offset]) -> bool:
    """Tell whether the group has come to these ends; those that it has are taken out."""
    own = consumer.assignment()
    for each in [each for each in ends if each in own]:
        if consumer.position(each) >= ends[each]:
            del ends[each]
    others = [each for each in ends if each not in own]
    if own and others:
        for each, committed in consumer.committed(others).items():
            if committed is not None and committed.offset >= ends[each]:
                del ends[each]
    return not ends
