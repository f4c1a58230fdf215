"""What committed readers see, on a leader and on a follower, against a plain model.

Producers write transactions that interleave; a follower fetches what they wrote in slices of any
size, so that several transactions of one producer may come in one. Logs are rolled, compacted, cut,
recovered after a crash and have damaged transaction indexes. A committed reader that begins
anywhere, with fetches of any size, sees every committed record from there on and no aborted one;
the last stable offset is where the model says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.memory_files import MemoryFileSystem
from tests.unit.storage.cleaning_support import clean, compacted, keyed_batch
from tests.unit.storage.support import NOW_MS, append_marker, place, read_batches

from millstream.records.batch import iter_batches
from millstream.records.isolation import CommittedOnly
from millstream.records.record import read_records
from millstream.storage.directory import PartitionDirectory
from millstream.storage.environment import LogEnvironment
from millstream.storage.loader import LoadOptions
from millstream.storage.log import Log

CONFIG = compacted(**{"internal.segment.bytes": "500", "index.interval.bytes": "150"})
SIZES = (1, 90, 170, 300, 700, 1 << 30)
"""Bytes of a fetch; a batch has 90 or so, a marker 78."""


@dataclass(frozen=True)
class Write:
    producer: int
    count: int
    transactional: bool


@dataclass(frozen=True)
class End:
    producer: int
    commit: bool


@dataclass(frozen=True)
class Fetch:
    """The follower fetches once."""

    size: int


@dataclass(frozen=True)
class Act:
    """Something that becomes of one log; ``place`` is a share of what is there."""

    name: str
    follower: bool
    place: float


Step = Write | End | Fetch | Act

writes = st.builds(
    Write, st.integers(0, 2), st.integers(1, 3), st.sampled_from([True, True, True, False])
)
ends = st.builds(End, st.integers(0, 2), st.sampled_from([True, False, False]))
fetches = st.builds(Fetch, st.sampled_from(SIZES))
acts = st.builds(
    Act,
    st.sampled_from(
        ["commit", "commit", "roll", "kill", "close", "damage", "clean", "cut", "start"]
    ),
    st.booleans(),
    st.floats(0, 1),
)
steps = st.lists(st.one_of(writes, writes, ends, ends, fetches, acts), min_size=1, max_size=40)
looks = st.lists(
    st.tuples(st.floats(0, 1), st.sampled_from(SIZES), st.booleans()), min_size=1, max_size=6
)


@dataclass
class Transaction:
    first: int
    marker: int | None = None
    committed: bool = False


@dataclass
class Model:
    rows: list[tuple[int, bytes, Transaction | None]] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)

    def stable(self, high_watermark: int, *, loaded_up_to: int) -> int:
        """Return the last stable offset of a log that was loaded up to an offset: of a transaction
        that ends below it a snapshot does not say, as in Kafka, that its marker may not be
        committed yet.
        """
        unstable = [
            each.first
            for each in self.transactions
            if each.marker is None or each.marker >= max(high_watermark, loaded_up_to)
        ]
        return min([high_watermark, *unstable])

    def visible(self, start: int, end: int) -> list[bytes]:
        return [
            value
            for offset, value, transaction in self.rows
            if start <= offset < end and (transaction is None or transaction.committed)
        ]


class Replica:
    def __init__(self, name: str) -> None:
        self.files = MemoryFileSystem()
        self.directory: PartitionDirectory = place(f"/{name}")  # type: ignore[arg-type]
        self.files.make_directory(f"/{name}")
        self.log = Log.create(
            self.environment(), self.directory, CONFIG, topic_id=None, now_ms=NOW_MS
        )
        self.loaded_up_to = 0
        """Up to where the producers were read from disk."""

    def environment(self) -> LogEnvironment:
        return LogEnvironment(file_system=self.files)

    def reopen(self, *, clean: bool) -> None:
        before = self.log
        if clean:
            plan = before.close()
            if plan is not None:
                plan.run()
                before.flushed(plan)
        else:
            before.abandon()
        self.log = Log.open(
            self.environment(),
            self.directory,
            CONFIG,
            LoadOptions(
                now_ms=NOW_MS,
                had_clean_shutdown=clean,
                recovery_point=before.log_end_offset if clean else 0,
                log_start_offset=before.log_start_offset,
            ),
        )
        assert self.log.log_end_offset == before.log_end_offset
        self.log.offsets.update_high_watermark(before.high_watermark)
        self.loaded_up_to = self.log.log_end_offset

    def damage(self, share: float) -> None:
        """Cut the transaction index of a closed segment inside an entry, and start again."""
        self.reopen(clean=True)
        segments = [each for each in self.log.local.segments if each.transaction_index.entries]
        if not segments:
            return
        index = segments[int(share * (len(segments) - 1))].transaction_index
        self.files.open(index.path).truncate(len(index.entries) * 34 - 5)
        index._entries = None

    def committed(self, offset: int, max_bytes: int) -> list[bytes]:
        values: list[bytes] = []
        log = self.log
        while offset < log.last_stable_offset:
            read = log.reader.read(
                offset,
                max_bytes=max_bytes,
                upper_bound_offset=log.last_stable_offset,
                min_one_batch=True,
                with_aborted=True,
            )
            if read.records is None:
                break
            wanted = CommittedOnly((a.producer_id, a.first_offset) for a in read.aborted or ())
            last = offset
            for batch in iter_batches(read.records.read()):
                if wanted(batch):
                    values += [
                        bytes(record.value or b"")
                        for record in read_records(batch)
                        if record.offset >= offset
                    ]
                last = max(last, batch.next_offset)
            assert last > offset, "a read that found something leads on"
            offset = last
        return values


class Site:
    def __init__(self) -> None:
        self.model = Model()
        self.leader, self.follower = Replica("leader"), Replica("follower")
        self.open: dict[int, Transaction] = {}
        self.sequences = [0, 0, 0]

    def act(self, step: Step) -> None:
        log = self.leader.log
        if isinstance(step, Write):
            self.write(step)
        elif isinstance(step, End):
            transaction = self.open.pop(step.producer, None)
            result = append_marker(log, step.producer, commit=step.commit)
            if transaction is not None:
                transaction.marker, transaction.committed = result.base_offset, step.commit
        elif isinstance(step, Fetch):
            self.fetch(step.size)
        else:
            self.change(step)

    def write(self, step: Write) -> None:
        log = self.leader.log
        transaction = self.open.get(step.producer)
        base = log.log_end_offset
        if transaction is None and step.transactional:
            transaction = self.open[step.producer] = Transaction(base)
            self.model.transactions.append(transaction)
        values = [b"%d" % (base + number) for number in range(step.count)]
        batch = keyed_batch(
            [(value, value) for value in values],
            producer_id=step.producer,
            producer_epoch=0,
            base_sequence=self.sequences[step.producer],
            is_transactional=transaction is not None,
        )
        log.appender.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
        self.sequences[step.producer] += step.count
        self.model.rows += [(base + n, value, transaction) for n, value in enumerate(values)]

    def fetch(self, size: int) -> None:
        leader, follower = self.leader.log, self.follower.log
        if follower.log_end_offset < leader.log_start_offset:
            follower.truncation.truncate_fully_and_start_at(leader.log_start_offset, now_ms=NOW_MS)
        read = leader.reader.read(
            follower.log_end_offset,
            max_bytes=size,
            upper_bound_offset=leader.log_end_offset,
            min_one_batch=True,
        )
        if read.records is not None:
            follower.follower_appender.append_as_follower(bytes(read.records.read()), now_ms=NOW_MS)
        elif follower.log_end_offset < leader.log_end_offset:
            follower.appender.skip_to(leader.log_end_offset, now_ms=NOW_MS)
        follower.truncation.increment_log_start_offset(
            min(leader.log_start_offset, follower.high_watermark)
        )
        follower.offsets.update_high_watermark(leader.high_watermark)

    def change(self, step: Act) -> None:
        replica = self.follower if step.follower else self.leader
        log = replica.log
        share = step.place
        match step.name:
            case "commit":
                # A follower has whole batches, so that is what becomes committed.
                leader = self.leader.log
                ends = [
                    batch.next_offset
                    for batch in read_batches(leader, leader.log_start_offset)
                    if batch.next_offset > leader.high_watermark
                ]
                if ends:
                    leader.offsets.update_high_watermark(ends[int(share * (len(ends) - 1))])
            case "roll":
                log.appender.roll(now_ms=NOW_MS)
            case "kill":
                replica.reopen(clean=False)
            case "close":
                replica.reopen(clean=True)
            case "damage":
                replica.damage(share)
            case "clean":
                clean(log)
            case "cut":
                # A follower alone is cut, where batches begin, at or above what is committed.
                follower = self.follower.log
                bases = [
                    batch.base_offset
                    for batch in read_batches(follower, follower.log_start_offset)
                    if batch.base_offset >= follower.high_watermark
                ]
                if bases:
                    follower.truncation.truncate_to(
                        bases[int(share * (len(bases) - 1))], now_ms=NOW_MS
                    )
                    self.follower.loaded_up_to = follower.log_end_offset
            case "start":
                start = log.log_start_offset
                log.truncation.increment_log_start_offset(
                    start + int(share * (log.high_watermark - start) / 3)
                )

    def check(self, look: tuple[float, int, bool]) -> None:
        share, size, of_follower = look
        replica = self.follower if of_follower else self.leader
        log = replica.log
        lowest, highest = (
            max(self.model.stable(log.high_watermark, loaded_up_to=loaded), log.log_start_offset)
            for loaded in (0, replica.loaded_up_to)
        )
        stable = log.last_stable_offset
        assert lowest <= stable <= highest
        start = log.log_start_offset + round(share * (stable - log.log_start_offset))
        seen = replica.committed(start, size)
        assert seen == self.model.visible(start, stable)


@settings(max_examples=examples(150))
@given(steps=steps, looks=looks)
@example(
    # Two transactions of one producer and the start of the third in one slice.
    steps=[
        Write(0, 1, True),
        End(0, False),
        Write(0, 1, True),
        End(0, False),
        Write(0, 1, True),
        Fetch(1 << 30),
        End(0, False),
        Act("commit", False, 1.0),
        Fetch(1 << 30),
    ],
    looks=[(0.0, 1, True), (0.5, 1, True), (1.0, 1, True)],
)
def test_committed_reads_against_a_model(
    steps: list[Step], looks: list[tuple[float, int, bool]]
) -> None:
    site = Site()
    for number, step in enumerate(steps):
        site.act(step)
        site.check(looks[number % len(looks)])
    site.leader.log.offsets.update_high_watermark(site.leader.log.log_end_offset)
    while site.follower.log.log_end_offset < site.leader.log.log_end_offset:
        site.fetch(300)
    site.fetch(300)
    for look in looks:
        site.check((look[0], look[1], False))
        site.check((look[0], look[1], True))
