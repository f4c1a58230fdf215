"""What a table remembers of a load."""

from __future__ import annotations

import pytest

from millstream.model.topic import ZERO_TOPIC_ID, TopicId, TopicPartition
from millstream.spark.lakehouse.ledger import BATCH, Ledger, RecreatedTopicError, after, fold, keys
from millstream.spark.ranges import OffsetRange

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NEW = TopicId(bytes(range(16))), TopicId(bytes(range(1, 17)))


def test_a_new_ledger_knows_nothing() -> None:
    ledger = Ledger({})
    assert ledger.batch == 0
    assert ledger.position(ZERO) is None


def test_a_batch_moves_the_positions_and_its_number() -> None:
    first = after(Ledger({}), [OffsetRange(ZERO, 5, 9), OffsetRange(ONE, 0, 2)], {"t": OLD})
    assert first == {
        BATCH: 1,
        "t/0": 9,
        "t/0/start": 5,
        "t/0/id": fold(OLD),
        "t/1": 2,
        "t/1/start": 0,
        "t/1/id": fold(OLD),
    }
    second = after(Ledger(first), [OffsetRange(ZERO, 9, 12)], {})
    assert second == {BATCH: 2, "t/0": 12}
    assert set(first) <= set(keys([ZERO, ONE]))


def test_ranges_of_one_partition_follow_each_other() -> None:
    pieces = [OffsetRange(ZERO, 4, 9), OffsetRange(ZERO, 0, 4)]
    assert after(Ledger({}), pieces, {})["t/0"] == 9


def test_what_is_in_the_table_is_never_committed_again() -> None:
    with pytest.raises(AssertionError, match="is in the table up to 9"):
        after(Ledger({"t/0": 9}), [OffsetRange(ZERO, 8, 12)], {})


def test_a_topic_made_anew_is_noticed() -> None:
    ledger = Ledger(after(Ledger({}), [OffsetRange(ZERO, 0, 9)], {"t": OLD}))
    ledger.check_topic(ZERO, OLD, "x")
    ledger.check_topic(ZERO, ZERO_TOPIC_ID, "x")
    with pytest.raises(RecreatedTopicError, match="after offset 9 of t-0"):
        ledger.check_topic(ZERO, NEW, "x")


def test_an_id_is_folded_to_a_number_that_every_table_can_keep() -> None:
    assert 0 < fold(TopicId(b"\xff" * 16)) < 2**63
    assert fold(ZERO_TOPIC_ID) == 1
    assert fold(OLD) != fold(NEW)
