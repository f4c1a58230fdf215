"""KIP-227: what a session leaves out, what it repeats, and how it ends."""

from __future__ import annotations

import itertools

from millstream.model.errors import ErrorCode
from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from millstream.runtime.replicas.fetch_sessions import FetchContext, FetchSession, FetchSessions

VERSION = 12
TOPIC = TopicId(b"t" * 16)


def sessions(
    slots: int = 10, max_partitions: int = 1000, max_consumer_partitions: int = 1000
) -> FetchSessions:
    ids = itertools.count(1000)
    return FetchSessions(
        slots=slots,
        evict_after_ms=120_000,
        random_id=lambda: next(ids),
        max_partitions=max_partitions,
        max_consumer_partitions=max_consumer_partitions,
    )


def request(
    *partitions: int, session_id: int = 0, epoch: int = 0, forget: tuple[int, ...] = ()
) -> FetchRequest:
    topics = [
        FetchTopic(
            topic="t",
            partitions=[
                FetchPartition(partition=p, fetch_offset=p, partition_max_bytes=100)
                for p in partitions
            ],
        )
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=topics if partitions else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forget))]
        if forget
        else [],
    )


def data(
    index: int, *, hw: int = 5, start: int = 0, error: int = 0, records: bytes = b""
) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error,
        high_watermark=hw,
        log_start_offset=start,
        aborted_transactions=None,
        records=records,
    )


def opened(
    cache: FetchSessions, *partitions: int, now_ms: float = 0, of_follower: bool = False
) -> FetchSession:
    context = cache.open(request(*partitions), VERSION, 0)
    assert context.opens_session
    for fetch in context.partitions:
        fetch.told_high_watermark, fetch.told_log_start_offset = 5, 0
    session = cache.create(context.partitions, VERSION, now_ms, of_follower=of_follower)
    assert session is not None
    return session


def is_refused(
    cache: FetchSessions, *partitions: int, now_ms: float = 0, of_follower: bool = False
) -> bool:
    context = cache.open(request(*partitions), VERSION, now_ms)
    return cache.create(context.partitions, VERSION, now_ms, of_follower=of_follower) is None


def following(
    cache: FetchSessions, session: FetchSession, *changed: int, **more: tuple[int, ...]
) -> FetchContext:
    asked = request(*changed, session_id=session.session_id, epoch=session.epoch, **more)  # type: ignore[arg-type]
    return cache.open(asked, VERSION, 0)


def test_an_incremental_fetch_is_about_every_partition_of_the_session() -> None:
    cache = sessions()
    context = following(cache, opened(cache, 0, 1, 2), 1)
    assert sorted(fetch.partition for fetch in context.partitions) == [0, 1, 2]


def test_a_partition_with_nothing_new_is_left_out() -> None:
    cache = sessions()
    session = opened(cache, 0)
    (fetch,) = following(cache, session).partitions
    assert not session.select(fetch, data(0))


def test_a_changed_high_watermark_or_log_start_is_told_once() -> None:
    cache = sessions()
    session = opened(cache, 0)
    (fetch,) = following(cache, session).partitions
    assert session.select(fetch, data(0, hw=6))
    assert not session.select(fetch, data(0, hw=6))
    assert session.select(fetch, data(0, hw=6, start=2))
    assert not session.select(fetch, data(0, hw=6, start=2))


def test_an_error_is_told_every_time_and_its_end_counts_as_news() -> None:
    cache = sessions()
    session = opened(cache, 0)
    (fetch,) = following(cache, session).partitions
    failing = data(0, hw=-1, start=-1, error=6)
    assert session.select(fetch, failing)
    assert session.select(fetch, failing)
    assert session.select(fetch, data(0))
    assert not session.select(fetch, data(0))


