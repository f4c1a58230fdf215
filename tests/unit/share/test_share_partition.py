"""The rules of a share partition, one by one (KIP-932, KIP-1206, KIP-1222)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from millstream.coordinator.share.coordinator import MAX_STATE_BATCHES
from millstream.model.errors import ErrorCode, KafkaError
from millstream.share.acknowledgements import AcknowledgedRun
from millstream.share.acquisition import MAX_IN_FLIGHT, AcquireRequest
from millstream.share.dead_letters import DeadLetterCause, DeadLetters
from millstream.share.fetched import FetchedBatches, OffsetRange
from millstream.share.record_state import AcknowledgeType, AcquireMode, RecordState
from millstream.share.rules import ShareRules
from millstream.share.share_partition import SharePartition, StateWrite
from millstream.share.state import ShareState, StateBatch

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
GAP, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
LOCK_MS = 30_000


class Twin:
    """A share partition, its log in batches of ten records, and a clock."""

    def __init__(
        self,
        *batches: tuple[int, int, int, int],
        start: int = 0,
        log_end: int = 100,
        rules: ShareRules | None = None,
    ) -> None:
        self.now_ms = 0.0
        self.bases = list(range(0, log_end, 10))
        self.log_end = log_end
        self.sp = SharePartition(
            ShareState(3, start, tuple(StateBatch(*batch) for batch in batches)),
            start_offset=start,
            leader_epoch=7,
            rules=rules or ShareRules(),
        )

    def fetch(
        self,
        member: str = "m1",
        *,
        max_records: int = 500,
        batch_size: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        aborted: Sequence[tuple[int, int]] = (),
        upto: int | None = None,
    ) -> list[tuple[int, int, int]]:
        offset = self.sp.next_fetch_offset
        end = self.log_end if upto is None else upto
        bases = [base for base in self.bases if offset < base + 10 and base < end]
        assert bases
        return [
            tuple(each)
            for each in self.sp.acquire(
                AcquireRequest(member, max_records, batch_size, mode),
                FetchedBatches(bases, bases[-1] + 9, tuple(OffsetRange(*each) for each in aborted)),
                fetch_offset=offset,
                now_ms=self.now_ms,
            )
        ]

    def acknowledge(
        self, *runs: tuple[int, int, AcknowledgeType], member: str = "m1"
    ) -> StateWrite | None:
        return self.sp.acknowledge(member, [AcknowledgedRun(*each) for each in runs], self.now_ms)

    def acknowledged(self, *runs: tuple[int, int, AcknowledgeType], member: str = "m1") -> None:
        write = self.acknowledge(*runs, member=member)
        assert write is not None
        self.sp.written(write)

    @property
    def states(self) -> list[tuple[int, int, RecordState, int]]:
        return [
            (each.first_offset, each.last_offset, each.state, each.delivery_count)
            for each in self.sp.in_flight
        ]


def test_a_new_share_partition_has_nothing_in_flight() -> None:
    twin = Twin(start=40)
    assert (twin.sp.start_offset, twin.sp.end_offset, twin.sp.next_fetch_offset) == (40, 39, 40)
    assert twin.sp.can_acquire
    assert twin.sp.lock_check_ms is None


def test_acquired_records_are_locked_for_one_member() -> None:
    twin = Twin()
    assert twin.fetch(upto=10) == [(0, 9, 1)]
    assert twin.sp.next_fetch_offset == 10
    assert twin.sp.lock_check_ms == LOCK_MS
    assert twin.fetch("m2", upto=20) == [(10, 19, 1)]
    assert [each.member_id for each in twin.sp.in_flight] == ["m1", "m2"]


def test_batches_are_acquired_whole() -> None:
    twin = Twin()
    assert twin.fetch(max_records=12) == [(0, 19, 1)]
    assert twin.fetch(max_records=1) == [(20, 29, 1)]


def test_the_record_limit_is_kept_in_the_middle_of_a_batch() -> None:
    twin = Twin()
    assert twin.fetch(max_records=12, mode=AcquireMode.RECORD_LIMIT) == [(0, 11, 1)]
    assert twin.sp.next_fetch_offset == 12
    assert twin.fetch(max_records=3, mode=AcquireMode.RECORD_LIMIT) == [(12, 14, 1)]
    assert twin.fetch(max_records=3) == [(15, 19, 1)]


def test_acquired_records_are_cut_by_batch_size_between_batches() -> None:
    twin = Twin()
    assert twin.fetch(max_records=50, batch_size=15) == [(0, 19, 1), (20, 39, 1), (40, 49, 1)]


def test_a_read_from_the_middle_of_a_batch_begins_at_the_start_offset() -> None:
    twin = Twin(start=14)
    assert twin.fetch(upto=20) == [(14, 19, 1)]


def test_accepted_records_move_the_start_offset_once_they_are_written() -> None:
    twin = Twin()
    twin.fetch(upto=20)
    write = twin.acknowledge((0, 19, ACCEPT))
    assert write is not None
    assert write.update == (3, 7, 0, 20, (StateBatch(0, 19, ACKNOWLEDGED, 1),))
    assert twin.sp.start_offset == 0
    twin.sp.written(write)
    assert (twin.sp.start_offset, twin.sp.end_offset) == (20, 19)
    assert twin.sp.delivery_complete_count == 0


def test_the_start_offset_does_not_pass_an_undecided_record() -> None:
    twin = Twin()
    twin.fetch(upto=20)
    twin.acknowledged((1, 19, ACCEPT))
    assert twin.sp.start_offset == 0
    assert twin.states == [(0, 0, ACQUIRED, 1), (1, 19, ACKNOWLEDGED, 1)]
    assert twin.sp.delivery_complete_count == 19


def test_types_may_differ_from_record_to_record() -> None:
    twin = Twin()
    twin.fetch(upto=10)
    write = twin.acknowledge((0, 2, ACCEPT), (3, 3, RELEASE), (4, 4, REJECT), (5, 6, GAP))
    assert write is not None
    assert write.update.state_batches == (
        (0, 2, ACKNOWLEDGED, 1),
        (3, 3, AVAILABLE, 1),
        (4, 6, ARCHIVED, 1),
    )
    twin.sp.written(write)
    assert twin.sp.start_offset == 3
    assert twin.sp.next_fetch_offset == 3
    assert twin.states[-1] == (7, 9, ACQUIRED, 1)


def test_released_records_are_delivered_again_before_new_ones() -> None:
    twin = Twin()
    twin.fetch(upto=20)
    write = twin.acknowledge((5, 6, RELEASE))
    assert write is not None
    assert twin.sp.next_fetch_offset == 20, "not before the write is decided"
    twin.sp.written(write)
    assert twin.sp.next_fetch_offset == 5
    assert twin.fetch("m2") == [(5, 6, 2), (20, 99, 1)]


def test_a_record_is_archived_when_it_was_delivered_as_often_as_allowed() -> None:
    twin = Twin(rules=ShareRules(delivery_count_limit=2))
    for count in (1, 2):
        assert twin.fetch(max_records=10)[0] == (0, 9, count)
        twin.acknowledged((0, 9, RELEASE))
    assert twin.sp.start_offset == 10


def test_a_lock_ends_by_itself() -> None:
    twin = Twin()
    twin.fetch(upto=10)
    twin.now_ms = 10_000
    twin.fetch("m2", upto=20)
    assert twin.sp.end_locks(LOCK_MS - 1) is None
    write = twin.sp.end_locks(LOCK_MS)
    assert write is not None
    assert write.update.state_batches == ((0, 9, AVAILABLE, 1),)
    assert write.undecided == ()
    assert twin.sp.next_fetch_offset == 0
    assert twin.sp.lock_check_ms == 10_000 + LOCK_MS
    with pytest.raises(KafkaError, match="INVALID_RECORD_STATE"):
        twin.acknowledge((0, 9, ACCEPT))


def test_locks_end_one_after_the_other() -> None:
    twin = Twin()
    for upto in (10, 20, 30, 40):
        twin.fetch(upto=upto)
        twin.now_ms += 1000
    for number in range(4):
        assert twin.sp.lock_check_ms == number * 1000 + LOCK_MS
        write = twin.sp.end_locks(number * 1000 + LOCK_MS)
        assert write is not None
        assert write.update.state_batches == ((number * 10, number * 10 + 9, AVAILABLE, 1),)
    assert twin.sp.lock_check_ms is None


def test_undecided_records_are_not_acquired() -> None:
    twin = Twin()
    twin.fetch(upto=20)
    twin.acknowledged((0, 4, RELEASE))
    write = twin.acknowledge((5, 9, RELEASE))
    assert write is not None
    assert twin.fetch("m2", upto=20) == [(0, 4, 2)]
    twin.sp.written(write)
    assert twin.fetch("m2", upto=20) == [(5, 9, 2)]


def test_renewed_locks_end_later() -> None:
    twin = Twin()
    twin.fetch(upto=10)
    twin.now_ms = 20_000
    assert twin.acknowledge((3, 5, RENEW)) is None
    write = twin.sp.end_locks(LOCK_MS)
    assert write is not None
    assert write.update.state_batches == ((0, 2, AVAILABLE, 1), (6, 9, AVAILABLE, 1))
    assert twin.sp.lock_check_ms == 20_000 + LOCK_MS
    twin.acknowledged((3, 5, ACCEPT))


def test_renewing_can_be_forbidden() -> None:
    twin = Twin(rules=ShareRules(renew_acknowledge=False))
    twin.fetch(upto=10)
    with pytest.raises(KafkaError, match="INVALID_RECORD_STATE: Renewing"):
        twin.acknowledge((0, 9, RENEW))


def test_a_delivery_counts_when_the_session_ends() -> None:
    twin = Twin()
    twin.fetch(upto=10)
    twin.fetch("m2", upto=20)
    twin.acknowledged((0, 4, ACCEPT))
    write = twin.sp.release("m1")
    assert write is not None
    assert write.update.state_batches == ((5, 9, AVAILABLE, 1),)
    twin.sp.written(write)
    assert twin.fetch("m3", upto=10) == [(5, 9, 2)]
    assert twin.sp.release("m1") is None


def test_the_last_delivery_of_a_session_that_ends_is_archived() -> None:
    twin = Twin(rules=ShareRules(delivery_count_limit=2))
    for count in (1, 2):
        assert twin.fetch(upto=10) == [(0, 9, count)]
        write = twin.sp.release("m1")
        assert write is not None
        twin.sp.written(write)
    assert write.update.state_batches == ((0, 9, ARCHIVED, 2),)
    assert twin.sp.start_offset == 10


def test_only_what_was_acquired_together_is_acquired_as_one_range_again() -> None:
    twin = Twin()
    assert twin.fetch(upto=20, batch_size=1) == [(0, 9, 1), (10, 19, 1)]
    twin.acknowledged((0, 3, RELEASE), (4, 5, ACCEPT), (6, 19, RELEASE))
    assert twin.fetch(upto=20) == [(0, 3, 2), (6, 9, 2), (10, 19, 2)]
    twin.acknowledged((6, 7, RELEASE))
    twin.acknowledged((8, 8, RELEASE))
    assert twin.fetch(upto=20) == [(6, 8, 3)]


@pytest.mark.parametrize(
    ("runs", "error"),
    [
        ([(10, 19, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),  # of another member
        ([(5, 12, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ([(0, 3, ACCEPT), (3, 5, ACCEPT)], ErrorCode.INVALID_RECORD_STATE),
        ([(15, 25, ACCEPT)], ErrorCode.INVALID_REQUEST),  # past the end
        ([(30, 39, ACCEPT)], ErrorCode.INVALID_REQUEST),
        ([(0, 3, ACCEPT), (20, 20, ACCEPT)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_all_or_nothing_is_acknowledged(
    runs: list[tuple[int, int, AcknowledgeType]], error: ErrorCode
) -> None:
    twin = Twin()
    twin.fetch(upto=10)
    twin.fetch("m2", upto=20)
    before = twin.states
    with pytest.raises(KafkaError) as refusal:
        twin.acknowledge(*runs)
    assert refusal.value.error is error
    assert twin.states == before


def test_nothing_is_acknowledged_twice() -> None:
    twin = Twin()
    twin.fetch(upto=20)
    write = twin.acknowledge((10, 19, ACCEPT))
    for _ in range(2):
        with pytest.raises(KafkaError, match="INVALID_RECORD_STATE"):
            twin.acknowledge((10, 19, ACCEPT))
        assert write is not None
        twin.sp.written(write)


def test_records_that_nobody_holds_any_more_are_not_acknowledged() -> None:
    twin = Twin()
    twin.fetch("m1", upto=10)
    twin.fetch("m2", upto=20)
    twin.sp.release("m2")
    assert [each.delivery_count for each in twin.sp.in_flight] == [1, 1]
    with pytest.raises(KafkaError) as refused:
        twin.sp.acknowledge("m1", [AcknowledgedRun(0, 19, ACCEPT)], twin.now_ms)
    assert refused.value.error is ErrorCode.INVALID_RECORD_STATE


def test_nothing_in_flight_is_acknowledged() -> None:
    with pytest.raises(KafkaError, match="INVALID_RECORD_STATE"):
        Twin(start=5).acknowledge((5, 5, ACCEPT))


def test_what_is_below_the_start_offset_is_passed_over() -> None:
    twin = Twin()
    twin.fetch(upto=20)
    twin.sp.move_log_start(12)
    assert twin.acknowledge((0, 9, ACCEPT)) is None
    twin.acknowledged((0, 14, ACCEPT))
    assert twin.sp.start_offset == 15


def test_a_failed_write_is_taken_back() -> None:
    twin = Twin()
    twin.fetch(upto=10)
    write = twin.acknowledge((0, 4, ACCEPT), (5, 9, REJECT))
    assert write is not None
    twin.sp.failed(write, now_ms=LOCK_MS - 1)
    assert twin.sp.delivery_complete_count == 0
    twin.acknowledged((0, 9, ACCEPT))
    assert twin.sp.start_offset == 10


def test_records_of_a_failed_write_are_available_if_the_lock_has_ended() -> None:
    twin = Twin(rules=ShareRules(delivery_count_limit=2))
    twin.fetch(max_records=10)
    write = twin.acknowledge((0, 9, ACCEPT))
    assert write is not None
    assert twin.sp.end_locks(LOCK_MS + 5) is None, "undecided"
    twin.sp.failed(write, now_ms=LOCK_MS + 5)
    assert twin.states == [(0, 9, AVAILABLE, 1)]
    twin.fetch(max_records=10)
    write = twin.acknowledge((0, 9, RELEASE))
    assert write is not None
    twin.sp.failed(write, now_ms=2 * LOCK_MS + 5)
    assert twin.sp.start_offset == 10, "delivered twice"


def test_a_failed_release_restores_the_lock_and_the_count() -> None:
    twin = Twin()
    twin.fetch(upto=10)
    write = twin.sp.release("m1")
    assert write is not None
    twin.sp.failed(write, now_ms=1)
    assert twin.states == [(0, 9, ACQUIRED, 1)]
    assert twin.sp.lock_check_ms == LOCK_MS


def test_records_that_are_deleted_are_forgotten() -> None:
    twin = Twin()
    twin.fetch(upto=30)
    write = twin.acknowledge((10, 24, ACCEPT))
    assert write is not None
    twin.sp.move_log_start(15)
    assert twin.sp.start_offset == 15
    assert twin.sp.delivery_complete_count == 10
    twin.sp.failed(write, now_ms=1)
    assert twin.states == [(15, 24, ACQUIRED, 1), (25, 29, ACQUIRED, 1)]
    twin.sp.move_log_start(50)
    assert (twin.sp.start_offset, twin.sp.next_fetch_offset, twin.states) == (50, 50, [])
    twin.sp.move_log_start(20)
    assert twin.sp.start_offset == 50


def test_no_more_than_the_limit_is_in_flight() -> None:
    twin = Twin(rules=ShareRules(max_record_locks=100), log_end=400)
    assert twin.fetch(max_records=95) == [(0, 99, 1)]
    assert not twin.sp.can_acquire
    assert twin.fetch() == []
    twin.acknowledged((50, 59, RELEASE))
    assert twin.sp.can_acquire
    assert twin.fetch() == [(50, 59, 2)]
    twin.acknowledged((0, 19, ACCEPT))
    assert twin.sp.can_acquire
    assert twin.fetch(max_records=500) == [(100, 119, 1)]


def test_records_delivered_often_come_in_smaller_portions() -> None:
    """Half of the limit: halves, quarters; the last time one by one."""
    twin = Twin(log_end=40)
    for count in (1, 2, 3):
        assert twin.fetch(max_records=40) == [(0, 39, count)]
        twin.acknowledged((0, 39, RELEASE))
    assert twin.fetch() == [(0, 19, 4)]
    assert twin.fetch() == [(20, 39, 4)]
    twin.acknowledged((0, 39, RELEASE))
    assert [twin.fetch() for _ in range(3)] == [[(0, 0, 5)], [(1, 1, 5)], [(2, 2, 5)]]


def test_records_delivered_often_are_not_mixed_with_others() -> None:
    twin = Twin((0, 4, AVAILABLE, 1), (5, 9, AVAILABLE, 3), log_end=40)
    assert twin.fetch() == [(0, 4, 2)]
    assert twin.fetch() == [(5, 6, 4)]


def test_compacted_batches_are_archived() -> None:
    """The log has nothing between the offset that was read at and the first batch."""
    twin = Twin()
    twin.fetch(upto=20)
    twin.acknowledged((0, 19, RELEASE))
    del twin.bases[:3]
    assert twin.fetch(upto=40) == [(30, 39, 1)]
    assert twin.sp.start_offset == 30


def test_nobody_acknowledges_what_the_log_does_not_have() -> None:
    twin = Twin()
    twin.fetch(upto=10)
    del twin.bases[1]
    twin.fetch(upto=30)
    assert twin.states[1] == (10, 19, ARCHIVED, 0)
    with pytest.raises(KafkaError, match="INVALID_RECORD_STATE"):
        twin.acknowledge((10, 19, ACCEPT))
    write = twin.acknowledge((0, 29, ACCEPT))
    assert write is not None
    assert write.update.state_batches == ((0, 9, ACKNOWLEDGED, 1), (20, 29, ACKNOWLEDGED, 1))
    twin.sp.written(write)
    assert twin.sp.start_offset == 30


def test_aborted_records_are_archived_and_not_delivered() -> None:
    twin = Twin()
    acquired = twin.fetch(upto=60, aborted=[(0, 9), (20, 29), (30, 39)])
    assert acquired == [(10, 19, 1), (40, 59, 1)]
    assert twin.sp.start_offset == 10
    assert twin.fetch(upto=70, aborted=[(60, 69)]) == []
    assert twin.sp.next_fetch_offset == 70


def test_a_loaded_state_is_continued() -> None:
    twin = Twin((15, 19, ACKNOWLEDGED, 1), (30, 34, AVAILABLE, 2), (35, 39, 3, 4), start=10)
    assert (twin.sp.start_offset, twin.sp.end_offset) == (10, 39)
    assert twin.sp.delivery_complete_count == 10
    assert twin.fetch(upto=40) == [(10, 14, 1), (20, 29, 1), (30, 34, 3)]


def test_a_loaded_state_begins_behind_what_is_finished() -> None:
    twin = Twin((10, 14, ACKNOWLEDGED, 1), (15, 19, ARCHIVED, 5), start=10)
    assert (twin.sp.start_offset, twin.states) == (20, [])


def test_rules_may_change() -> None:
    twin = Twin()
    twin.fetch(upto=10)
    twin.sp.rules = replace(twin.sp.rules, record_lock_duration_ms=1000, delivery_count_limit=1)
    twin.acknowledge((0, 4, RENEW))
    assert twin.sp.end_locks(1000) is not None
    assert twin.sp.start_offset == 5


@pytest.mark.slow
def test_a_batch_of_very_many_records_is_acquired_in_parts_whose_states_can_be_stored() -> None:
    """Whatever is said of the records, in turns or one by one, one write can hold it."""
    count = 60_000
    twin = Twin(log_end=10)
    twin.bases = [0]
    settled: set[int] = set()
    deliveries: dict[int, int] = {}
    while len(settled) < count:
        offset = twin.sp.next_fetch_offset
        acquired = twin.sp.acquire(
            AcquireRequest("m1", 500, 500),
            FetchedBatches([0], count - 1),
            fetch_offset=offset,
            now_ms=twin.now_ms,
        )
        assert acquired
        offsets = [each for first, last, _ in acquired for each in range(first, last + 1)]
        for each in offsets:
            deliveries[each] = deliveries.get(each, 0) + 1
        runs = [
            (each, each, RELEASE if each % 2 and deliveries[each] == 1 else ACCEPT)
            for each in offsets
        ]
        write = twin.acknowledge(*runs)
        assert write is not None
        assert len(write.update.state_batches) <= MAX_STATE_BATCHES
        assert len(twin.sp.in_flight) <= MAX_STATE_BATCHES
        twin.sp.written(write)
        settled.update(first for first, _, kind in runs if kind is ACCEPT)
    assert max(deliveries.values()) == 2
    assert twin.sp.start_offset == count


def test_a_loaded_range_of_very_many_records_is_acquired_in_parts() -> None:
    twin = Twin((0, 59_999, AVAILABLE, 1))
    acquired = twin.sp.acquire(
        AcquireRequest("m1", 500, 500),
        FetchedBatches([0], 59_999),
        fetch_offset=0,
        now_ms=twin.now_ms,
    )
    assert acquired == [(0, MAX_IN_FLIGHT - 1, 2)]


def test_ten_thousand_single_acknowledgements_take_one_pass() -> None:
    rules = ShareRules(max_record_locks=10_000)
    twin = Twin(log_end=10_000, rules=rules)
    twin.fetch(max_records=10_000, batch_size=10_000)
    write = twin.acknowledge(
        *((each, each, RELEASE if each % 2 else ACCEPT) for each in range(10_000))
    )
    assert write is not None
    assert len(write.update.state_batches) == 10_000
    twin.sp.written(write)
    assert twin.sp.start_offset == 1
    assert twin.sp.next_fetch_offset == 1


# Dead letters

DEAD_LETTERS = ShareRules(delivery_count_limit=2, has_dead_letters=True)
REJECTED, TOO_OFTEN = DeadLetterCause


def test_rejected_records_are_dead_letters_once_that_is_written() -> None:
    twin = Twin(rules=DEAD_LETTERS)
    twin.fetch(upto=10)
    write = twin.acknowledge((0, 2, ACCEPT), (3, 4, REJECT), (5, 9, GAP))
    assert write is not None
    assert [tuple(each) for each in write.update.state_batches] == [
        (0, 2, ACKNOWLEDGED, 1),
        (3, 4, ARCHIVING, 1),
        (5, 9, ARCHIVED, 1),
    ]
    assert twin.sp.take_dead_letters() == []
    twin.sp.written(write)
    assert twin.sp.take_dead_letters() == [DeadLetters(3, 4, 1, REJECTED)]
    assert twin.sp.take_dead_letters() == []
    # They are neither delivered again nor passed until they are in the topic.
    assert (twin.sp.start_offset, twin.sp.next_fetch_offset) == (3, 10)
    assert twin.sp.delivery_complete_count == 5


def test_a_rejection_that_was_not_written_makes_no_dead_letters() -> None:
    twin = Twin(rules=DEAD_LETTERS)
    twin.fetch(upto=10)
    write = twin.acknowledge((0, 9, REJECT))
    assert write is not None
    twin.sp.failed(write, twin.now_ms)
    assert twin.sp.take_dead_letters() == []
    assert twin.states == [(0, 9, ACQUIRED, 1)]


@pytest.mark.parametrize("how", ["released", "lock ended", "session ended"])
def test_records_delivered_as_often_as_allowed_are_dead_letters(how: str) -> None:
    twin = Twin((0, 9, AVAILABLE, 1), log_end=10, rules=DEAD_LETTERS)
    assert twin.fetch(max_records=1, mode=AcquireMode.RECORD_LIMIT) == [(0, 0, 2)]
    if how == "released":
        twin.acknowledged((0, 0, RELEASE))
    elif how == "lock ended":
        twin.now_ms += LOCK_MS
        assert twin.sp.end_locks(twin.now_ms) is not None
    else:
        write = twin.sp.release("m1")
        assert write is not None
        twin.sp.written(write)
    assert twin.sp.take_dead_letters() == [DeadLetters(0, 0, 2, TOO_OFTEN)]
    assert twin.states[0] == (0, 0, ARCHIVING, 2)


def test_what_is_in_the_topic_is_archived_and_passed() -> None:
    twin = Twin(rules=DEAD_LETTERS)
    twin.fetch(upto=20)
    twin.acknowledged((0, 9, REJECT), (10, 14, ACCEPT))
    (letters,) = twin.sp.take_dead_letters()
    write = twin.sp.dead_lettered([letters])
    assert write is not None
    assert [tuple(each) for each in write.update.state_batches] == [(0, 9, ARCHIVED, 1)]
    assert write.undecided == ()
    assert twin.sp.start_offset == 15
    assert twin.sp.dead_lettered([letters]) is None


def test_dead_letters_that_the_log_has_lost_are_let_go() -> None:
    twin = Twin(rules=DEAD_LETTERS)
    twin.fetch(upto=10)
    twin.acknowledged((0, 9, REJECT))
    (letters,) = twin.sp.take_dead_letters()
    twin.sp.move_log_start(5)
    assert twin.sp.dead_lettered([letters]) is not None
    assert twin.sp.start_offset == 10
    twin.sp.move_log_start(30)
    assert twin.sp.dead_lettered([letters]) is None


def test_a_new_leader_takes_up_what_was_on_its_way() -> None:
    state = ((0, 3, ARCHIVING, 1), (4, 5, ARCHIVING, 2), (6, 6, ACKNOWLEDGED, 1))
    twin = Twin(*state, rules=DEAD_LETTERS)
    assert twin.sp.take_dead_letters() == [
        DeadLetters(0, 3, 1, REJECTED),
        DeadLetters(4, 5, 2, TOO_OFTEN),
    ]
    assert twin.sp.start_offset == 0


def test_a_group_without_the_topic_any_more_archives_what_was_on_its_way() -> None:
    twin = Twin((0, 3, ARCHIVING, 1), (4, 5, AVAILABLE, 1))
    assert twin.sp.take_dead_letters() == []
    assert twin.sp.start_offset == 4


def test_nobody_acknowledges_what_is_on_its_way() -> None:
    twin = Twin(rules=DEAD_LETTERS)
    twin.fetch(upto=10)
    twin.acknowledged((0, 9, REJECT))
    with pytest.raises(KafkaError) as refused:
        twin.acknowledge((0, 9, ACCEPT))
    assert refused.value.error is ErrorCode.INVALID_RECORD_STATE
