"""One member of a group, as a process.

``python reading_member.py BOOTSTRAP GROUP TOPIC MODE [NAME=VALUE …]`` writes a line
``partition offset`` for every record, and commits only what it has written: by itself in mode
``auto``, after every poll in mode ``sync``. What it is assigned goes to standard error. Ends on
SIGTERM.
"""

from __future__ import annotations

import signal
import sys

from millstream.client.consumer import Consumer
from millstream.client.core.consumer.errors import (
    CommitFailedError,
    RebalanceInProgressError,
    WakeupError,
)
from millstream.model.topic import TopicPartition


class Listener:
    """Tells what comes and goes."""

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        print("assigned", *sorted(map(str, partitions)), file=sys.stderr, flush=True)

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        print("revoked", *sorted(map(str, partitions)), file=sys.stderr, flush=True)

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        print("lost", *sorted(map(str, partitions)), file=sys.stderr, flush=True)


def main(bootstrap: str, group: str, topic: str, mode: str, *settings: str) -> None:
    given: dict[str, object] = dict(each.split("=", 1) for each in settings)
    classic: dict[str, object] = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}
    consumer: Consumer[bytes, bytes] = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 50,
            "max.poll.records": 50,
            "enable.auto.commit": mode == "auto",
            **({} if given.get("group.protocol") == "consumer" else classic),
            **given,
        }
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
    with consumer:
        consumer.subscribe([topic], listener=Listener())
        while True:
            try:
                records = consumer.poll(0.2)
            except WakeupError:
                return
            sys.stdout.write("".join(f"{each.partition} {each.offset}\n" for each in records))
            sys.stdout.flush()
            if mode == "sync" and records:
                try:
                    consumer.commit()
                except (CommitFailedError, RebalanceInProgressError) as error:
                    print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
