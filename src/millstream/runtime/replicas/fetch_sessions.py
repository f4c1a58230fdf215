"""Incremental fetch sessions (KIP-227): which partitions a fetch is about, and which to answer.

A full fetch (epoch 0) may open a session; a later fetch names the session and its next epoch and
only what changed. The answer then leaves out partitions that have nothing new: no records, no
error, the same high watermark and log start as last told. A partition that answered records
moves to the end, so that no partition starves behind a busy one.

====================  =============================================================
epoch in the request  meaning
====================  =============================================================
−1                    no session; a session that is named is closed
0                     full fetch: close the named session, open a new one
n                     incremental: must equal the session's epoch, which then grows
====================  =============================================================

A broker that follows counts for more than a consumer: it always gets a session while a consumer has
one to give up, for it would have to name every partition that it follows in every fetch.

Beside the number of sessions, which Kafka bounds, the number of partitions in all of them and the
length of their topics' names are bounded: over it a client gets no session, which is legal. A
consumer's fetch of more than 50,000 partitions is refused with INVALID_REQUEST, which Kafka serves.

Source: Kafka ``FetchManager``, ``FetchSession``, ``FetchSessionCache``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.model.errors import ErrorCode
from millstream.model.offsets import NO_OFFSET
from millstream.model.topic import MAX_NAME_LENGTH, ZERO_TOPIC_ID, TopicId
from millstream.protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from millstream.runtime.replicas.fetch_reader import is_urgent

if TYPE_CHECKING:
    from millstream.runtime.replicas.partition import Partition

NO_SESSION: Final = 0
_FINAL_EPOCH: Final = -1
_INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1
_FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
MAX_PARTITIONS: Final = 500_000
"""Partitions in all sessions together; one takes some 300 bytes."""

MAX_CONSUMER_PARTITIONS: Final = 50_000
"""Partitions that a consumer may fetch from one broker in one request, its session included: the
parts of a request that are not served in slices take the loop some microseconds for each."""


class PartitionFetch:
    """What a client wants of one partition, and what it was last told of it."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "partition",
        "quiet_at",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, topic_id: TopicId, wanted: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = wanted.partition
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.told_high_watermark = self.told_log_start_offset = NO_OFFSET
        self.quiet_at: Partition | None = None
        """Which partition was looked at last, where it had nothing to say."""

    def want(self, wanted: FetchPartition) -> None:
        """Take over where to read, how much, and what the client knows of leader epochs."""
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.quiet_at = None


_Key = tuple[str, TopicId, int]


@dataclass(slots=True)
class FetchContext:
    """One fetch request, resolved: what to read, and how to choose what to answer."""

    partitions: Sequence[PartitionFetch]
    error: ErrorCode = ErrorCode.NONE
    session: FetchSession | None = None
    opens_session: bool = False


class FetchSession:
    """What one client fetches again and again."""

    __slots__ = (
        "allowed_to",
        "created_ms",
        "epoch",
        "of_follower",
        "partitions",
        "session_id",
        "used_ms",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, *, uses_topic_ids: bool, of_follower: bool, now_ms: float
    ) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.of_follower = of_follower
        self.created_ms = now_ms
        self.used_ms = now_ms
        self.epoch = 1
        self.partitions: dict[_Key, PartitionFetch] = {}
        self.allowed_to: object = None
        """Who may read all that is in here, as the handler of Fetch has found."""

    @property
    def worth(self) -> tuple[bool, int]:
        """What this session saves its client; one that is worth more may take its place."""
        return self.of_follower, len(self.partitions)

    def select(self, fetch: PartitionFetch, found: PartitionData) -> bool:
        """Tell whether the answer carries this partition, and note what the client then knows."""
        has_records = bool(found.records)
        changed = (
            has_records
            or found.high_watermark != fetch.told_high_watermark
            or found.log_start_offset != fetch.told_log_start_offset
            or is_urgent(found)
        )
        # An error is told in every answer, and its end makes the partition count as changed.
        fetch.told_high_watermark = NO_OFFSET if found.error_code else found.high_watermark
        fetch.told_log_start_offset = found.log_start_offset
        if has_records:
            key = _key(fetch)
            kept = self.partitions.pop(key, None)
            if kept is not None:  # else it was forgotten while this fetch waited
                self.partitions[key] = kept
        return changed


