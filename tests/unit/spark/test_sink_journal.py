"""What the sink's driver writes down, and what it finds again."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.client.core.producer.transactions import PreparedTransaction
from millstream.model.errors import MillstreamError
from millstream.spark.sink_commits import SinkState
from millstream.spark.sink_journal import NO_BATCH, Journal


def transactions(count: int) -> list[PreparedTransaction]:
    return [
        PreparedTransaction(transactional_id=f"s-{n}-0", producer_id=1000 + n, epoch=n, is_v2=True)
        for n in range(count)
    ]


def test_a_batch_is_decided_and_then_committed(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "sink")
    assert (journal.last_committed(), journal.decided()) == (NO_BATCH, {})
    for batch in range(3):
        journal.decide(batch, transactions(2))
        assert Journal(tmp_path / "sink").decided() == {batch: transactions(2)}
        assert journal.last_committed() == batch - 1
        journal.finish(batch)
        assert (journal.last_committed(), journal.decided()) == (batch, {})
    assert [path.name for path in (tmp_path / "sink").iterdir()] == ["2.committed"]


def test_a_batch_is_decided_by_one_driver(tmp_path: Path) -> None:
    Journal(tmp_path).decide(4, transactions(1))
    with pytest.raises(MillstreamError, match="another driver"):
        Journal(tmp_path).decide(4, transactions(2))
    assert Journal(tmp_path).decided() == {4: transactions(1)}


def test_a_decision_that_is_still_there_beside_its_end_is_none(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for batch in (0, 1):
        journal.decide(batch, transactions(1))
        left = (tmp_path / f"{batch}.commit").read_bytes()
        journal.finish(batch)
        (tmp_path / f"{batch}.commit").write_bytes(left)  # a store copies, and then deletes
        assert journal.decided() == {}
    journal.decide(2, transactions(1))
    journal.decide(2, transactions(1))  # a store has lost its answer to the first
    journal.finish(2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2.committed"]


def test_the_name_stays(tmp_path: Path) -> None:
    name = Journal(tmp_path / "sink").name()
    assert name.startswith("millstream-sink-")
    assert Journal(tmp_path / "sink").name() == name
    assert Journal(tmp_path / "other").name() != name


def test_a_damaged_decision_stops_the_query(tmp_path: Path) -> None:
    (tmp_path / "3.commit").write_text("[{")
    with pytest.raises(MillstreamError, match=r"3\.commit is damaged"):
        Journal(tmp_path).decided()


def test_notes_of_earlier_versions_are_not_overlooked(tmp_path: Path) -> None:
    (tmp_path / "5").mkdir()
    journal = Journal(tmp_path)
    state = SinkState("s", journal.last_committed(), journal.begun_before())
    with pytest.raises(MillstreamError, match="begun by a version"):
        state.is_committed(5)
    assert not state.is_committed(6)
    journal.decide(6, [])
    journal.finish(6)
    assert journal.begun_before() == frozenset()


def test_every_attempt_has_its_own_id() -> None:
    state = SinkState("s", 3, frozenset())
    assert state.transactional_id(4, 1) == "s-4-1"
    assert state.is_committed(3)
    assert not state.is_committed(4)
