"""One process that copies, transforms and writes: each input counts once, whatever is killed.

``python -m tests.system.cluster.exactly_once_worker BOOTSTRAP SOURCE TARGET NAME``: reads SOURCE in
a group, writes twice each number to TARGET and commits the group's offsets, all in transactions of
librdkafka. One transaction in ten is aborted on purpose. It ends with code 3 where its producer is
fenced or cannot go on: whoever started it starts another.
"""

from __future__ import annotations

import random
import sys
from typing import Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from tests.system.cluster.watched import QUICK

GROUP: Final = "copiers"
BATCH: Final = 500
TIMEOUT_S: Final = 60.0
FENCED: Final = 3


class Copier:
    """A consumer and a producer that share their transactions."""

    def __init__(self, bootstrap: str, source: str, target: str, name: str) -> None:
        self._target = target
        self._chance = random.Random(name)
        self._consumer = Consumer(
            {
                **QUICK,
                "bootstrap.servers": bootstrap,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6_000,
            }
        )
        self._consumer.subscribe([source])
        self._producer = Producer(
            {
                **QUICK,
                "bootstrap.servers": bootstrap,
                "transactional.id": name,
                "transaction.timeout.ms": 20_000,
                "linger.ms": 5,
            }
        )
        self._producer.init_transactions(TIMEOUT_S)

    def run(self) -> None:
        """Copy for ever."""
        while True:
            messages = [each for each in self._consumer.consume(BATCH, 1.0) if each.error() is None]
            if messages:
                self._copy(messages)

    def _copy(self, messages: list[Message]) -> None:
        """Copy in one transaction; go back to where the group is if it does not commit."""
        self._producer.begin_transaction()
        try:
            for each in messages:
                doubled = 2 * int(each.value() or b"")
                self._produce(str(doubled), each.partition() or 0)
            self._producer.send_offsets_to_transaction(
                self._consumer.position(self._consumer.assignment()),
                self._consumer.consumer_group_metadata(),
                TIMEOUT_S,
            )
            if self._chance.random() < 0.1:
                self._give_up()
                return
            self._commit()
        except KafkaException as exception:
            error = exception.args[0]
            if error.fatal() or not error.txn_requires_abort():
                raise
            self._give_up()

    def _produce(self, value: str, partition: int) -> None:
        while True:
            try:
                self._producer.produce(self._target, value, partition=partition)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction(TIMEOUT_S)
            except KafkaException as exception:
                if not exception.args[0].retriable():
                    raise
            else:
                return

    def _give_up(self) -> None:
        """Abort, and read on from what the group has committed."""
        while True:
            try:
                self._producer.abort_transaction(TIMEOUT_S)
            except KafkaException as exception:
                if not exception.args[0].retriable():
                    raise
            else:
                break
        assigned = self._consumer.assignment()
        for each in self._consumer.committed(assigned, TIMEOUT_S):
            offset = each.offset if each.offset >= 0 else 0
            try:
                self._consumer.seek(TopicPartition(each.topic, each.partition, offset))
            except KafkaException as exception:
                if exception.args[0].code() != KafkaError._STATE:  # revoked meanwhile
                    raise


if __name__ == "__main__":
    try:
        Copier(*sys.argv[1:]).run()
    except KafkaException as failure:
        print(failure, file=sys.stderr, flush=True)
        sys.exit(FENCED)