class FetchSessions:
    """The sessions of this broker, at most ``slots`` of them.

    ``random_id`` answers a positive 31-bit number: session ids must not be guessable in order.
    """

    def __init__(
        self,
        *,
        slots: int,
        evict_after_ms: float,
        random_id: Callable[[], int],
        max_partitions: int = MAX_PARTITIONS,
        max_consumer_partitions: int = MAX_CONSUMER_PARTITIONS,
    ) -> None:
        self._slots = slots
        self._evict_after_ms = evict_after_ms
        self._random_id = random_id
        self._max_partitions = max_partitions
        self._max_consumer_partitions = max_consumer_partitions
        self._partition_count = 0
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """Return a session; None where there is none with this id."""
        return self._sessions.get(session_id)

    def open(self, request: FetchRequest, version: int, now_ms: float) -> FetchContext:
        """Resolve a request to the partitions that it is about (Kafka:
        ``FetchManager.newContext``).
        """
        epoch = request.session_epoch
        if epoch in (_INITIAL_EPOCH, _FINAL_EPOCH):
            return self._open_full(request, opens_session=epoch == _INITIAL_EPOCH)
        session = self._sessions.get(request.session_id)
        if session is None:
            return FetchContext((), ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext((), ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != (version >= _FIRST_VERSION_WITH_TOPIC_IDS):
            return FetchContext((), ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if not self._grow(session, request):
            self._drop(session)
            return FetchContext((), ErrorCode.INVALID_REQUEST)
        if not session.partitions:
            self._drop(session)
            return FetchContext(())
        if self._partition_count > self._max_partitions or (
            # Topics that are named by id have no names.
            not session.uses_topic_ids and _any_impossible(topic.topic for topic in request.topics)
        ):
            self._drop(session)
            return FetchContext((), ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        # Kept in order of use, so the stalest session stands first.
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        session.used_ms = now_ms
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return FetchContext(list(session.partitions.values()), session=session)

    def _open_full(self, request: FetchRequest, *, opens_session: bool) -> FetchContext:
        if request.session_id != NO_SESSION:
            self._drop(self._sessions.get(request.session_id))
        topics = request.topics
        if len(topics) == 1 and len(topics[0].partitions) == 1:
            topic = topics[0]
            only = PartitionFetch(topic.topic, topic.topic_id, topic.partitions[0])
            return FetchContext([only], opens_session=opens_session)
        if self._names_too_many(request):
            return FetchContext((), ErrorCode.INVALID_REQUEST)
        return FetchContext(_requested(request), opens_session=opens_session)

    def _names_too_many(self, request: FetchRequest) -> bool:
        """Tell whether a consumer's request names more partitions than it may."""
        if max(request.replica_id, request.replica_state.replica_id) >= 0:
            return False
        return (
            sum(len(topic.partitions) for topic in request.topics) > self._max_consumer_partitions
        )

    def _grow(self, session: FetchSession, request: FetchRequest) -> bool:
        """Take over what changed in a session; False where a consumer names too many partitions."""
        if self._names_too_many(request):
            return False
        self._partition_count -= len(session.partitions)
        _update(session, request)
        self._partition_count += len(session.partitions)
        return session.of_follower or len(session.partitions) <= self._max_consumer_partitions

    def create(
        self,
        fetches: Iterable[PartitionFetch],
        version: int,
        now_ms: float,
        *,
        of_follower: bool = False,
    ) -> FetchSession | None:
        """Open a session over what was just answered, or None where every slot is better used."""
        wanted = {_key(fetch): fetch for fetch in fetches}
        if _any_impossible(fetch.topic for fetch in wanted.values()):
            return None
        if not self._make_room((of_follower, len(wanted)), now_ms):
            return None
        session_id = self._random_id()
        while session_id in self._sessions or session_id == NO_SESSION:
            session_id = self._random_id()
        session = FetchSession(
            session_id,
            uses_topic_ids=version >= _FIRST_VERSION_WITH_TOPIC_IDS,
            of_follower=of_follower,
            now_ms=now_ms,
        )
        session.partitions = wanted
        self._sessions[session_id] = session
        self._partition_count += len(wanted)
        return session

    def _drop(self, session: FetchSession | None) -> None:
        if session is not None:
            del self._sessions[session.session_id]
            self._partition_count -= len(session.partitions)

    def _make_room(self, worth: tuple[bool, int], now_ms: float) -> bool:
        """Give up as many sessions as a new one needs; none where that would not be enough."""
        slots = self._slots - len(self._sessions)
        left = self._max_partitions - self._partition_count - worth[1]
        if slots > 0 and left >= 0:
            return True
        given_up = []
        for session in self._evictable(worth, now_ms):
            given_up.append(session)
            slots += 1
            left += len(session.partitions)
            if slots > 0 and left >= 0:
                for each in given_up:
                    self._drop(each)
                return True
        return False

    def _evictable(self, worth: tuple[bool, int], now_ms: float) -> Iterator[FetchSession]:
        """Yield what may be given up for a session: stale ones, then those that are worth less and
        are not new; for a follower's also a consumer's that is new.
        """
        since_ms = now_ms - self._evict_after_ms
        yield from itertools.takewhile(
            lambda session: session.used_ms < since_ms, self._sessions.values()
        )
        yield from sorted(
            (
                session
                for session in self._sessions.values()
                if session.used_ms >= since_ms
                and session.worth < worth
                and (session.created_ms < since_ms or session.of_follower < worth[0])
            ),
            key=lambda session: session.worth,
        )


def _any_impossible(names: Iterable[str]) -> bool:
    """Tell whether a name is longer than a topic's can be: such are not worth remembering."""
    return any(len(name) > MAX_NAME_LENGTH for name in names)


def _key(fetch: PartitionFetch) -> _Key:
    return (fetch.topic if fetch.topic_id == ZERO_TOPIC_ID else "", fetch.topic_id, fetch.partition)


def _requested(request: FetchRequest) -> list[PartitionFetch]:
    """What the request lists; of a partition named twice the last mention counts."""
    found: dict[_Key, PartitionFetch] = {}
    _merge(found, request)
    return list(found.values())


def _update(session: FetchSession, request: FetchRequest) -> None:
    _merge(session.partitions, request)
    for forgotten in request.forgotten_topics_data:
        for partition in forgotten.partitions:
            name = forgotten.topic if forgotten.topic_id == ZERO_TOPIC_ID else ""
            session.partitions.pop((name, forgotten.topic_id, partition), None)


def _merge(into: dict[_Key, PartitionFetch], request: FetchRequest) -> None:
    for topic in request.topics:
        name = topic.topic if topic.topic_id == ZERO_TOPIC_ID else ""
        for wanted in topic.partitions:
            key = (name, topic.topic_id, wanted.partition)
            fetch = into.get(key)
            if fetch is None:
                into[key] = PartitionFetch(topic.topic, topic.topic_id, wanted)
            else:
                fetch.want(wanted)
