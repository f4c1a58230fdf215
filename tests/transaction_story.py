"""Transactional programs of our client, for any broker: Millstream's own and Apache Kafka's."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pytest

from millstream.client import Admin, Consumer, GroupMetadata, Producer, TopicPartition
from millstream.client.aio import Consumer as AsyncConsumer
from millstream.client.aio import Producer as AsyncProducer
from millstream.client.core.admin.topics import NewTopic
from millstream.client.errors import (
    AbortableTransactionError,
    FatalTransactionError,
    ProducerFencedError,
)

FETCHES: tuple[dict[str, Any], ...] = ({"max_partition_fetch_bytes": 1}, {})
"""Settings of consumers with small and with large fetches."""


def create(bootstrap: str, *names: str, partitions: int = 3) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions) for name in names]).get_all()


def values_of(bootstrap: str, topic: str, *, committed: bool = True, **more: object) -> list[bytes]:
    """Everything that a reader sees to the end, by partition and in order."""
    isolation = "read_committed" if committed else "read_uncommitted"
    found: list[bytes] = []
    settings = {"bootstrap_servers": bootstrap, "isolation_level": isolation, **more}
    with Consumer[bytes, bytes](**settings) as consumer:  # type: ignore[arg-type]
        places = [each.topic_partition for each in consumer.partitions_for(topic)]
        consumer.assign(places)
        consumer.seek_to_beginning()
        ends = consumer.end_offsets(places)
        while any(consumer.position(place) < end for place, end in ends.items()):
            found += [record.value or b"" for record in consumer.poll(0.5)]
    return found


def seed(bootstrap: str, topic: str, count: int) -> list[bytes]:
    values = [b"%d" % number for number in range(count)]
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            producer.send(topic, value, key=value)
    return values


def exactly_once(bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
    """Each value is there once for readers of committed records, however they fetch."""
    expected = Counter(values)
    for more in FETCHES:
        assert Counter(values_of(bootstrap, topic, **more)) == expected


def copy(bootstrap: str, source: str, target: str, count: int) -> None:
    """Copy with one transaction for each poll; every third is aborted, and read again."""
    group = f"copy-{target}"
    settings = {"bootstrap_servers": bootstrap, "isolation_level": "read_committed"}
    number = done = 0
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=group) as producer,
        Consumer[bytes, bytes](
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=40,
            **settings,  # type: ignore[arg-type]
        ) as consumer,
    ):
        producer.init_transactions()
        consumer.subscribe([source])
        while done < count:
            records = consumer.poll(1.0)
            if not records:
                continue
            number += 1
            producer.begin_transaction()
            next_offsets = {}
            for record in records:
                producer.send(target, record.value, key=record.key)
                next_offsets[record.topic_partition] = record.offset + 1
            producer.send_offsets_to_transaction(next_offsets, consumer.group_metadata())
            if number % 3 == 0:
                producer.abort_transaction()
                for place in next_offsets:
                    first = min(r.offset for r in records if r.topic_partition == place)
                    consumer.seek(place, first)
            else:
                producer.commit_transaction()
                done += len(records)


async def copy_async(bootstrap: str, source: str, target: str, count: int) -> None:
    """The same with asyncio, by the context manager."""
    group = f"copy-{target}"
    number = done = 0
    async with (
        AsyncProducer(bootstrap_servers=bootstrap, transactional_id=group) as producer,
        AsyncConsumer[bytes, bytes](
            bootstrap_servers=bootstrap,
            group_id=group,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=40,
        ) as consumer,
    ):
        await producer.init_transactions()
        await consumer.subscribe([source])
        while done < count:
            records = await consumer.poll(1.0)
            if not records:
                continue
            number += 1
            next_offsets = {record.topic_partition: record.offset + 1 for record in records}
            ending = pytest.raises(KeyError) if number % 3 == 0 else contextlib.nullcontext()
            with ending:
                async with producer.transaction():
                    for record in records:
                        await producer.send(target, record.value, key=record.key)
                    await producer.send_offsets_to_transaction(
                        next_offsets, consumer.group_metadata()
                    )
                    if number % 3 == 0:
                        raise KeyError("aborts")
            if number % 3 == 0:
                for place in next_offsets:
                    first = min(r.offset for r in records if r.topic_partition == place)
                    consumer.seek(place, first)
            else:
                done += len(records)


def fencing(bootstrap: str, topic: str) -> None:
    """A successor fences its predecessor, and what that has sent is never seen."""
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=f"fenced-{topic}") as old,
        Producer(bootstrap_servers=bootstrap, transactional_id=f"fenced-{topic}") as new,
    ):
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, b"old", partition=0).result(30)
        new.init_transactions()
        new.begin_transaction()
        new.send(topic, b"new", partition=0).result(30)
        with pytest.raises((ProducerFencedError, AbortableTransactionError)):
            old.commit_transaction()
        with pytest.raises(FatalTransactionError):
            old.abort_transaction()
        new.commit_transaction()
    assert values_of(bootstrap, topic) == [b"new"]


def table(bootstrap: str, topic: str) -> None:
    """Tables belong to the transaction in which they are sent."""
    rows = pa.table({"value": pa.array([b"%d" % n for n in range(5000)], pa.binary())})
    with Producer(bootstrap_servers=bootstrap, transactional_id=f"table-{topic}") as producer:
        producer.init_transactions()
        with producer.transaction():
            first = producer.send_table(rows, topic)
        assert first.result(10).rows == 5000
        producer.begin_transaction()
        producer.send_table(rows, topic)
        producer.flush()
        producer.abort_transaction()
    assert sorted(map(int, values_of(bootstrap, topic))) == list(range(5000))
    assert len(values_of(bootstrap, topic, committed=False)) == 10_000


def operators(bootstrap: str, topic: str) -> None:
    """An open transaction is listed, described, and ended from outside."""
    name = f"open-{topic}"
    place = TopicPartition(topic, 0)
    with (
        Producer(bootstrap_servers=bootstrap, transactional_id=name) as producer,
        Admin(bootstrap_servers=bootstrap) as admin,
    ):
        producer.init_transactions()
        with producer.transaction():
            producer.send(topic, b"before", partition=0)
        producer.begin_transaction()
        start = producer.send(topic, b"never", partition=0).result(30).offset
        (listed,) = [
            each
            for each in admin.list_transactions(states=["Ongoing"])
            if each.transactional_id == name
        ]
        assert admin.list_transactions(pattern="no-such-.*") == []
        described = admin.describe_transactions([name])[name].get()
        assert (described.state, described.partitions) == ("Ongoing", (place,))
        assert described.producer_id == listed.producer_id
        found = admin.find_open_transaction(place, start)
        assert found.producer.producer_id == listed.producer_id
        assert admin.find_hanging_transactions([place], max_transaction_timeout_ms=0) == []
        fenced = admin.fence_producers([name])[name].get()
        assert fenced.epoch > described.producer_epoch
        with pytest.raises((FatalTransactionError, AbortableTransactionError)):
            producer.commit_transaction()
        features = admin.describe_features()
        assert features.finalized["transaction.version"].last == 2
    assert values_of(bootstrap, topic) == [b"before"]


def copy_everything(bootstrap: str, source: str, target: str) -> None:
    """Copy in small transactions until all is copied, from where the last copier came to.

    For a process that is killed: what it left is ended by its successor, which has its id. Each
    commit is told on standard output.
    """
    group = GroupMetadata(f"copy-{target}")
    with (
        Producer(
            bootstrap_servers=bootstrap, transactional_id=group.group_id, max_block_ms=120_000
        ) as producer,
        Consumer[bytes, bytes](
            bootstrap_servers=bootstrap,
            group_id=group.group_id,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=20,
        ) as consumer,
    ):
        producer.init_transactions()
        places = [each.topic_partition for each in consumer.partitions_for(source)]
        ends = consumer.end_offsets(places)
        consumer.assign(places)
        while any(consumer.position(place, 120) < end for place, end in ends.items()):
            records = consumer.poll(1.0)
            try:
                with producer.transaction():
                    for record in records:
                        producer.send(target, record.value, key=record.key)
                    if records:
                        producer.flush()
                        print("delivered", flush=True)
                        offsets = {each.topic_partition: each.offset + 1 for each in records}
                        producer.send_offsets_to_transaction(offsets, group)
            except AbortableTransactionError:
                for record in reversed(records):
                    consumer.seek(record.topic_partition, record.offset)
            else:
                print("committed", flush=True)
