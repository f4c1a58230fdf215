"""A member of a group with kafka-python that commits each batch, until standard input has a line.

``kafka_python_reader.py BOOTSTRAP TOPIC GROUP`` prints ``saw P OFFSET VALUE``, and with the time on
the machine's monotonic clock ``began P S``, ``committing P S OFFSET`` and ``committed P S OFFSET``,
as ``Reader.java`` does.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Iterable

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Listener(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        pass

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        for each in assigned:
            say("began", each.partition, time.monotonic())


def commit(consumer: KafkaConsumer, positions: dict[TopicPartition, int]) -> None:
    for place, offset in positions.items():
        say("committing", place.partition, time.monotonic(), offset)
    try:
        consumer.commit({place: OffsetAndMetadata(at, "", -1) for place, at in positions.items()})
    except KafkaError as error:
        print(error, file=sys.stderr)
        return
    for place, offset in positions.items():
        say("committed", place.partition, time.monotonic(), offset)


def main(bootstrap: str, topic: str, group: str) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        metadata_max_age_ms=1_000,  # see ``tests.interop.clients.patience``, as below
    )
    consumer.subscribe([topic], listener=Listener())
    while not select.select([sys.stdin], [], [], 0)[0]:
        try:
            batches = consumer.poll(3_000)
        except KafkaError as error:
            if not error.retriable:
                raise
            continue
        for records in batches.values():
            for each in records:
                say("saw", each.partition, each.offset, each.value.decode())
        if batches:
            commit(consumer, {place: rows[-1].offset + 1 for place, rows in batches.items()})
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
