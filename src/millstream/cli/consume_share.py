"""`millstream consume --share`: print records as a member of a share group."""

from __future__ import annotations

import sys
from typing import Final

from millstream.cli.arguments import WAIT_MS, bootstrap_servers, check_topic
from millstream.cli.client_options import settings_of
from millstream.cli.record_text import Piece
from millstream.client import AcknowledgeType, ShareConsumer
from millstream.client.core.consumer.errors import RecordError
from millstream.client.core.share.settings import (
    BATCH_OPTIMIZED,
    EXPLICIT,
    RECORD_LIMIT,
    ShareConsumerSettings,
)
from millstream.records.record import Record

_WAIT_S: Final = 0.5
_POLL_RECORDS: Final = 500


def consume_share(
    bootstrap: str, topic: str, group: str, *, render: Piece, count: int | None
) -> None:
    """Print records until Ctrl-C, or so many; each is accepted once it is written out.

    What was acquired and not written goes back to the group.
    """
    # With a count no more is acquired than is printed: giving records back counts as a delivery.
    mode = BATCH_OPTIMIZED if count is None else RECORD_LIMIT
    consumer: ShareConsumer[bytes, bytes] = ShareConsumer(
        {
            "client.id": "millstream-cli",
            "allow.auto.create.topics": False,
            "default.api.timeout.ms": WAIT_MS,
            "request.timeout.ms": WAIT_MS,
            **settings_of(ShareConsumerSettings),
            "bootstrap.servers": bootstrap_servers(bootstrap),
            "group.id": group,
            "share.acknowledgement.mode": EXPLICIT,
            "share.acquire.mode": mode,
            "max.poll.records": _POLL_RECORDS if count is None else min(count, _POLL_RECORDS),
        }
    )
    with consumer:
        check_topic(bootstrap, topic)
        consumer.subscribe(topic)
        remaining = count
        while remaining is None or remaining > 0:
            written = _print_some(consumer, render, remaining)
            if remaining is not None:
                remaining -= written
        consumer.commit()


def _print_some(consumer: ShareConsumer[bytes, bytes], render: Piece, remaining: int | None) -> int:
    output = sys.stdout.buffer
    try:
        records = consumer.poll(_WAIT_S, max_records=remaining)
    except RecordError as error:
        # It cannot be printed by anyone here: leave it to other members, up to the group's limit.
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    pieces = [
        render(
            each.topic_partition,
            Record(each.offset, each.timestamp, each.key, each.value, each.headers),
        )
        for each in records
    ]
    output.write(b"".join(pieces))
    output.flush()
    for record in records:
        consumer.acknowledge(record, AcknowledgeType.ACCEPT)
    return len(records)
