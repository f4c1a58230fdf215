"""A follower's half of a fetch session (KIP-227): only what changed is asked for again.

The first fetch names every partition and may open a session at the leader; after that a fetch names
the partitions whose position is another than at the fetch before, those that are new, and those
that are to be left out for now. Who fetches says which may have changed, so a fetch costs as much
as has changed and not as much as is followed. Kafka: ``FetchSessionHandler``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from millstream.model.topic import TopicId
from millstream.replication.follower import FetchPosition

PartitionKey = tuple[TopicId, int]
Changes = Mapping[PartitionKey, FetchPosition | None]
"""Partitions that may have changed: where to read them from, None where they are left out."""

_INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1


class SessionFetch(NamedTuple):
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
        self.told: dict[PartitionKey, FetchPosition] = {}
        """What the leader reads by the fetches built so far."""

    @property
    def is_new(self) -> bool:
        """True while the leader has to be told everything."""
        return self._epoch == _INITIAL_EPOCH

    def asks_for_any(self, changes: Changes) -> bool:
        """Tell whether a fetch with these changes would ask for any partition at all."""
        for position in changes.values():
            if position is not None:
                return True
        return any(key not in changes for key in self.told)

    def build(self, changes: Changes) -> SessionFetch:
        """Return what to send so that the leader reads what was told so far, with these changes:
        a position to read from, or None for a partition to leave out. Those that are no change are
        not sent.
        """
        if self.is_new:
            self.told = {}
        told = self.told
        wanted: dict[PartitionKey, FetchPosition] = {}
        forgotten = []
        for key, position in changes.items():
            if position is None:
                if told.pop(key, None) is not None:
                    forgotten.append(key)
            elif told.get(key) != position:
                told[key] = wanted[key] = position
        return SessionFetch(self._session_id, self._epoch, wanted, tuple(forgotten))

    def answered(self, session_id: int) -> None:
        """Take note of an answer; a leader that opened no session is asked for all again."""
        self._session_id = session_id
        if session_id == 0:
            self.reset()
            return
        self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1

    def reset(self) -> None:
        """Begin anew: the connection is gone, or the leader knows no such session. The next fetch
        still names it: if the leader knows it, it closes it.
        """
        self._epoch = _INITIAL_EPOCH
        self.told = {}
