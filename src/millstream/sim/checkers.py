"""What has to hold at every moment of a simulated cluster, and what at its end: one method for each
invariant of REPLICATION §7.

The brokers' own objects are looked at, from outside and without changing them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from millstream.controller import paths, payloads
from millstream.controller.election import membership_epoch
from millstream.history.checker import PartitionKey, Value
from millstream.model.leadership import NO_LEADER, LeaderRecoveryState, PartitionState
from millstream.model.metadata_store import Node
from millstream.model.topic import INTERNAL_TOPICS, TopicId, TopicPartition
from millstream.records.batch import Batch, iter_batches
from millstream.records.record import iter_records
from millstream.runtime.replicas.partition import Partition
from millstream.sim.broker import BrokerLife
from millstream.sim.dead_letters import DEAD_LETTERS
from millstream.sim.recreation import RECREATED, partition_key_of
from millstream.sim.transactions import TRANSACTIONAL
from millstream.storage.log import Log

FOLLOWS: Final = -1
"""Stands instead of the leader epoch for a replica that follows."""


class Held(NamedTuple):
    """One partition of one life of a topic."""

    topic_id: TopicId
    topic_partition: TopicPartition

    @classmethod
    def of(cls, partition: Partition) -> Held:
        """Return what a replica is of."""
        return cls(partition.topic_id, partition.topic_partition)

    def __str__(self) -> str:
        return str(self.topic_partition)


class Entry(NamedTuple):
    """One batch as a log holds it."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


def entries(log: Log, start: int, end: int) -> Iterable[Entry]:
    """Yield the batches of a log from ``start`` up to ``end``."""
    for batch in batches(log, start, end):
        yield Entry(batch.base_offset, batch.next_offset, batch.partition_leader_epoch, batch.crc)


def batches(log: Log, start: int, end: int, *, whole: bool = True) -> Iterable[Batch]:
    """Yield the batches between two offsets, as far as they are kept; with the one in whose middle
    the log begins, unless only ``whole`` ones are wanted.
    """
    start = max(start, log.log_start_offset)
    while start < end:
        read = log.reader.read(start, max_bytes=1 << 20, upper_bound_offset=end, min_one_batch=True)
        if read.records is None:
            return
        at = start
        for batch in iter_batches(read.records.read()):
            if at <= batch.base_offset or not whole:
                yield batch
            start = batch.next_offset
        if start == at:
            return


