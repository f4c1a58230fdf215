"""A member of a group, by our client, that says line by line what it does.

``python upgraded_member.py BOOTSTRAP TOPIC GROUP [NAME=VALUE …]`` ends when its standard input
has a line, and prints ``saw P OFFSET VALUE``, and with the time of the machine's monotonic clock
``began P S``, ``committing P S OFFSET`` and ``committed P S OFFSET``.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Mapping

from millstream.client import Consumer, TopicPartition
from millstream.client.core.consumer.errors import CommitFailedError, RebalanceInProgressError


class Listener:
    """Says what is assigned."""

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        for each in sorted(partitions):
            print("began", each.partition, time.monotonic())

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Every poll's records were committed before the next one."""

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Somebody else has them; what was read and not committed comes again."""


def tell(what: str, positions: Mapping[TopicPartition, int]) -> None:
    for place, offset in positions.items():
        print(what, place.partition, time.monotonic(), offset)


def main(bootstrap: str, topic: str, group: str, *settings: str) -> None:
    with Consumer[bytes, bytes](
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "max.poll.records": 100,
            **dict(each.split("=", 1) for each in settings),
        }
    ) as consumer:
        consumer.subscribe([topic], listener=Listener())
        while not select.select([sys.stdin], [], [], 0)[0]:
            positions = {}
            for each in consumer.poll(0.1):
                assert each.value is not None
                print("saw", each.partition, each.offset, each.value.decode())
                positions[each.topic_partition] = each.offset + 1
            if positions:
                tell("committing", positions)
                try:
                    consumer.commit(positions)
                except (CommitFailedError, RebalanceInProgressError) as error:
                    print(error, file=sys.stderr)
                else:
                    tell("committed", positions)
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
