"""Three loads that follow one topic, one into each kind of table, while its brokers come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.system.lakehouse.topic_site import TopicSite

from millstream.spark.lakehouse.batches import BatchReport
from millstream.spark.lakehouse.jobs import run_load
from millstream.spark.lakehouse.table import KINDS

PATIENCE_S: Final = 120.0
PARTITIONS: Final = 3


class FollowThrough:
    """``with FollowThrough(...) as loads:`` starts the three loads and stops them again."""

    def __init__(self, bootstrap: str, topic: str, directory: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.sites = [
            TopicSite(bootstrap, topic, directory).kind(kind).using(group_id=f"loads-{kind}")
            for kind in KINDS
        ]
        self.rows = dict.fromkeys(KINDS, 0)
        self.written = 0
        self._stop = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._load, args=(site,)) for site in self.sites]

    def _load(self, site: TopicSite) -> None:
        kind = site.settings.table.kind
        settings = replace(site.settings, follow=True, freshness_ms=200, batch_bytes=32_000)

        def on_batch(report: BatchReport) -> None:
            self.rows[kind] += report.rows

        try:
            run_load(settings, on_batch=on_batch, should_stop=self._stop.is_set)
        except BaseException as error:
            self._errors.append(error)

    def write(self, count: int) -> None:
        """Write numbers, each acknowledged by all in-sync replicas."""
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                failed.append(error)

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "message.timeout.ms": 100_000,
                "log_level": 0,
            }
        )
        for number in range(self.written, self.written + count):
            producer.produce(
                self.topic,
                b"%d" % number,
                partition=number % PARTITIONS,
                on_delivery=delivered,
            )
        assert producer.flush(PATIENCE_S) == 0
        assert not failed, failed[0]
        self.written += count

    def until(self, holds: Callable[[int], bool]) -> None:
        """Wait until it holds for the rows of every table."""
        deadline = time.monotonic() + PATIENCE_S
        while not all(holds(rows) for rows in self.rows.values()):
            assert not self._errors, self._errors
            assert time.monotonic() < deadline, self.rows
            time.sleep(0.05)

    def finish(self) -> None:
        """Wait until all is in the tables, stop, and compare them with the topic."""
        self.until(lambda rows: rows >= self.written)
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        assert not self._errors, self._errors
        expected = self._topic_content()
        assert len(expected) == self.written
        for site in self.sites:
            found = site.audit()
            assert found.is_clean, found
            assert site.rows("partition", "offset", "value") == expected

    def _topic_content(self) -> list[tuple[int, int, bytes]]:
        """Return partition, offset and value of every record, as librdkafka reads them."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "truth"})
        consumer.assign([TopicPartition(self.topic, number, 0) for number in range(PARTITIONS)])
        rows: list[tuple[int, int, bytes]] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(rows) < self.written and time.monotonic() < deadline:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                rows.append((message.partition(), message.offset(), message.value()))
        consumer.close()
        return sorted(rows)

    def __enter__(self) -> FollowThrough:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
