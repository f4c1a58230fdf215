"""Tables sent to a real broker and polled from it, beside records one by one."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.broker_process import BrokerProcess
from tests.system.wire import Wire, create_topic, produce

from millstream.client import aio
from millstream.client.consumer import Consumer
from millstream.client.core.consumer.errors import RecordError
from millstream.client.errors import (
    BrokerError,
    BufferFullError,
    ClosedError,
    RecordTooLargeError,
)
from millstream.client.partitioner import partition_for_key
from millstream.client.producer import Producer
from millstream.model.topic import TopicPartition
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.record import Record
from millstream.records.tables import table_schema

pytestmark = [pytest.mark.system, pytest.mark.usefixtures("each_kernel")]

PARTITIONS = 3


@pytest.fixture
def topic(broker: BrokerProcess, new_topic: Callable[[], str]) -> str:
    name = new_topic()
    with Wire(broker.host, broker.port) as wire:
        create_topic(wire, name, PARTITIONS)
    return name


@pytest.fixture
def producer(broker: BrokerProcess) -> Iterator[Producer]:
    with Producer(bootstrap_servers=broker.bootstrap) as made:
        yield made


def all_rows(broker: BrokerProcess, topic: str, count: int, **settings: object) -> pa.Table:
    settings = {"auto_offset_reset": "earliest", **settings}
    with Consumer(bootstrap_servers=broker.bootstrap, **settings) as consumer:
        consumer.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
        tables = []
        while count > 0:
            table = consumer.poll_table(10)
            assert table.num_rows, "no rows came"
            table.validate(full=True)
            assert table.schema.equals(table_schema())
            count -= table.num_rows
            tables.append(table)
    assert not count
    return pa.concat_tables(tables)


def some_table(rows: int) -> pa.Table:
    rng = random.Random(rows)
    keys = [rng.choice([None, b"k%d" % rng.randrange(100)]) for _ in range(rows)]
    headers = table_schema().field("headers").type
    return pa.table(
        {
            "id": pa.array(range(rows)),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array([f"value {i}" for i in range(rows)]),
            "headers": pa.array(
                [[{"key": "n", "value": b"%d" % i}] if i % 3 else None for i in range(rows)],
                headers,
            ),
        }
    )


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_table_goes_and_comes_back(broker: BrokerProcess, topic: str, codec: str) -> None:
    table = some_table(20_000)
    with Producer(bootstrap_servers=broker.bootstrap, compression_type=codec) as producer:
        future = producer.send_table(table, topic)
        metadata = future.result(30)
    assert future.done()
    assert metadata.rows == 20_000
    assert sum(each.count for each in metadata.ranges) == 20_000
    assert {each.partition: each.base_offset for each in metadata.ranges} == {0: 0, 1: 0, 2: 0}
    back = all_rows(broker, topic, 20_000)
    for row in back.select(["partition", "key"]).slice(0, 2000).to_pylist():
        if row["key"] is not None:
            assert row["partition"] == partition_for_key(row["key"], PARTITIONS)
    names = ["value", "key", "headers"]
    sent = table.set_column(2, "value", table["value"].cast(pa.binary())).select(names)
    assert (
        back.select(names)
        .sort_by("value")
        .equals(sent.cast(back.select(names).schema).sort_by("value"))
    )
    for partition in range(PARTITIONS):
        mine = back.filter(pa.compute.equal(back["partition"], partition))
        assert mine["offset"].to_pylist() == list(range(mine.num_rows))


def test_tables_and_records_keep_their_order(
    broker: BrokerProcess, topic: str, producer: Producer
) -> None:
    partition = pa.array([1] * 1000)
    for start in range(0, 6000, 2000):
        values = pa.array([b"%06d" % i for i in range(start, start + 1000)])
        producer.send_table(pa.table({"value": values, "p": partition}), topic, partition="p")
        for number in range(start + 1000, start + 2000):
            producer.send(topic, b"%06d" % number, partition=1)
    producer.flush(30)
    back = all_rows(broker, topic, 6000)
    assert back["value"].to_pylist() == [b"%06d" % i for i in range(6000)]


def test_more_than_fits_into_memory(broker: BrokerProcess, topic: str) -> None:
    rows = 30_000
    table = pa.table({"value": pa.array([b"x" * 100] * rows)})
    settings = {"buffer_memory": 200_000, "batch_size": 16_384}
    with Producer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        metadata = producer.send_table(table, topic).result(60)
    assert metadata.rows == rows
    assert all_rows(broker, topic, rows).num_rows == rows


def test_other_columns_and_a_reader(broker: BrokerProcess, topic: str, producer: Producer) -> None:
    table = some_table(1000)
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=100))
    producer.send_table(reader, topic, key=None, value="key", headers=None).result(30)
    with pytest.raises(TypeError, match="column 'id' cannot be the value: int64"):
        producer.send_table(table, topic, value="id")
    with pytest.raises(ValueError, match="row 2 is for partition 3"):
        producer.send_table(table.slice(0, 3), topic, partition=pa.array([0, 1, 3]))
    back = all_rows(broker, topic, 1000)
    wanted = table["key"].to_pylist()
    assert sorted(back["value"].to_pylist(), key=repr) == sorted(wanted, key=repr)
    assert back["key"].null_count == back["headers"].null_count == 1000


def test_batches_that_the_topic_does_not_take_are_split(
    broker: BrokerProcess, new_topic: Callable[[], str], producer: Producer
) -> None:
    topic = new_topic()
    with Wire(broker.host, broker.port) as wire:
        create_topic(wire, topic, PARTITIONS, {"max.message.bytes": "20000"})
    table = pa.table({"value": pa.array([b"%04d" % i * 100 for i in range(500)])})
    metadata = producer.send_table(table, topic).result(30)
    assert metadata.rows == 500
    assert sorted(all_rows(broker, topic, 500)["value"].to_pylist()) == table["value"].to_pylist()
    with pytest.raises(Exception, match="TOO_LARGE") as failure:
        producer.send_table(pa.table({"value": [b"y" * 50_000]}), topic).result(30)
    assert failure.value.__notes__ == ["1 rows were not delivered, 0 were"]


def test_rows_that_can_never_be_sent(broker: BrokerProcess, topic: str) -> None:
    table = pa.table({"value": [b"y" * 3000]})
    with (
        Producer(
            bootstrap_servers=broker.bootstrap, max_request_size=2000, batch_size=1000
        ) as producer,
        pytest.raises(RecordTooLargeError, match=r"max\.request\.size"),
    ):
        producer.send_table(table, topic)
    with pytest.raises(ClosedError):
        producer.send_table(table, topic)


def test_memory_that_does_not_come_free(broker: BrokerProcess, topic: str) -> None:
    settings = {"buffer_memory": 40_000, "batch_size": 10_000, "max_block_ms": 300}
    table = pa.table({"value": [b"y" * 1000] * 200})
    with Producer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        producer.send_table(table.slice(0, 1), topic).result(30)
        broker.process.send_signal(signal.SIGSTOP)
        try:
            with pytest.raises(BufferFullError):
                producer.send_table(table, topic)
        finally:
            broker.process.send_signal(signal.SIGCONT)


def test_polling_some_columns_and_bytes(
    broker: BrokerProcess, topic: str, producer: Producer
) -> None:
    producer.send_table(pa.table({"value": [b"v" * 100] * 5000}), topic).result(30)
    with Consumer(bootstrap_servers=broker.bootstrap, group_id=topic) as consumer:
        consumer.subscribe(topic)
        assert consumer.poll_table(0).num_rows == 0
        consumer.unsubscribe()
        consumer.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
        consumer.seek_to_beginning()
        count = 0
        while count < 5000:
            table = consumer.poll_table(10, columns=["offset", "topic"], max_bytes=1)
            assert table.schema.names == ["offset", "topic"]
            assert table["offset"].num_chunks == 1
            count += table.num_rows
        ends = consumer.end_offsets(consumer.assignment())
        assert {place: consumer.position(place) for place in ends} == ends
        with pytest.raises(ValueError, match="no column 'no'"):
            consumer.poll_table(columns=["no"])


def test_records_that_cannot_be_read(broker: BrokerProcess, topic: str) -> None:
    sound = encode_batch([Record(0, 1, None, b"a"), Record(0, 1, None, b"b")], BatchOptions())
    with Wire(broker.host, broker.port) as wire:
        for _ in range(3):
            produce(wire, topic, 0, sound)
    (segment,) = broker.directory.rglob(f"{topic}-0/*.log")
    with segment.open("r+b") as file:
        # The last byte of the second batch.
        file.seek(2 * len(sound) - 1)
        file.write(b"!")
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        assert consumer.to_arrow(1, 10)["offset"].to_pylist() == [0]
        assert consumer.to_arrow(9, 10)["offset"].to_pylist() == [1]
        consumer.seek(place, 0)
        assert consumer.poll_table(10)["offset"].to_pylist() == [0, 1]
        for _ in range(2):
            assert consumer.position(place) == 2
            with pytest.raises(RecordError) as failure:
                consumer.poll_table(10)
            assert (failure.value.topic_partition, failure.value.offset) == (place, 2)
        consumer.seek(place, failure.value.next_offset)
        assert consumer.poll_table(10)["offset"].to_pylist() == [4, 5]


def test_the_page_about_tables(broker: BrokerProcess, topic: str) -> None:
    page = Path(__file__).parents[2] / "docs" / "tables.md"
    (example,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    code = example.replace("localhost:9092", broker.bootstrap).replace('"events"', repr(topic))
    names: dict[str, object] = {}
    exec(code, names)
    assert names["rows"] == 2


def test_tables_with_asyncio(broker: BrokerProcess, topic: str) -> None:
    table = pa.table({"value": pa.array([b"x" * 100] * 5000)})
    settings = {"bootstrap_servers": broker.bootstrap}

    async def there_and_back() -> int:
        async with aio.Producer(**settings, buffer_memory=200_000, batch_size=16_384) as producer:
            future = await producer.send_table(table, topic)
            assert (await future).rows == 5000
            assert future.done()
            with pytest.raises(ValueError, match="no column 'no'"):
                await producer.send_table(table, topic, value="no")
        rows = 0
        async with aio.Consumer(**settings, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, p) for p in range(PARTITIONS)])
            while rows < 5000:
                polled = await consumer.poll_table(10, columns=["value"])
                assert polled.num_rows
                assert set(polled["value"].to_pylist()) == {b"x" * 100}
                rows += polled.num_rows
        return rows

    assert asyncio.run(there_and_back()) == 5000


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_values_go_in_one_go(broker: BrokerProcess, topic: str, codec: str) -> None:
    values = [b"%d" % number * (number % 50) for number in range(20_000)]
    settings = {"batch_size": 16_384, "compression_type": codec}
    with Producer(bootstrap_servers=broker.bootstrap, **settings) as producer:
        spread = producer.send_values(values, topic).result(30)
        assert sum(each.count for each in spread.ranges) == spread.rows == 20_000
        assert {each.partition for each in spread.ranges} == {0, 1, 2}
        before = {each.partition: each.base_offset + each.count for each in spread.ranges}
        (mine,) = producer.send_values(values, topic, partition=2).result(30).ranges
        assert (mine.partition, mine.base_offset, mine.count) == (2, before[2], 20_000)
        assert producer.send_values([], topic).result(30).rows == 0
        with pytest.raises(BrokerError, match="no partition 3"):
            producer.send_values(values, topic, partition=3)
    back = all_rows(broker, topic, 40_000)
    in_order = back.filter(pa.compute.equal(back["partition"], 2))["value"].to_pylist()
    assert in_order[-20_000:] == values
    assert back["key"].null_count == 40_000


def test_values_without_idempotence_bear_a_checksum(broker: BrokerProcess, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, acks=1) as producer:
        producer.send_values([b"a", b"b"], topic, partition=0, timestamp_ms=7).result(30)
        producer.send_table(pa.table({"value": [b"c"]}), topic, partition=pa.array([0])).result(30)
    assert all_rows(broker, topic, 3)["value"].to_pylist() == [b"a", b"b", b"c"]


def test_a_value_that_is_too_large_and_values_under_asyncio(
    broker: BrokerProcess, topic: str
) -> None:
    async def run() -> int:
        async with aio.Producer(bootstrap_servers=broker.bootstrap) as producer:
            with pytest.raises(RecordTooLargeError, match="a row takes"):
                await producer.send_values([b"x" * 2_000_000], topic)
            return (await (await producer.send_values([b"x"] * 1000, topic))).rows

    assert asyncio.run(run()) == 1000
    assert all_rows(broker, topic, 1000).num_rows == 1000


def test_so_many_records_as_a_frame(broker: BrokerProcess, topic: str, producer: Producer) -> None:
    """Each record is in one table, whatever the tables and polls between them take."""
    values = [b"%05d" % number for number in range(3_000)]
    producer.send_table(pa.table({"value": values}), topic, partition=pa.array([1] * 3_000)).result(
        30
    )
    place = TopicPartition(topic, 1)
    settings = {"bootstrap_servers": broker.bootstrap, "auto_offset_reset": "earliest"}
    with Consumer(**settings) as consumer:
        consumer.assign([place])
        found: list[bytes] = []
        for count in (1, 700, 64):
            table = consumer.to_arrow(count, 20)
            assert table.schema.equals(table_schema())
            found += table["value"].to_pylist()
            assert consumer.position(place) == len(found)
            found += [record.value for record in consumer.poll(20, max_records=2) if record.value]
        found += consumer.to_polars(500, 20, columns=["value"])["value"].to_list()
        found += list(consumer.to_pandas(500, 20)["value"])
        rest = consumer.to_arrow(len(values) - len(found), 60)
        assert found + rest["value"].to_pylist() == values
        assert consumer.to_arrow(5_000, 0.1).num_rows == 0
        assert consumer.to_arrow(timeout=0).num_rows == 0
        consumer.seek(place, 2_990)
        consumer.to_arrow(3, 20)
        consumer.seek(place, 5)
        assert consumer.to_arrow(1, 20)["offset"].to_pylist() == [5]
        with pytest.raises(ValueError, match="at least 1"):
            consumer.to_arrow(0)

    async def with_asyncio() -> list[bytes]:
        async with aio.Consumer(**settings) as consumer:
            consumer.assign([place])
            first = (await consumer.to_arrow(1_001, 20, columns=["value"]))["value"].to_pylist()
            second = list((await consumer.to_pandas(1_000, 20))["value"])
            third = (await consumer.to_polars(999, 60))["value"].to_list()
            return [*first, *second, *third]

    assert asyncio.run(with_asyncio()) == values