def test_a_partition_that_gave_records_moves_to_the_end() -> None:
    cache = sessions()
    session = opened(cache, 0, 1, 2)
    first = next(iter(following(cache, session).partitions))
    session.select(first, data(0, records=b"x"))
    assert [fetch.partition for fetch in following(cache, session).partitions] == [1, 2, 0]


def test_forgotten_partitions_leave_and_the_last_one_closes_the_session() -> None:
    cache = sessions()
    session = opened(cache, 0, 1)
    context = following(cache, session, forget=(0,))
    assert [fetch.partition for fetch in context.partitions] == [1]
    context = following(cache, session, forget=(1,))
    assert list(context.partitions) == []
    assert len(cache) == 0


def test_wrong_epochs_and_ids_are_refused_and_the_session_lives() -> None:
    cache = sessions()
    session = opened(cache, 0)
    wrong = cache.open(request(session_id=session.session_id, epoch=7), VERSION, 0)
    assert wrong.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    unknown = cache.open(request(session_id=1, epoch=1), VERSION, 0)
    assert unknown.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    other_naming = cache.open(request(session_id=session.session_id, epoch=1), 13, 0)
    assert other_naming.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert following(cache, session).error is ErrorCode.NONE


def test_epoch_minus_one_and_a_full_fetch_close_the_named_session() -> None:
    cache = sessions()
    session = opened(cache, 0)
    context = cache.open(request(0, session_id=session.session_id, epoch=-1), VERSION, 0)
    assert not context.opens_session
    assert len(cache) == 0
    session = opened(cache, 0)
    assert cache.open(request(0, session_id=session.session_id), VERSION, 0).opens_session
    assert len(cache) == 0


def test_the_epoch_goes_round_from_its_largest_value_to_one() -> None:
    cache = sessions()
    session = opened(cache, 0)
    session.epoch = 2**31 - 1
    following(cache, session)
    assert session.epoch == 1


def test_a_full_cache_keeps_busy_sessions_and_gives_up_stale_and_small_ones() -> None:
    cache = sessions(slots=1)
    opened(cache, 0)
    (fetch,) = cache.open(request(1), VERSION, 0).partitions
    assert cache.create([fetch], VERSION, 1000) is None
    assert cache.create([fetch], VERSION, 121_000) is not None
    assert len(cache) == 1


def test_a_session_in_use_is_not_given_up_for_one_of_its_size() -> None:
    cache = sessions(slots=1)
    kept = opened(cache, 0)
    assert cache.open(request(session_id=kept.session_id, epoch=1), VERSION, 100_000).session
    assert is_refused(cache, 1, now_ms=150_000)
    opened(cache, 1, 2, now_ms=150_000)


def test_a_follower_gets_a_session_whoever_has_them() -> None:
    cache = sessions(slots=2)
    opened(cache, 0, 1, 2)
    kept = opened(cache, 0, 1, 2, 3)
    follower = opened(cache, 0, of_follower=True)
    assert len(cache) == 2
    assert following(cache, kept).error is ErrorCode.NONE
    assert following(cache, follower).error is ErrorCode.NONE


def test_a_consumer_never_takes_the_place_of_a_follower_that_lives() -> None:
    cache = sessions(slots=1)
    follower = opened(cache, 0, of_follower=True)
    assert cache.open(request(session_id=follower.session_id, epoch=1), VERSION, 100_000).session
    assert is_refused(cache, 1, 2, now_ms=150_000)
    assert is_refused(cache, 1, now_ms=150_000, of_follower=True)
    opened(cache, 1, 2, now_ms=150_000, of_follower=True)
    opened(cache, 1, now_ms=300_000)


def test_several_sessions_make_room_for_a_large_one_or_none_does() -> None:
    cache = sessions(max_partitions=5)
    small = [opened(cache, each) for each in range(5)]
    assert is_refused(cache, *range(6), of_follower=True)
    assert len(cache) == 5
    opened(cache, 0, 1, 2, of_follower=True)
    assert len(cache) == 3
    assert following(cache, small[4]).error is ErrorCode.NONE


