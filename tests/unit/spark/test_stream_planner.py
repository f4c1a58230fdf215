"""What a streaming query plans when its topics are not what they were; no broker, no JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from millstream.model.errors import ConfigError
from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition
from millstream.spark.options import Subscription, parse_options
from millstream.spark.plan import DataLossError
from millstream.spark.stream import TopicStreamReader

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class TopicsTwin:
    """Topics whose logs are two offsets for each partition."""

    def __init__(self, logs: Mapping[TopicPartition, tuple[Offset, Offset]]) -> None:
        self.logs = dict(logs)
        self.open_transactions: dict[TopicPartition, Offset] = {}

    def __enter__(self) -> TopicsTwin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def topic_partitions(self, subscription: Subscription) -> list[TopicPartition]:
        return sorted(self.logs)

    def earliest(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        return {
            topic_partition: self.logs[topic_partition][0] for topic_partition in topic_partitions
        }

    def latest(
        self, topic_partitions: Sequence[TopicPartition], *, read_committed: bool
    ) -> dict[TopicPartition, Offset]:
        hidden = self.open_transactions if read_committed else {}
        return {
            topic_partition: hidden.get(topic_partition, self.logs[topic_partition][1])
            for topic_partition in topic_partitions
        }

    def at_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, Offset | None]:
        return dict.fromkeys(timestamps)

    def ids(self, names: Iterable[str]) -> dict[str, TopicId]:
        return {}

    def sizes(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return {}

    def commit(self, group: str, positions: Mapping[TopicPartition, Offset]) -> None:
        pass


def planner(topics: TopicsTwin, **options: str) -> TopicStreamReader:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "startingOffsets": "earliest"}
    named = {name.replace("_", "."): text for name, text in options.items()}
    made = TopicStreamReader(parse_options(given | named, streaming=True), StructType([]))
    made._topics = topics
    return made


def advance(made: TopicStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    return made.latestOffset(start, ReadAllAvailable())


def read(made: TopicStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    return [str(each) for task in made.partitions(start, end) for each in task.value]


@pytest.mark.parametrize("available_now", [False, True])
def test_a_log_that_was_cut(available_now: bool) -> None:
    """What came in place of the offsets that were read was passed over, and with AvailableNow
    nobody was told.
    """
    topics = TopicsTwin({ZERO: (0, 100)})
    strict = planner(topics)
    at_100 = advance(strict, strict.initialOffset())
    topics.logs[ZERO] = (0, 40)
    if available_now:
        strict.prepareForTriggerAvailableNow()
    with pytest.raises(DataLossError, match="t-0 ends at 40, before offset 100 that was read"):
        advance(strict, at_100)
    lenient = planner(topics, failOnDataLoss="false")
    if available_now:
        lenient.prepareForTriggerAvailableNow()
    at_40 = advance(lenient, at_100)
    assert at_40["t"] == {"0": 40}
    assert read(lenient, at_100, at_40) == []
    assert advance(lenient, at_40) == at_40
    topics.logs[ZERO] = (0, 110)
    later = planner(topics)
    assert read(later, at_40, advance(later, at_40)) == ["t-0[40, 110)"]


def test_an_open_transaction_is_no_loss() -> None:
    topics = TopicsTwin({ZERO: (0, 100)})
    dirty = planner(topics)
    at_100 = advance(dirty, dirty.initialOffset())
    topics.open_transactions[ZERO] = 80
    committed = planner(topics, kafka_isolation_level="read_committed")
    assert advance(committed, at_100) == at_100
    topics.logs[ZERO] = (0, 90)
    with pytest.raises(DataLossError):
        advance(committed, at_100)


def test_a_new_partition_whose_first_records_are_gone() -> None:
    topics = TopicsTwin({ZERO: (5, 100)})
    made = planner(topics)
    start = advance(made, made.initialOffset())
    topics.logs[ONE] = (0, 3)
    assert advance(made, start)["t"] == {"0": 100, "1": 3}
    topics.logs[ONE] = (7, 9)
    with pytest.raises(DataLossError, match=r"\[0, 7\) of t-1"):
        advance(made, start)
    lenient = planner(topics, failOnDataLoss="false")
    assert read(lenient, start, advance(lenient, start)) == ["t-1[7, 9)"]


@pytest.mark.parametrize(
    "offset", [{"logOffset": 3}, {"t": {"x": 1}}, {"t": {"0": "1"}}, {"t": {"0": 1}, "#ids": 5}, 7]
)
def test_a_checkpoint_of_another_source(offset: Any) -> None:
    made = planner(TopicsTwin({ZERO: (0, 9)}))
    with pytest.raises(ConfigError, match="another checkpointLocation"):
        advance(made, offset)


def test_a_new_partition_that_is_cut_before_its_micro_batch_runs() -> None:
    """Retention has deleted records between plan and read: they were left out without a word."""
    topics = TopicsTwin({ZERO: (0, 10)})
    made = planner(topics)
    start = advance(made, made.initialOffset())
    topics.logs[ONE] = (0, 50)
    end = advance(made, start)
    assert read(made, start, end) == ["t-1[0, 50)"]
    topics.logs[ONE] = (20, 50)
    with pytest.raises(DataLossError, match=r"offsets \[0, 20\) of t-1, new here"):
        read(made, start, end)
    assert read(planner(topics, failOnDataLoss="false"), start, end) == ["t-1[20, 50)"]
