"""Share sessions: what each member of a share group fetches from this broker (KIP-932).

A session is named by group and member. It begins with a ShareFetch of epoch 0, which names all
partitions; later requests, ShareFetch or ShareAcknowledge, have the session's epoch, which then
grows, and a ShareFetch names what is added and what is forgotten.

====================  =============================================================
epoch in the request  meaning
====================  =============================================================
−1                    the last request: acknowledge, then end the session
0                     begin a session in place of the one there is
n                     must equal the session's epoch
====================  =============================================================

A session also ends with the connection that it was begun on. When it ends, what its member holds
is released.

Bounded are the sessions (``group.share.max.share.sessions``), and the partitions in all of them
together, which Kafka does not bound: over it as over the other, SHARE_SESSION_LIMIT_REACHED.

Kafka: ``ShareSessionCache``, ``SharePartitionManager.newContext``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_FIRST_EPOCH: Final = 1
_MAX_EPOCH: Final = 2**31 - 1

MAX_PARTITIONS: Final = 500_000
"""Partitions in all sessions together; one takes some 150 bytes."""


class SessionKey(NamedTuple):
    """A member of a share group."""

    group_id: str
    member_id: str


class SessionPartition(NamedTuple):
    """A partition that a member fetches."""

    topic_id: TopicId
    partition: int


class ShareSession:
    """What one member fetches. ``partitions`` is in the order in which they were named; true are
    those that the next answer has to name, whatever there is to say of them: they are new, or were
    refused.
    """

    __slots__ = ("connection_id", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection_id: int) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = _FIRST_EPOCH
        self.partitions: dict[SessionPartition, bool] = {}


class ShareSessions:
    """The share sessions of this broker.

    ``on_ended`` is called with a session that has ended, and whether it was the last of its group.
    """

    def __init__(
        self,
        max_sessions: Callable[[], int],
        on_ended: Callable[[ShareSession, bool], None],
        *,
        max_partitions: int = MAX_PARTITIONS,
    ) -> None:
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._on_ended = on_ended
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._of_connection: dict[int, dict[SessionKey, None]] = {}
        self._of_group: dict[str, int] = {}
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self, key: SessionKey, connection_id: int, partitions: Iterable[SessionPartition]
    ) -> ShareSession:
        """Begin a session; what the member held in the one before stays locked.

        SHARE_SESSION_LIMIT_REACHED: there are too many.
        """
        self._remove(key)
        session = ShareSession(key, connection_id)
        session.partitions = dict.fromkeys(partitions, False)
        if (
            len(self._sessions) >= self._max_sessions()
            or self._partition_count + len(session.partitions) > self._max_partitions
        ):
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self._sessions[key] = session
        self._partition_count += len(session.partitions)
        self._of_group[key.group_id] = self._of_group.get(key.group_id, 0) + 1
        self._of_connection.setdefault(connection_id, {})[key] = None
        return session

    def get(self, key: SessionKey) -> ShareSession:
        """Return a member's session; SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def advance(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request after its first; its epoch grows.

        SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH.
        """
        session = self.get(key)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = _FIRST_EPOCH if epoch == _MAX_EPOCH else epoch + 1
        return session

    def change(
        self,
        session: ShareSession,
        added: Iterable[SessionPartition],
        forgotten: Iterable[SessionPartition],
    ) -> None:
        """Add partitions to a session and take others out of it.

        SHARE_SESSION_LIMIT_REACHED: all sessions together would have too many.
        """
        before = len(session.partitions)
        changed = dict(session.partitions)
        for each in added:
            changed.setdefault(each, True)
        for each in forgotten:
            changed.pop(each, None)
        if self._partition_count + len(changed) - before > self._max_partitions:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session.partitions = changed
        self._partition_count += len(changed) - before

    def told(
        self, key: SessionKey, place: SessionPartition, *, is_refused: bool, has_records: bool
    ) -> bool:
        """Take note of what a request after the first is about to be told of a partition; return
        whether there is anything to tell. Kafka: ``CachedSharePartition.maybeUpdateResponseData``.
        """
        session = self._sessions.get(key)
        if session is None or place not in session.partitions:
            return True
        is_due = session.partitions[place]
        session.partitions[place] = is_refused
        return is_due or is_refused or has_records

    def end(self, key: SessionKey) -> None:
        """End a member's session, if it has one."""
        session = self._remove(key)
        if session is not None:
            self._on_ended(session, key.group_id not in self._of_group)

    def forget_all(self) -> None:
        """End every session without a word to ``on_ended``."""
        for key in tuple(self._sessions):
            self._remove(key)

    def connection_closed(self, connection_id: int) -> None:
        """End the sessions that were begun on a connection."""
        for key in list(self._of_connection.get(connection_id, ())):
            self.end(key)

    def _remove(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        self._partition_count -= len(session.partitions)
        left = self._of_group[key.group_id] - 1
        if left:
            self._of_group[key.group_id] = left
        else:
            del self._of_group[key.group_id]
        keys = self._of_connection[session.connection_id]
        del keys[key]
        if not keys:
            del self._of_connection[session.connection_id]
        return session