def test_sessions_by_topic_id_know_a_partition_by_its_id() -> None:
    cache = sessions()
    asked = request(0)
    asked.topics[0].topic, asked.topics[0].topic_id = "", TOPIC
    (fetch,) = cache.open(asked, 13, 0).partitions
    assert (fetch.topic_id, fetch.partition) == (TOPIC, 0)
    assert fetch.topic_id != ZERO_TOPIC_ID


def test_a_partition_forgotten_while_a_fetch_waited_does_not_come_back() -> None:
    cache = sessions()
    session = opened(cache, 0, 1)
    parked = following(cache, session)
    following(cache, session, forget=(1,))
    for fetch in parked.partitions:
        assert session.select(fetch, data(fetch.partition, records=b"r"))
    assert [key[2] for key in session.partitions] == [0]


def test_all_sessions_together_hold_so_many_partitions() -> None:
    cache = sessions(max_partitions=5)
    first = opened(cache, 0, 1, 2)
    context = cache.open(request(0, 1, 2), VERSION, 0)
    assert cache.create(context.partitions, VERSION, 0) is None
    second = opened(cache, 0)
    following(cache, second, 1)
    assert len(second.partitions) == 2
    assert following(cache, second, 2).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 1
    following(cache, first, forget=(2,))
    opened(cache, 0, 1, 2)


def test_a_session_that_is_closed_makes_room_for_its_partitions() -> None:
    cache = sessions(max_partitions=3)
    for _ in range(3):
        session = opened(cache, 0, 1, 2)
        cache.open(request(session_id=session.session_id, epoch=-1), VERSION, 0)
    session = opened(cache, 0, 1, 2)
    following(cache, session, forget=(0, 1, 2))
    opened(cache, 0, 1, 2)


def test_names_that_no_topic_can_have_are_not_remembered() -> None:
    cache = sessions()
    long = request(0)
    long.topics[0].topic = "t" * 250
    context = cache.open(long, VERSION, 0)
    assert cache.create(context.partitions, VERSION, 0) is None
    session = opened(cache, 0)
    long.session_id, long.session_epoch = session.session_id, session.epoch
    assert cache.open(long, VERSION, 0).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


# Too many partitions


def test_a_consumer_that_names_too_many_partitions_is_refused_and_a_follower_is_not() -> None:
    cache = sessions(max_consumer_partitions=3)
    assert cache.open(request(0, 1, 2), VERSION, 0).error is ErrorCode.NONE
    too_many = request(0, 1, 2, 3)
    refused = cache.open(too_many, VERSION, 0)
    assert (refused.error, refused.partitions) == (ErrorCode.INVALID_REQUEST, ())
    too_many.replica_id = 7
    assert len(cache.open(too_many, VERSION, 0).partitions) == 4


def test_a_consumers_session_that_grows_too_large_is_refused_and_closed() -> None:
    cache = sessions(max_consumer_partitions=3)
    session = opened(cache, 0, 1, 2)

    def named(epoch: int, *partitions: int, forget: tuple[int, ...] = ()) -> FetchContext:
        return cache.open(
            request(*partitions, session_id=session.session_id, epoch=epoch, forget=forget),
            VERSION,
            0,
        )

    assert named(1, 0, 1, 2).error is ErrorCode.NONE
    assert named(2, 3, forget=(0,)).error is ErrorCode.NONE
    assert named(3, 4).error is ErrorCode.INVALID_REQUEST
    assert named(4).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(cache) == 0


def test_a_followers_session_may_be_larger() -> None:
    cache = sessions(max_consumer_partitions=3)
    session = opened(cache, 0, 1, 2, of_follower=True)
    grown = cache.open(request(3, session_id=session.session_id, epoch=1), VERSION, 0)
    assert (grown.error, len(grown.partitions)) == (ErrorCode.NONE, 4)
