"""Share sessions: their epochs, what ends them, how many there may be."""

from __future__ import annotations

import pytest

from millstream.model.errors import KafkaError
from millstream.runtime.share.share_sessions import (
    SessionKey,
    SessionPartition,
    ShareSession,
    ShareSessions,
)

KEY = SessionKey("g", "m")


class Ended:
    def __init__(self) -> None:
        self.sessions: list[tuple[SessionKey, bool]] = []

    def __call__(self, session: ShareSession, is_last: bool) -> None:
        self.sessions.append((session.key, is_last))


def partitions(*indexes: int) -> list[SessionPartition]:
    return [SessionPartition(bytes(16), index) for index in indexes]


@pytest.fixture
def ended() -> Ended:
    return Ended()


@pytest.fixture
def sessions(ended: Ended) -> ShareSessions:
    return ShareSessions(lambda: 3, ended, max_partitions=10)


def test_the_epoch_grows_and_begins_again_at_one(sessions: ShareSessions) -> None:
    session = sessions.begin(KEY, 1, [])
    assert sessions.advance(KEY, 1) is session
    assert session.epoch == 2
    session.epoch = 2**31 - 1
    sessions.advance(KEY, 2**31 - 1)
    assert session.epoch == 1


def test_partitions_keep_their_order(sessions: ShareSessions) -> None:
    session = sessions.begin(KEY, 1, partitions(3, 1, 2))
    sessions.change(session, partitions(1, 9), partitions(3, 7))
    assert list(session.partitions) == partitions(1, 2, 9)


def test_all_sessions_of_a_connection_end_with_it(sessions: ShareSessions, ended: Ended) -> None:
    other = SessionKey("g", "n")
    sessions.begin(KEY, 1, [])
    sessions.begin(other, 1, [])
    sessions.begin(SessionKey("g", "o"), 2, [])
    sessions.connection_closed(1)
    assert ended.sessions == [(KEY, False), (other, False)]
    sessions.connection_closed(1)
    assert len(sessions) == 1


def test_a_session_that_moved_to_another_connection_stays(
    sessions: ShareSessions, ended: Ended
) -> None:
    sessions.begin(KEY, 1, [])
    sessions.begin(KEY, 2, [])
    sessions.connection_closed(1)
    assert ended.sessions == []
    sessions.connection_closed(2)
    assert ended.sessions == [(KEY, True)]


def test_what_is_told_of_a_partition_without_records(sessions: ShareSessions) -> None:
    """Once when it is new in the session, and once when it is refused no more."""

    def told(
        place: SessionPartition, *, is_refused: bool = False, has_records: bool = False
    ) -> bool:
        return sessions.told(KEY, place, is_refused=is_refused, has_records=has_records)

    old, new = partitions(0, 1)
    session = sessions.begin(KEY, 1, [old])
    sessions.change(session, [old, new], [])
    assert [told(old), told(new), told(new)] == [False, True, False]
    assert told(old, has_records=True)
    assert told(old, is_refused=True)
    assert [told(old), told(old)] == [True, False]


def test_all_sessions_are_forgotten(sessions: ShareSessions, ended: Ended) -> None:
    sessions.begin(KEY, 1, partitions(0))
    sessions.forget_all()
    assert len(sessions) == 0
    assert not ended.sessions
    sessions.connection_closed(1)


def test_sessions_and_their_partitions_are_bounded(sessions: ShareSessions) -> None:
    session = sessions.begin(KEY, 1, partitions(*range(8)))
    with pytest.raises(KafkaError, match="SHARE_SESSION_LIMIT_REACHED"):
        sessions.begin(SessionKey("h", "m"), 1, partitions(1, 2, 3))
    with pytest.raises(KafkaError, match="SHARE_SESSION_LIMIT_REACHED"):
        sessions.change(session, partitions(20, 21, 22), [])
    assert len(session.partitions) == 8
    sessions.change(session, partitions(20, 21, 22), partitions(0))
    sessions.begin(SessionKey("h", "m"), 1, [])
    sessions.begin(SessionKey("i", "m"), 1, [])
    with pytest.raises(KafkaError, match="SHARE_SESSION_LIMIT_REACHED"):
        sessions.begin(SessionKey("j", "m"), 1, [])
    sessions.end(KEY)
    sessions.begin(SessionKey("j", "m"), 1, partitions(*range(10)))