class Checkers:
    """Collects what is wrong, one sentence each."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.committed: dict[Held, list[Entry]] = {}
        """What some leader has committed."""
        self._leaders: dict[tuple[Held, int], BrokerLife] = {}
        self._newest: dict[Held, int] = {}
        self._checked: dict[tuple[BrokerLife, Held, int], int] = {}
        """Up to which committed entry a leadership has been compared."""
        self._high_watermarks: dict[tuple[BrokerLife, Held, int], int] = {}
        self._starts: dict[Log, int] = {}
        self._directories: dict[tuple[BrokerLife, Held], str] = {}
        """In which log directory a replica lies."""
        self.elections = 0
        self.seen: Counter[str] = Counter()
        """Interesting states, and how often they were come upon."""

    def _wrong(self, sentence: str) -> None:
        if len(self.problems) < 20 and sentence not in self.problems:
            self.problems.append(sentence)

    # --- the coordination store --------------------------------------------------------------

    def tree_changed(self, before: Mapping[str, Node], after: Mapping[str, Node]) -> None:
        """Epochs never go back; a leader is in the ISR, or there is none."""
        for path, node in after.items():
            known = before.get(path)
            if known is node or known is None or known.data == node.data:
                continue
            if path == paths.CONTROLLER_EPOCH:
                if int(node.data) <= int(known.data):
                    self._wrong(f"the controller epoch went from {known.data!r} to {node.data!r}")
            elif path.endswith("/state"):
                self._check_state(path, known, node)

    def _check_state(self, path: str, known: Node, node: Node) -> None:
        old, new = _state(path, known), _state(path, node)
        if new.leader_epoch < old.leader_epoch or new.controller_epoch < old.controller_epoch:
            self._wrong(f"{path}: epochs went back from {old} to {new}")
        if new.leader != NO_LEADER and new.leader not in new.isr:
            self._wrong(f"{path}: leader {new.leader} is not in the ISR {new.isr}")
        if new.leader != old.leader and new.leader_epoch == old.leader_epoch:
            self._wrong(f"{path}: another leader in the same epoch {new.leader_epoch}")
        if new.leader_recovery_state is LeaderRecoveryState.RECOVERING:
            self._wrong(f"{path}: {new.leader} was elected though it may lack records: {old}")
        self.elections += new.leader != old.leader
        self.seen["no leader"] += new.leader == NO_LEADER
        self.seen["an empty ISR"] += not new.isr
        self.seen["an eligible leader replica outside the ISR"] += bool(new.elr)
        self.seen["a last known eligible leader replica"] += bool(new.last_known_elr)
        self.seen["an ISR of one"] += len(new.isr) == 1
        self.seen["the ISR grew"] += len(new.isr) > len(old.isr)
        self.seen["the ISR shrank"] += len(new.isr) < len(old.isr)

    # --- the brokers -------------------------------------------------------------------------

    def look(self, lives: Iterable[BrokerLife], tree: Mapping[str, Node]) -> None:
        """Look at everything that must hold at any moment."""
        looked = tuple(lives)
        for life in looked:
            for partition in life.partitions:
                self._begins(life, partition)
                if partition.leading is not None:
                    self._one_leader(life, partition)
                    self._leads_by_right(life, partition)
                    self._commits(life, partition)
                    self._maximal_isr(life, partition, tree)
        for life in looked:
            for partition in life.partitions:
                if partition.following is not None:
                    self._shows(life, partition)
        for life in looked:
            if life.is_up:
                for partition in life.partitions:
                    self._member_has_everything(life, partition, tree)

    def _member_has_everything(
        self, life: BrokerLife, partition: Partition, tree: Mapping[str, Node]
    ) -> None:
        """Whoever is stored as in sync, and has lost nothing since, may be elected."""
        held = Held.of(partition)
        state = self._stored(tree, held)
        committed = self.committed.get(held)
        continuity = life.member.registration.continuity
        if state is None or not committed or continuity is None:
            return
        if life.id not in state.isr or continuity > membership_epoch(state, life.id):
            return
        if partition.log.log_end_offset < committed[-1].next_offset:
            self._wrong(
                f"{held}: broker {life.number} is in the ISR {state.isr} with a log up to "
                f"{partition.log.log_end_offset}; committed is up to {committed[-1].next_offset}"
            )

    def _begins(self, life: BrokerLife, partition: Partition) -> None:
        """A log never begins earlier than before, while it is open."""
        log, start = partition.log, partition.log.log_start_offset
        before = self._starts.setdefault(log, start)
        if start < before:
            self._wrong(
                f"{Held.of(partition)}: the log of broker {life.number} begins at {start}, and "
                f"began at {before}"
            )
        self.seen["a log start moved"] += start > before
        self._starts[log] = start
        key = (life, Held.of(partition))
        lies = self._directories.setdefault(key, log.log_directory)
        self.seen["a replica moved to another log directory"] += lies != log.log_directory
        self._directories[key] = log.log_directory

    def _shows(self, life: BrokerLife, partition: Partition) -> None:
        """What a follower shows to readers nearby is committed: every leader has to have it."""
        held, log = Held.of(partition), partition.log
        committed = self.committed.setdefault(held, [])
        key = (life, held, FOLLOWS)
        start = self._checked.get(key, 0)
        if start < log.high_watermark:
            self._compare(life, log, committed, start, log.high_watermark)
            self._checked[key] = log.high_watermark

    def _one_leader(self, life: BrokerLife, partition: Partition) -> None:
        key = (Held.of(partition), partition.leader_epoch)
        known = self._leaders.setdefault(key, life)
        if known is not life:
            two = f"brokers {known.number} and {life.number}"
            if known.number == life.number:
                two = f"two lives of broker {life.number}"
            self._wrong(f"{key[0]}: {two} lead in epoch {key[1]}")

    def _leads_by_right(self, life: BrokerLife, partition: Partition) -> None:
        """Whoever leads has kept its data since it was taken into the ISR."""
        assert partition.leading is not None
        state = partition.leading.machine.state
        continuity = life.member.registration.continuity
        if continuity is None or continuity > membership_epoch(state, life.id):
            self._wrong(
                f"{Held.of(partition)}: broker {life.number} leads by {state}, and has lost what "
                f"it had before epoch {continuity}"
            )

    def _commits(self, life: BrokerLife, partition: Partition) -> None:
        """What is committed never changes, and the newest leader holds all of it."""
        held, epoch = Held.of(partition), partition.leader_epoch
        committed = self.committed.setdefault(held, [])
        log = partition.log
        key = (life, held, epoch)
        newest = self._newest.get(held, -1)
        if epoch > newest:
            self._newest[held] = epoch
        end = committed[-1].next_offset if committed else 0
        if epoch >= newest and log.log_end_offset < end:
            self._wrong(
                f"{held}: broker {life.number} leads epoch {epoch} with a log up to "
                f"{log.log_end_offset}; committed is up to {end}"
            )
            return
        high_watermark = log.high_watermark
        if high_watermark < self._high_watermarks.get(key, -1):
            self._wrong(f"{held}: the high watermark of epoch {epoch} went back")
        self._high_watermarks[key] = high_watermark
        if key not in self._checked and epoch >= newest:
            self._compare(life, log, committed, 0, end)  # all of it, once
        start = self._checked.get(key, 0)
        if start < high_watermark:
            self._compare(life, log, committed, start, high_watermark)
        self._checked[key] = max(start, high_watermark)

    def _compare(
        self, life: BrokerLife, log: Log, committed: list[Entry], start: int, end: int
    ) -> None:
        """Compare with what is known to be committed, and note what was not known: it may have been
        committed and deleted at its leader since the last look.
        """
        for entry in entries(log, start, end):
            at = bisect_left(committed, entry.base_offset, key=lambda each: each.base_offset)
            near = committed[max(0, at - 1) : at + 1]
            if entry in near:
                continue
            for before in near:
                if _overlap(before, entry):
                    self._wrong(
                        f"{log.topic_partition}: broker {life.number} has {entry} where {before} "
                        "was committed"
                    )
                    break
            else:
                committed.insert(at, entry)

    def _maximal_isr(
        self, life: BrokerLife, partition: Partition, tree: Mapping[str, Node]
    ) -> None:
        """While the high watermark may move, whoever may be elected is waited for."""
        assert partition.leading is not None
        machine = partition.leading.machine
        stored = self._stored(tree, Held.of(partition))
        if stored is None or machine.is_under_min_isr:
            return
        if stored.leader_epoch != partition.leader_epoch:
            return
        missing = {*stored.isr, *stored.elr}.difference(machine.waited_for)
        if missing:
            self._wrong(
                f"{partition.topic_partition}: broker {life.number} does not wait for {missing}, "
                f"which may be elected: {stored}"
            )

    def _stored(self, tree: Mapping[str, Node], held: Held) -> PartitionState | None:
        """Return what the store says of a partition, None when its topic is there no more."""
        topic, index = held.topic_partition.topic, held.topic_partition.partition
        node, known = tree.get(paths.state(topic, index)), tree.get(paths.topic(topic))
        if node is None or known is None or _topic(known.data).topic_id != held.topic_id:
            return None
        return _state("", node)

    # --- the end -----------------------------------------------------------------------------

    def unhealthy(
        self, lives: Mapping[int, BrokerLife], tree: Mapping[str, Node], topics: Mapping[str, int]
    ) -> list[str]:
        """Return what keeps the cluster from being whole."""
        found = [f"broker {number} is not up" for number, life in lives.items() if not life.is_up]
        for topic, count in topics.items():
            known = tree.get(paths.topic(topic))
            if known is None:
                found.append(f"{topic} is not there")
                continue
            assignment = _topic(known.data)
            if any(assignment.adding.values()) or any(assignment.removing.values()):
                found.append(f"{topic} is still being reassigned")
            for index in range(count):
                node = tree.get(paths.state(topic, index))
                if node is None:
                    found.append(f"{topic}-{index} has no state")
                    continue
                state = _state("", node)
                if state.leader == NO_LEADER or sorted(state.isr) != sorted(
                    assignment.replicas[index]
                ):
                    found.append(f"{topic}-{index}: leader {state.leader}, ISR {state.isr}")
        return found

    def left_over(self, lives: Mapping[int, BrokerLife], tree: Mapping[str, Node]) -> list[str]:
        """Return what is kept of topics, or of replicas, that are no more."""
        found = [
            f"the deletion of {path} does not end"
            for path in tree
            if path.startswith(paths.DELETED_TOPICS + "/")
        ]
        for life in lives.values():
            found += _moves_left(life)
            for partition in life.partitions:
                held = Held.of(partition)
                topic, index = held.topic_partition.topic, held.topic_partition.partition
                if self._stored(tree, held) is None:
                    found.append(f"broker {life.number} keeps {held}, whose topic is deleted")
                elif life.id not in _topic(tree[paths.topic(topic)].data).replicas[index]:
                    found.append(f"broker {life.number} keeps {held} and is no replica of it")
                else:
                    found += _other_settings(life, partition, tree)
        return found

    def finish(
        self, lives: Mapping[int, BrokerLife], tree: Mapping[str, Node], topics: Mapping[str, int]
    ) -> dict[PartitionKey, dict[int, Value]]:
        """Compare the logs with each other; return what they hold, by offset."""
        self.look(lives.values(), tree)
        final: dict[PartitionKey, dict[int, Value]] = {}
        for topic, count in topics.items():
            for index in range(count):
                leader = _state("", tree[paths.state(topic, index)]).leader
                kept = [
                    partition
                    for life in lives.values()
                    if (partition := life.partitions.replica(topic, index)) is not None
                ]
                for partition in kept:
                    self._check_log(partition.log)
                self._equal(kept)
                leading = lives[leader].partitions.replica(topic, index)
                assert leading is not None
                if topic not in (*INTERNAL_TOPICS, TRANSACTIONAL, DEAD_LETTERS):
                    final[_partition_key(leading)] = _values(leading.log)
                committed = self.committed.get(Held.of(leading), [])
                present = set(entries(leading.log, 0, leading.log.log_end_offset))
                for entry in _tail(committed, leading.log.log_start_offset):
                    if entry not in present and entry.base_offset >= leading.log.log_start_offset:
                        self._wrong(f"{leading.topic_partition}: {entry} was committed and is gone")
        return final

    def _equal(self, kept: list[Partition]) -> None:
        """Logs are equal up to the smallest high watermark, from where all have begun."""
        start = max(each.log.log_start_offset for each in kept)
        end = min(each.log.high_watermark for each in kept)
        first, *others = [
            [bytes(batch.buffer) for batch in batches(each.log, start, end)] for each in kept
        ]
        for other in others:
            if other != first:
                self._wrong(f"{kept[0].topic_partition}: replicas differ below {end}")

    def _check_log(self, log: Log) -> None:
        """Offsets follow each other, epochs never fall, the epoch cache says what the log says."""
        at, epoch = -1, -1
        starts: dict[int, int] = {}
        for entry in entries(log, 0, log.log_end_offset):
            if entry.base_offset != at >= 0 or entry.epoch < epoch:
                self._wrong(f"{log.topic_partition}: {entry} follows on {at} in epoch {epoch}")
            at, epoch = entry.next_offset, entry.epoch
            starts.setdefault(epoch, entry.base_offset)
        for each, start in starts.items():
            if log.epoch_for_offset(start) != each:
                told = log.epoch_for_offset(start)
                self._wrong(
                    f"{log.topic_partition}: the cache says epoch {told} at {start}, not {each}"
                )


def _moves_left(life: BrokerLife) -> Iterator[str]:
    """Yield which moves between log directories do not end, and what ended ones have left."""
    for log in life.log_manager.future_logs:
        yield f"broker {life.number} does not end the move to {log.directory}"
    directories_with: Counter[str] = Counter()
    for directory in life.log_manager.directories:
        for each in life.file_system.scan(directory):
            directories_with[each.name] += each.is_directory
    for name, count in directories_with.items():
        if count > 1:
            yield f"broker {life.number} keeps {name} in {count} log directories"
        elif name.endswith("-future"):
            yield f"broker {life.number} has left {name} behind"


def _other_settings(
    life: BrokerLife, partition: Partition, tree: Mapping[str, Node]
) -> Iterator[str]:
    """Yield where a replica goes by another ``min.insync.replicas`` than the store has."""
    node = tree.get(paths.topic_config(partition.topic_partition.topic))
    texts = {} if node is None else payloads.read_config("", node.data)
    stored = texts.get("min.insync.replicas")
    followed = partition.log.config.min_insync_replicas
    if stored is not None and int(stored) != followed:
        yield (
            f"broker {life.number} goes by min.insync.replicas {followed} for "
            f"{partition.topic_partition}; the store has {stored}"
        )


def _overlap(one: Entry, other: Entry) -> bool:
    return one.base_offset < other.next_offset and other.base_offset < one.next_offset


def _tail(committed: list[Entry], start: int) -> list[Entry]:
    """Return the entries from an offset on."""
    low = len(committed)
    while low and committed[low - 1].next_offset > start:
        low -= 1
    return committed[low:]


def _partition_key(partition: Partition) -> PartitionKey:
    """Return where the history has a partition."""
    if partition.topic_partition.topic == RECREATED:
        return partition_key_of(partition.topic_id)
    return (partition.topic_partition.topic, partition.topic_partition.partition)


def _values(log: Log) -> dict[int, Value]:
    return {
        record.offset: bytes(record.value or b"").decode()
        for batch in batches(log, 0, log.log_end_offset, whole=False)
        for record in iter_records(batch)
        if record.offset >= log.log_start_offset
    }


def _state(path: str, node: Node) -> PartitionState:
    return _parsed_state(path, node.data, node.version)


@lru_cache(maxsize=512)
def _parsed_state(path: str, data: bytes, version: int) -> PartitionState:
    return payloads.read_state(path, data, replicas=(), version=version)


@lru_cache(maxsize=64)
def _topic(data: bytes) -> payloads.Assignment:
    return payloads.read_topic("", data)
