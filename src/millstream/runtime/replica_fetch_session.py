"""A follower's half of a fetch session (KIP-227): only what changed is asked for again.

The first fetch names every partition and may open a session at the leader; after that a fetch names
the partitions whose position is another than at the fetch before, those that are new, and those
that are to be left out for now. Kafka: ``FetchSessionHandler``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from millstream.model.topic import TopicId
from millstream.replication.follower import FetchPosition

PartitionKey = tuple[TopicId, int]

_INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class SessionFetch:
    """What one fetch says: the session and its epoch, what to read, what to forget."""

    session_id: int
    epoch: int
    wanted: Mapping[PartitionKey, FetchPosition]
    forgotten: tuple[PartitionKey, ...]


class ReplicaFetchSession:
    """The session of one fetcher with one leader."""

    def __init__(self) -> None:
        self._session_id = 0
        self._epoch = _INITIAL_EPOCH
        self._told: dict[PartitionKey, FetchPosition] = {}

    def build(self, positions: Mapping[PartitionKey, FetchPosition]) -> SessionFetch:
        """Return what to send so that the leader reads exactly ``positions``."""
        if self._epoch == _INITIAL_EPOCH:
            self._told = dict(positions)
            return SessionFetch(self._session_id, _INITIAL_EPOCH, positions, ())
        wanted = {
            key: position for key, position in positions.items() if self._told.get(key) != position
        }
        forgotten = tuple(key for key in self._told if key not in positions)
        self._told = dict(positions)
        return SessionFetch(self._session_id, self._epoch, wanted, forgotten)

    def answered(self, session_id: int) -> None:
        """Take note of an answer; a leader that opened no session is asked for all again."""
        if session_id == 0:
            self.reset()
            return
        self._session_id = session_id
        self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """Begin anew: the connection is gone, or the leader knows no such session."""
        self._session_id = 0
        self._epoch = _INITIAL_EPOCH
        self._told = {}
