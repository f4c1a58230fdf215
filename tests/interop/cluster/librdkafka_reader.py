"""A member of a group with librdkafka that commits each batch, until standard input has a line.

``librdkafka_reader.py BOOTSTRAP TOPIC GROUP [NAME=VALUE …]`` prints what ``Reader.java`` does.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Sequence

from confluent_kafka import Consumer, KafkaException, TopicPartition


def assigned(_: Consumer, partitions: Sequence[TopicPartition]) -> None:
    for each in partitions:
        print("began", each.partition, time.monotonic())


def main(bootstrap: str, topic: str, group: str, *settings: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            **dict(each.split("=", 1) for each in settings),
        }
    )
    consumer.subscribe([topic], on_assign=assigned)
    while not select.select([sys.stdin], [], [], 0)[0]:
        positions: dict[int, int] = {}
        for each in consumer.consume(100, 0.1):
            if each.error() is None:
                partition, offset, value = each.partition(), each.offset(), each.value()
                assert partition is not None
                assert offset is not None
                assert isinstance(value, bytes)
                print("saw", partition, offset, value.decode())
                positions[partition] = offset + 1
        if positions:
            commit(consumer, topic, positions)
        sys.stdout.flush()
    consumer.close()


def commit(consumer: Consumer, topic: str, positions: dict[int, int]) -> None:
    for partition, offset in positions.items():
        print("committing", partition, time.monotonic(), offset)
    wanted = [TopicPartition(topic, *each) for each in positions.items()]
    try:
        told = consumer.commit(offsets=wanted, asynchronous=False) or []
    except KafkaException as error:
        print(error, file=sys.stderr)
        return
    for each in told:
        if each.error is None:
            print("committed", each.partition, time.monotonic(), each.offset)


if __name__ == "__main__":
    main(*sys.argv[1:])
