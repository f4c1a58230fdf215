"""A share partition against a plain model: one row for each offset.

Fetches, acknowledgements, lock ends, sessions that end, a log that is cut at its start, writes that
fail, and crashes after which another leader begins from what the share coordinator was told.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.examples import examples

from millstream.model.errors import KafkaError
from millstream.share.acknowledgements import AcknowledgedRun
from millstream.share.acquisition import AcquireRequest
from millstream.share.fetched import FetchedBatches, OffsetRange
from millstream.share.record_state import AcknowledgeType, AcquireMode, RecordState
from millstream.share.rules import ShareRules
from millstream.share.share_partition import SharePartition, StateWrite
from millstream.share.state import ShareState, StateBatch

RULES = ShareRules(delivery_count_limit=4, max_record_locks=25, record_lock_duration_ms=100)
MEMBERS = ("a", "b", "c")
NEW_STATE = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


@dataclass
class Row:
    """What is known of one offset."""

    state: RecordState = RecordState.AVAILABLE
    count: int = 0
    member: str = ""
    deadline_ms: float = 0
    before: Row | None = None

    @property
    def is_held(self) -> bool:
        return self.state is RecordState.ACQUIRED and self.before is None


@dataclass
class Coordinator:
    """What the share coordinator has stored."""

    start_offset: int = 0
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)

    def store(self, write: StateWrite) -> None:
        self.start_offset = max(self.start_offset, write.update.start_offset)
        for first, last, state, count in write.update.state_batches:
            self.rows |= dict.fromkeys(range(first, last + 1), (state, count))

    def read(self) -> ShareState:
        batches = tuple(
            StateBatch(offset, offset, *self.rows[offset])
            for offset in sorted(self.rows)
            if offset >= self.start_offset
        )
        return ShareState(1, self.start_offset, batches)


class ShareMachine(RuleBasedStateMachine):
    """The share partition, the model, the log and the coordinator."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0.0
        self.log_start = 0
        self.batches: list[OffsetRange] = []
        self.log_end = 0
        self.aborted: set[int] = set()
        self.coordinator = Coordinator()
        self.writes: deque[tuple[StateWrite, bool]] = deque()
        self.rows: dict[int, Row] = {}
        self.sp = self.load()

    def load(self) -> SharePartition:
        state = self.coordinator.read()
        self.rows = {
            first: Row(RecordState(number), count)
            for first, _, number, count in state.state_batches
        }
        for offset in range(state.start_offset, max(self.rows, default=-1)):
            self.row(offset)
        loaded = SharePartition(state, start_offset=state.start_offset, leader_epoch=0, rules=RULES)
        loaded.move_log_start(self.log_start)
        return loaded

    def row(self, offset: int) -> Row:
        return self.rows.setdefault(offset, Row())

    def begin(self, write: StateWrite | None, *, decides: bool) -> None:
        if write is not None:
            assert bool(write.undecided) == decides
            self.writes.append((write, decides))

    # What happens

    @rule(count=st.integers(1, 12), gap=st.sampled_from([0, 0, 0, 3]), aborts=st.booleans())
    def append(self, count: int, gap: int, aborts: bool) -> None:
        first = self.log_end + gap
        self.log_end = first + count
        self.batches.append(OffsetRange(first, self.log_end - 1))
        if aborts and count == 5:
            self.aborted |= set(range(first, self.log_end))

    @rule(
        member=st.sampled_from(MEMBERS),
        max_records=st.integers(1, 30),
        batch_size=st.integers(1, 10),
        batches=st.integers(1, 6),
        mode=st.sampled_from(AcquireMode),
        committed=st.booleans(),
    )
    def fetch(
        self,
        member: str,
        max_records: int,
        batch_size: int,
        batches: int,
        mode: AcquireMode,
        committed: bool,
    ) -> None:
        offset = self.sp.next_fetch_offset
        found = [each for each in self.batches if each.last_offset >= offset][:batches]
        if not found or not self.sp.can_acquire:
            return
        aborted = [each for each in found if committed and each.first_offset in self.aborted]
        before = self.sp.in_flight, self.sp.end_offset
        end_before = self.sp.end_offset
        acquired = self.sp.acquire(
            AcquireRequest(member, max_records, batch_size, mode),
            FetchedBatches([each.first_offset for each in found], found[-1].last_offset, aborted),
            fetch_offset=offset,
            now_ms=self.now_ms,
        )
        assert acquired or aborted or found[0].first_offset > offset, before
        for missing in range(offset, found[0].first_offset):
            if self.row(missing).state is RecordState.AVAILABLE and not self.row(missing).before:
                self.row(missing).state = RecordState.ARCHIVED
        self.archive_aborted(aborted, end_before, found[-1].last_offset, mode)
        deadline = self.now_ms + RULES.record_lock_duration_ms
        total = new = 0
        previous = -1
        for first, last, count in acquired:
            assert previous < first <= last
            previous = last
            total += last - first + 1
            for each in range(first, last + 1):
                row = self.row(each)
                assert row.state is RecordState.AVAILABLE
                assert row.before is None
                assert found[0].first_offset <= each <= found[-1].last_offset
                assert count == row.count + 1 <= RULES.delivery_count_limit
                new += each > end_before
                self.rows[each] = Row(RecordState.ACQUIRED, count, member, deadline)
        if mode is AcquireMode.RECORD_LIMIT:
            assert total <= max_records
            for each in range(end_before + 1, self.sp.end_offset + 1):
                self.row(each)  # in flight, if only available
        whole = max(last - first + 4 for first, last in found)
        assert new <= RULES.max_record_locks + whole

    def archive_aborted(
        self, aborted: list[OffsetRange], end_before: int, last: int, mode: AcquireMode
    ) -> None:
        """Aborted records are archived if they were acquired, which only the partition can say."""
        for first_offset, last_offset in aborted:
            for offset in range(first_offset, min(last_offset, last) + 1):
                row = self.row(offset)
                state = self.actual(offset)
                if row.state is RecordState.AVAILABLE and state is RecordState.ARCHIVED:
                    self.rows[offset] = Row(RecordState.ARCHIVED, row.count + 1)
                elif offset > end_before:
                    # What is behind the limit of records is in flight and not acquired yet.
                    behind = {RecordState.AVAILABLE} if mode is AcquireMode.RECORD_LIMIT else set()
                    assert state in {None, RecordState.ARCHIVED, *behind}

    def actual(self, offset: int) -> RecordState | None:
        if offset < self.sp.start_offset:
            return RecordState.ARCHIVED
        for each in self.sp.in_flight:
            if each.first_offset <= offset <= each.last_offset:
                return each.state
        return None

    @rule(
        member=st.sampled_from(MEMBERS),
        first=st.integers(0, 12),
        kinds=st.lists(
            st.tuples(st.integers(1, 6), st.sampled_from(AcknowledgeType)), min_size=1, max_size=4
        ),
        skip=st.integers(0, 2),
    )
    def acknowledge(
        self, member: str, first: int, kinds: list[tuple[int, AcknowledgeType]], skip: int
    ) -> None:
        runs = []
        offset = max(0, self.sp.start_offset - 2 + first)
        for count, kind in kinds:
            runs.append(AcknowledgedRun(offset, offset + count - 1, kind))
            offset += count + skip
        self.send_acknowledgements(member, runs)

    @precondition(lambda self: any(row.is_held for row in self.rows.values()))
    @rule(data=st.data(), kind=st.sampled_from(AcknowledgeType))
    def acknowledge_held(self, data: st.DataObject, kind: AcknowledgeType) -> None:
        held = sorted(offset for offset, row in self.rows.items() if row.is_held)
        first = data.draw(st.sampled_from(held))
        member = self.rows[first].member
        last = first
        while (
            data.draw(st.booleans()) and last + 1 in held and self.rows[last + 1].member == member
        ):
            last += 1
        self.send_acknowledgements(member, [AcknowledgedRun(first, last, kind)])

    def send_acknowledgements(self, member: str, runs: list[AcknowledgedRun]) -> None:
        start, end = self.sp.start_offset, self.sp.end_offset
        said: dict[int, AcknowledgeType] = {}
        valid = True
        for run in runs:
            offsets = [
                each for each in range(run.first_offset, run.last_offset + 1) if each >= start
            ]
            rows = {each: self.row(each) for each in offsets}
            there = {
                each: row
                for each, row in rows.items()
                if (row.state, row.count) != (RecordState.ARCHIVED, 0)
            }
            if any(each > end for each in offsets) or (offsets and not there):
                valid = False
            if any(not row.is_held or row.member != member for row in there.values()):
                valid = False
            said |= dict.fromkeys(there, run.acknowledge_type)
        if not valid:
            with pytest.raises(KafkaError):
                self.sp.acknowledge(member, runs, self.now_ms)
            return
        write = self.sp.acknowledge(member, runs, self.now_ms)
        for offset, kind in said.items():
            row = self.rows[offset]
            if kind is AcknowledgeType.RENEW:
                row.deadline_ms = self.now_ms + RULES.record_lock_duration_ms
                continue
            state = self.limited(NEW_STATE[kind], row.count)
            self.rows[offset] = Row(state, row.count, "", row.deadline_ms, before=row)
        assert (write is None) == all(kind is AcknowledgeType.RENEW for kind in said.values())
        self.begin(write, decides=True)

    @staticmethod
    def limited(state: RecordState, count: int) -> RecordState:
        used_up = count >= RULES.delivery_count_limit
        return RecordState.ARCHIVED if state is RecordState.AVAILABLE and used_up else state

    @rule(member=st.sampled_from(MEMBERS))
    def end_session(self, member: str) -> None:
        write = self.sp.release(member)
        for offset, row in self.rows.items():
            if offset >= self.sp.start_offset and row.is_held and row.member == member:
                state = self.limited(RecordState.AVAILABLE, row.count)
                self.rows[offset] = Row(state, row.count, "", row.deadline_ms, before=row)
        self.begin(write, decides=True)

    @rule(ms=st.sampled_from([10, 60, 120]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        at_ms = self.sp.lock_check_ms
        if at_ms is None or at_ms > self.now_ms:
            held = [row for o, row in self.rows.items() if o >= self.sp.start_offset]
            assert not any(row.is_held and row.deadline_ms <= self.now_ms for row in held)
            return
        write = self.sp.end_locks(self.now_ms)
        for row in self.rows.values():
            if row.is_held and row.deadline_ms <= self.now_ms:
                row.state, row.member = self.limited(RecordState.AVAILABLE, row.count), ""
        self.begin(write, decides=False)

    @precondition(lambda self: self.writes)
    @rule(succeeds=st.sampled_from([True, True, True, False]), stored=st.booleans())
    def write_ends(self, succeeds: bool, stored: bool) -> None:
        write, decides = self.writes.popleft()
        if succeeds or stored:
            self.coordinator.store(write)
        if not decides:
            return
        offsets = [o for each in write.update.state_batches for o in range(each[0], each[1] + 1)]
        for offset in offsets:
            row = self.rows[offset]
            if succeeds or row.before is None:
                row.before = None
                continue
            self.rows[offset] = restored = replace(row.before)
            if restored.deadline_ms <= self.now_ms:
                restored.state = self.limited(RecordState.AVAILABLE, restored.count)
                restored.member = ""
        if succeeds:
            self.sp.written(write)
        else:
            self.sp.failed(write, self.now_ms)

    @rule(records=st.integers(1, 20))
    def log_start_moves(self, records: int) -> None:
        self.log_start = min(self.log_start + records, self.log_end)
        self.batches = [each for each in self.batches if each.last_offset >= self.log_start]
        self.sp.move_log_start(self.log_start)

    @rule(stored=st.integers(0, 3))
    def leader_crashes(self, stored: int) -> None:
        for write, _ in list(self.writes)[:stored]:
            self.coordinator.store(write)
        self.writes.clear()
        self.sp = self.load()

    # What always holds

    @invariant()
    def ranges_have_no_hole(self) -> None:
        behind = self.sp.start_offset
        terminal = 0
        for each in self.sp.in_flight:
            assert each.first_offset == behind
            assert each.record_count > 0
            behind = each.last_offset + 1
            terminal += each.record_count if each.state.is_terminal else 0
        assert behind == self.sp.end_offset + 1
        assert terminal == self.sp.delivery_complete_count

    @invariant()
    def states_are_those_of_the_model(self) -> None:
        for each in self.sp.in_flight:
            for offset in range(each.first_offset, each.last_offset + 1):
                row = self.row(offset)
                assert (each.state, each.delivery_count, each.member_id) == (
                    row.state,
                    row.count,
                    row.member,
                ), offset
                assert (each.previous is None) == (row.before is None)

    @invariant()
    def start_offset_passes_nothing_undecided(self) -> None:
        for offset, row in self.rows.items():
            if self.log_start <= offset < self.sp.start_offset:
                assert row.state.is_terminal, offset
                assert row.before is None, offset

    @invariant()
    def fetch_begins_at_the_first_available_record(self) -> None:
        available = [
            offset
            for offset, row in self.rows.items()
            if self.sp.start_offset <= offset <= self.sp.end_offset
            and row.state is RecordState.AVAILABLE
            and row.before is None
        ]
        assert self.sp.next_fetch_offset == min(available, default=self.sp.end_offset + 1)

    def teardown(self) -> None:
        """Whatever happened, a consumer that accepts everything gets to the end of the log."""
        while self.writes:
            self.write_ends(succeeds=True, stored=True)
        self.now_ms += RULES.record_lock_duration_ms + 1
        self.begin(self.sp.end_locks(self.now_ms), decides=False)
        for row in self.rows.values():
            if row.is_held:
                row.state, row.member = self.limited(RecordState.AVAILABLE, row.count), ""
        for _ in range(10_000):
            if self.sp.start_offset >= self.log_end:
                break
            start, available = self.sp.start_offset, self.sp.next_fetch_offset
            self.fetch("a", 10, 5, 3, AcquireMode.BATCH_OPTIMIZED, committed=False)
            held = sorted(o for o, row in self.rows.items() if row.is_held)
            for offset in held:
                run = AcknowledgedRun(offset, offset, AcknowledgeType.ACCEPT)
                self.send_acknowledgements("a", [run])
            while self.writes:
                self.write_ends(succeeds=True, stored=True)
            assert (start, available) != (self.sp.start_offset, self.sp.next_fetch_offset)
        assert self.sp.start_offset >= self.log_end
        assert not self.sp.in_flight


TestSharePartition = ShareMachine.TestCase
TestSharePartition.settings = settings(max_examples=examples(100), stateful_step_count=50)
