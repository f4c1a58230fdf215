"""What a follower names in its fetches: everything at first, then what changed (KIP-227)."""

from __future__ import annotations

from millstream.model.topic import TopicId
from millstream.replication.follower import FetchPosition
from millstream.runtime.replicas.replica_fetch_session import PartitionKey, ReplicaFetchSession

TOPIC = TopicId(bytes(16))
A: PartitionKey = (TOPIC, 0)
B: PartitionKey = (TOPIC, 1)


def at(offset: int) -> FetchPosition:
    return FetchPosition(1, offset, 1, 0)


def test_the_first_fetch_names_everything_and_opens_a_session() -> None:
    session = ReplicaFetchSession()
    fetch = session.build({A: at(0), B: at(0)})
    assert (fetch.session_id, fetch.epoch, set(fetch.wanted)) == (0, 0, {A, B})


def test_later_fetches_name_what_changed() -> None:
    session = ReplicaFetchSession()
    session.build({A: at(0), B: at(0)})
    session.answered(7)
    fetch = session.build({A: at(5), B: at(0)})
    assert (fetch.session_id, fetch.epoch) == (7, 1)
    assert (fetch.wanted, fetch.forgotten) == ({A: at(5)}, ())
    session.answered(7)
    assert session.build({}).wanted == {}
    assert session.told == {A: at(5), B: at(0)}


def test_a_partition_left_out_is_forgotten_and_named_again() -> None:
    session = ReplicaFetchSession()
    session.build({A: at(0), B: at(0)})
    session.answered(7)
    assert session.build({B: None}).forgotten == (B,)
    session.answered(7)
    assert session.build({B: None}).forgotten == ()
    session.answered(7)
    assert session.build({B: at(0)}).wanted == {B: at(0)}


def test_a_fetch_asks_for_any_as_long_as_something_is_not_left_out() -> None:
    session = ReplicaFetchSession()
    assert not session.asks_for_any({A: None})
    assert session.asks_for_any({A: None, B: at(0)})
    session.build({A: at(0), B: at(0)})
    session.answered(7)
    assert session.asks_for_any({})
    assert session.asks_for_any({A: None})
    assert not session.asks_for_any({A: None, B: None})
    assert session.told == {A: at(0), B: at(0)}


def test_a_leader_without_room_for_sessions_is_told_all_each_time() -> None:
    session = ReplicaFetchSession()
    session.build({A: at(0)})
    session.answered(0)
    assert session.is_new
    fetch = session.build({A: at(0)})
    assert (fetch.session_id, fetch.epoch, fetch.wanted) == (0, 0, {A: at(0)})


def test_after_a_lost_connection_everything_is_named_again() -> None:
    session = ReplicaFetchSession()
    session.build({A: at(0)})
    session.answered(7)
    assert not session.is_new
    session.reset()
    assert (session.is_new, session.told) == (True, {})
    fetch = session.build({A: at(0)})
    assert (fetch.session_id, fetch.epoch, fetch.wanted) == (7, 0, {A: at(0)})
    session.answered(8)
    assert (session.build({}).session_id, session.is_new) == (8, False)
