"""What clients of the coordinators do in a simulation: transactions, consumer groups.

Each kind is drawn by chance of its own, so that a seed without one of them stays as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from millstream.history.checker import PartitionKey, Value
from millstream.model.topic import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from millstream.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from millstream.runtime.replicas.partition import READ_COMMITTED, Partition
from millstream.sim.broker import rack_of
from millstream.sim.clients import Client
from millstream.sim.committed_reading import read_committed
from millstream.sim.dead_letters import (
    DEAD_LETTER_LIMIT,
    DEAD_LETTER_PARTITIONS,
    DEAD_LETTERS,
    DeadLetter,
    GivenUpLog,
    check_dead_letters,
    dead_letter_topic,
    is_in_force,
    read_dead_letters,
)
from millstream.sim.group_members import SETTINGS as MEMBER_SETTINGS
from millstream.sim.group_members import Commit, GroupMember, check_ownership, unassigned
from millstream.sim.groups import GROUP_PARTITIONS, OffsetQuestion
from millstream.sim.share_consumers import (
    GROUP,
    ShareHistory,
    ShareMember,
    check_deliveries,
    check_nothing_passed_over,
)
from millstream.sim.share_consumers import SETTINGS as SHARE_SETTINGS
from millstream.sim.share_group import ShareGroupSetup, ShareOffsets
from millstream.sim.transaction_history import TransactionHistory, check_transactions
from millstream.sim.transactions import (
    PARTITIONS,
    STATE_PARTITIONS,
    TRANSACTIONAL,
    CommittedReader,
    Transactor,
)

if TYPE_CHECKING:
    from millstream.sim.broker import BrokerLife


class Kind(Enum):
    """What may be part of a seed."""

    TRANSACTIONS = "transactions"
    CONSUMER_GROUP = "consumer-group"
    SHARE_GROUP = "share-group"


class CoordinatorWorkload:
    """Transactional producers, committed readers and members of a consumer group of one seed."""

    def __init__(
        self, seed: int, *, min_isr: int, is_drawn: bool, wanted: Collection[Kind] = ()
    ) -> None:
        """Nothing is there unless it ``is_drawn``, where no kinds are ``wanted``; then those."""
        self._seed = seed
        self._chance = Random(f"transactions of seed {seed}")
        self._joining = Random(f"consumer groups of seed {seed}")
        self._sharing = Random(f"share groups of seed {seed}")
        self._giving_up = Random(f"dead letters of seed {seed}")
        self._min_isr = min_isr
        self._transactor_count = self._member_count = self._share_member_count = 0
        self.history = TransactionHistory()
        self.transactors: list[Transactor] = []
        self.members: list[GroupMember] = []
        self._commits: list[Commit] = []
        self.share_history = ShareHistory()
        self.share_members: list[ShareMember] = []
        self._share_offsets: ShareOffsets | None = None
        self._letters: list[DeadLetter] = []
        self._offsets: dict[str, OffsetQuestion] = {}
        if not wanted and is_drawn:
            wanted = self._drawn()
        if Kind.TRANSACTIONS in wanted:
            self._transactor_count = self._chance.choice((1, 2, 3))
        if Kind.CONSUMER_GROUP in wanted:
            self._member_count = self._joining.choice((2, 3, 4))
        if Kind.SHARE_GROUP in wanted:
            self._share_member_count = self._sharing.choice((1, 2, 4))
        self._has_dead_letters = bool(self._share_member_count) and self._giving_up.random() < 0.6
        if self._has_dead_letters:
            self.share_history.delivery_limit = DEAD_LETTER_LIMIT
        self.given_up = GivenUpLog()
        """What leaders of share partitions say that they have written no dead letter of."""

    def _drawn(self) -> list[Kind]:
        drawn = (
            (Kind.TRANSACTIONS, self._chance, 0.4),
            (Kind.CONSUMER_GROUP, self._joining, 0.3),
            (Kind.SHARE_GROUP, self._sharing, 0.3),
        )
        return [kind for kind, chance, likelihood in drawn if chance.random() < likelihood]

    @property
    def has_transactions(self) -> bool:
        """True where producers write transactions."""
        return bool(self._transactor_count)

    @property
    def settings(self) -> dict[str, str]:
        """What brokers are told."""
        return {
            **MEMBER_SETTINGS,
            **SHARE_SETTINGS,
            "share.coordinator.state.topic.min.isr": str(self._min_isr),
            "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": str(self._min_isr),
            "transaction.state.log.segment.bytes": "1048576",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
        }

    @property
    def topics(self) -> dict[str, int]:
        """How many partitions the topics have that are there in any case."""
        topics: dict[str, int] = {}
        if self._transactor_count:
            topics |= {TRANSACTION_STATE_TOPIC: STATE_PARTITIONS, TRANSACTIONAL: PARTITIONS}
        if self._share_member_count:
            topics[SHARE_GROUP_STATE_TOPIC] = 2
        if self._has_dead_letters:
            topics[DEAD_LETTERS] = DEAD_LETTER_PARTITIONS
        if self._transactor_count or self._member_count or self._share_member_count:
            topics[GROUP_METADATA_TOPIC] = GROUP_PARTITIONS
        return topics

    def new_topics(self) -> list[CreatableTopic]:
        """Return the topics that are to be made first."""
        topics = [dead_letter_topic(self._min_isr)] if self._has_dead_letters else []
        if self._transactor_count:
            topics.append(_transactional_topic(self._min_isr))
        return topics

    def start(self, clients: Sequence[Client], topic: str, *, reads_nearby: bool) -> None:
        """Begin; the consumer group subscribes to ``topic``."""
        chance = self._chance
        for number in range(self._transactor_count):
            transactor = Transactor(
                chance.choice(clients),
                f"t{number}",
                self.history,
                version=chance.choice((1, 2)),
                pause_ms=chance.choice((20.0, 100.0, 400.0)),
                thinking=Random(f"pauses of t{number} in seed {self._seed}"),
            )
            self.transactors.append(transactor)
            transactor.start()
        for index in range(PARTITIONS if self._transactor_count else 0):
            client = chance.choice(clients)
            rack = rack_of(1 + chance.randrange(len(client.brokers))) if reads_nearby else ""
            CommittedReader(client, index, f"r{index}", self.history, rack=rack).start()
        for number in range(self._member_count):
            client = clients[number % len(clients)]
            self.members.append(GroupMember(client, f"m{number}", topic, self._commits))
            self.members[-1].start()
        for number in range(self._share_member_count):
            client = clients[number % len(clients)]
            self.share_members.append(ShareMember(client, f"s{number}", topic, self.share_history))
        if self.share_members:
            ShareGroupSetup(
                clients[0], self.share_members, has_dead_letters=self._has_dead_letters
            ).start()

    def is_set_up(self, lives: Mapping[int, BrokerLife]) -> bool:
        """Tell whether every broker knows what has to be known before anything goes wrong."""
        return not self._has_dead_letters or all(
            is_in_force(life.core.metadata, GROUP) for life in lives.values()
        )

    def waits_since(self, moment_ms: float) -> list[str]:
        """Return who has got nowhere since a moment, though nothing is wrong."""
        return [each.name for each in self.transactors if each.last_committed_ms <= moment_ms]

    # --- the end -------------------------------------------------------------------------------

    def be_quiet(self, client: Client, topic: str, partition_count: int) -> None:
        """Have the members of groups stay from now on."""
        for member in self.members:
            member.is_steady = True
        for share_member in self.share_members:
            share_member.is_steady = True
        if self.share_members:
            self._share_offsets = ShareOffsets(client, topic, partition_count)
            self._share_offsets.start()

    def unassigned(self, partition_count: int) -> list[str]:
        """Return what keeps the quiet group from being whole."""
        return unassigned(self.members, partition_count) if self.members else []

    def not_shared(self, ends: Mapping[int, int]) -> list[str]:
        """Return where the share group has not got to the end of a partition."""
        if self._share_offsets is None:
            return []
        lags = self._share_offsets.lags
        return [
            f"the share group lags {lags.get(index)} in partition {index}, which ends at {end}"
            for index, end in ends.items()
            if end and lags.get(index) != 0
        ]

    def check_share_group(
        self, present: Mapping[int, Mapping[int, Value]], lives: Mapping[int, BrokerLife]
    ) -> list[str]:
        """Return what must not be of what was delivered, and given up, of the topic's records."""
        if not self.share_members:
            return []
        history = self.share_history
        problems = check_deliveries(history) + check_nothing_passed_over(history, present)
        if self._has_dead_letters:
            replicas = _replicas_of(lives, DEAD_LETTERS, DEAD_LETTER_PARTITIONS)
            self._letters = read_dead_letters(replica for _, _, replica in replicas)
            problems += check_dead_letters(history, self._letters, self.given_up.records, present)
        return problems

    def ask_for_offsets(self, client: Client) -> None:
        """Begin to ask what the groups of transactional producers have committed."""
        for transactor in self.transactors:
            question = OffsetQuestion(client, transactor.group, (TRANSACTIONAL, 0))
            self._offsets[transactor.name] = question
            question.start()

    def undecided(self, lives: Mapping[int, BrokerLife]) -> list[str]:
        """Return where a committed reader waits for the end of a transaction, and whose offsets
        nobody tells.
        """
        found = [
            f"broker {number} shows {TRANSACTIONAL}-{index} up to "
            f"{replica.visible_end(READ_COMMITTED)} of {replica.log_end_offset}"
            for number, index, replica in _replicas(lives)
            if replica.visible_end(READ_COMMITTED) < replica.log_end_offset
        ]
        found += [
            f"nobody says what the group of {name} has committed"
            for name, question in self._offsets.items()
            if not question.is_answered()
        ]
        return found

    def check(self, lives: Mapping[int, BrokerLife]) -> list[str]:
        """Read every replica by fetches of several sizes; return what must not be."""
        passes: dict[PartitionKey, dict[str, list[tuple[int, str]]]] = {}
        for number, index, replica in _replicas(lives):
            for max_bytes in (1 << 20, 1, 300):
                read = read_committed(replica, max_bytes)
                name = f"broker {number} by {max_bytes} bytes"
                passes.setdefault((TRANSACTIONAL, index), {})[name] = read
        offsets = {name: question.answer for name, question in self._offsets.items()}
        problems = check_transactions(self.history, passes, offsets)
        return problems + check_ownership(self._commits)

    def count(self) -> Counter[str]:
        """Return how often what happened."""
        seen: Counter[str] = Counter()
        seen["seeds with transactions"] += bool(self.transactors)
        seen["committed records seen"] += len(self.history.sights)
        for transactor in self.transactors:
            for end, count in transactor.ended.items():
                seen[f"transactions {end.value}"] += count
            seen["zombies fenced"] += transactor.fenced_zombies
        seen["seeds with a consumer group"] += bool(self.members)
        for member in self.members:
            seen.update(member.seen)
        seen["seeds with a share group"] += bool(self.share_members)
        seen["records shared"] += len(self.share_history.deliveries)
        for share_member in self.share_members:
            seen.update(share_member.seen)
        seen["seeds with dead letters"] += self._has_dead_letters
        for message in {(each.partition, each.offset, each.message) for each in self._letters}:
            seen[f"dead letters: {message[-1]}"] += 1
        seen["records given up without a dead letter"] += len(self.given_up.records)
        return seen


def _transactional_topic(min_isr: int) -> CreatableTopic:
    return CreatableTopic(
        name=TRANSACTIONAL,
        num_partitions=PARTITIONS,
        replication_factor=3,
        assignments=[],
        configs=[
            CreatableTopicConfig(name="min.insync.replicas", value=str(min_isr)),
            CreatableTopicConfig(name="internal.segment.bytes", value="2000"),
        ],
    )


def _replicas(lives: Mapping[int, BrokerLife]) -> Iterator[tuple[int, int, Partition]]:
    """Yield broker, index and replica of what transactions write to."""
    yield from _replicas_of(lives, TRANSACTIONAL, PARTITIONS)


def _replicas_of(
    lives: Mapping[int, BrokerLife], topic: str, partition_count: int
) -> Iterator[tuple[int, int, Partition]]:
    for number, life in lives.items():
        for index in range(partition_count):
            replica = life.partitions.replica(topic, index)
            if replica is not None:
                yield number, index, replica
