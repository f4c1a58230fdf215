"""A group goes from the classic protocol to the consumer protocol (KIP-848) and back, under load.

Members are processes that restart one at a time, as in a rolling upgrade; on the way there and on
the way back the coordinator is killed while the group has members of both protocols. Every send,
poll and commit is written down and judged. What a member prints is told in ``upgraded_member.py``;
a member of another client prints the same.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster_processes import ClusterProcesses
from tests.system.cluster.watched import Asker, Reader, Sender, anomalies

from millstream.client import Admin
from millstream.client.core.admin.group_descriptions import CLASSIC, CONSUMER, GroupDescription
from millstream.client.core.admin.topics import NewTopic
from millstream.coordinator.group.partitioner import group_partition
from millstream.history.checker import History
from millstream.model.errors import MillstreamError
from millstream.model.topic import GROUP_METADATA_TOPIC

MEMBERS: Final = 3
PARTITIONS: Final = 6
OFFSETS_PARTITIONS: Final = 3
STANDSTILL_S: Final = 30.0
"""A rebalance of a group whose coordinator has died takes less."""
SETTINGS: Final = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "min.insync.replicas": "2",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "10000",
}
OURS: Final = (sys.executable, str(Path(__file__).with_name("upgraded_member.py")))
CLASSIC_TIMES: Final = ("session.timeout.ms=10000", "heartbeat.interval.ms=500")


class Commit(NamedTuple):
    """A commit of one partition that was acknowledged."""

    sent: float
    acknowledged: float


class UpgradedMember(Reader):
    """A process, and what it printed."""

    def __init__(
        self, command: Sequence[str], errors: Path, topic: str, history: History, group: str
    ) -> None:
        super().__init__(topic, history, group)
        self.errors = errors
        with errors.open("wb") as err:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err, text=True
            )
        self._sent: dict[int, float] = {}
        self.commits_of: dict[int, list[Commit]] = defaultdict(list)
        self.begins_of: dict[int, list[float]] = defaultdict(list)
        self.seen: set[tuple[int, int]] = set()
        self.read_at: list[float] = []

    def __str__(self) -> str:
        return f"{self.name}, {self.read} read, {self.errors.read_text()[-600:]!r}"

    def run(self) -> None:
        process = self._process
        assert process.stdout is not None
        with process:
            for line in process.stdout:
                self._line(*line.split())
        assert process.returncode == 0, f"{process.returncode}: {self}"

    def leave(self) -> None:
        """Let it close its consumer and end."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.__exit__(None)

    def _line(self, what: str, number: str, *rest: str) -> None:
        partition = int(number)
        if what == "began":
            self.begins_of[partition].append(float(rest[0]))
            self.began(partition, float(rest[0]))
        elif what == "saw":
            self.seen.add((partition, int(rest[0])))
            self.read_at.append(time.monotonic())
            self.saw(partition, int(rest[0]), rest[1])
        elif what == "committing":
            self._sent[partition] = float(rest[0])
            self.committing(partition, int(rest[1]), float(rest[0]))
        else:
            assert what == "committed", what
            self.commits_of[partition].append(Commit(self._sent[partition], float(rest[0])))
            self.committed(partition, int(rest[1]), float(rest[0]))


class Upgrade:
    """The cluster, the load and the group."""

    def __init__(
        self,
        cluster: ClusterProcesses,
        directory: Path,
        stack: ExitStack,
        topic: str,
        command: Sequence[str],
    ) -> None:
        self.cluster = cluster
        self.topic, self.group = topic, f"group-of-{topic}"
        self.history = History()
        self._directory, self._stack, self._command = directory, stack, command
        self.admin = stack.enter_context(Admin(bootstrap_servers=cluster.bootstrap))
        wanted = NewTopic(topic, partitions=PARTITIONS, configs={"min.insync.replicas": "2"})
        self.admin.create_topics([wanted]).get_all()
        where = cluster.bootstrap, topic, self.history
        self.sender = stack.enter_context(Sender(*where, "writer", PARTITIONS))
        self.asker = stack.enter_context(Asker(*where, self.group, PARTITIONS))
        self.everyone: list[UpgradedMember] = []
        self.living: list[UpgradedMember] = []
        self._numbers = itertools.count()

    def start(self, settings: Sequence[str]) -> None:
        """Start a member, and wait until the group has divided the partitions among all."""
        command = [*self._command, self.cluster.bootstrap, self.topic, self.group, *settings]
        errors = self._directory / f"{self.topic}-{next(self._numbers)}.err"
        member = UpgradedMember(command, errors, self.topic, self.history, self.group)
        self.everyone.append(member)
        self.living.append(self._stack.enter_context(_leaving(member)))

    def replace_each(self, settings: Sequence[str], *, trouble: Callable[[], None]) -> None:
        """Restart members one at a time; ``trouble`` comes when one of them has been restarted."""
        for number in range(MEMBERS):
            old = self.living.pop(0)
            old.leave()
            # The others go on before the next one comes, and everybody does after that.
            self.all_read_more()
            self.start(settings)
            if number == 0:
                trouble()
            self.until_divided()
            self.all_read_more()

    def all_read_more(self) -> None:
        for member in self.living:
            member.wait_for_more()
            member.wait_for_commits(1)

    def description(self) -> GroupDescription | None:
        try:
            return self.admin.describe_groups([self.group])[self.group].get()
        except MillstreamError:
            return None

    def until_divided(self) -> None:
        found: list[GroupDescription | None] = []

        def divided() -> bool:
            described = self.description()
            found[:] = [described]
            if described is None or described.state != "Stable":
                return False
            shares = [each.partitions for each in described.members]
            return len(shares) == MEMBERS and all(shares) and sum(map(len, shares)) == PARTITIONS

        try:
            self.sender.until(divided, "every member has partitions")
        except AssertionError as error:
            members = "\n".join(map(str, self.everyone))
            raise AssertionError(f"{error}: {found}\n{members}") from error

    def until_type(self, expected: str) -> None:
        def changed() -> bool:
            described = self.description()
            return described is not None and described.type == expected

        self.sender.until(changed, f"a group of the {expected} protocol")

    @contextmanager
    def coordinator_killed(self) -> Iterator[None]:
        """Kill the group's coordinator; it comes back after the block."""
        index = group_partition(self.group, OFFSETS_PARTITIONS)
        partition = self.cluster.partition(GROUP_METADATA_TOPIC, index)
        assert partition is not None
        broker = self.cluster[partition.leader]
        broker.kill()
        yield
        broker.start()
        ids = set(self.cluster.brokers)

        def whole() -> bool:
            found = self.cluster.partition(GROUP_METADATA_TOPIC, index)
            return found is not None and set(found.isr) == ids

        self.cluster.until(whole, "the broker that was killed is in sync")

    def kill_the_coordinator(self) -> None:
        with self.coordinator_killed():
            self.until_divided()
            self.all_read_more()

    def finish(self) -> None:
        """Stop the load, and judge."""
        self.sender.__exit__(None)
        everything = {
            (send.partition[1], send.offset)
            for send in self.history.acknowledged()
            if send.offset >= 0
        }

        def all_read() -> bool:
            return set[tuple[int, int]]().union(*(m.seen for m in self.everyone)) >= everything

        self.asker.until(all_read, "every record was read")
        assert everything
        assert not self.sender.failures
        assert anomalies(self.cluster.bootstrap, self.topic, self.history, PARTITIONS) == []
        assert double_owners(self.everyone) == []
        assert longest_standstill(self.everyone) < STANDSTILL_S


@contextmanager
def _leaving(member: UpgradedMember) -> Iterator[UpgradedMember]:
    member.__enter__()
    try:
        yield member
    finally:
        if member._process.poll() is None:
            member._process.kill()


def double_owners(members: Sequence[UpgradedMember]) -> list[str]:
    """Return where a commit of one member was taken between two of another that had the partition
    all the time: it was not assigned to that member anew in between.
    """
    found = []
    for one, other in itertools.permutations(members, 2):
        for partition, commits in one.commits_of.items():
            theirs = other.commits_of.get(partition, [])
            sent = [each.sent for each in theirs]
            begins = one.begins_of[partition]
            for first, second in itertools.pairwise(commits):
                between = bisect_right(begins, first.acknowledged), bisect_left(begins, second.sent)
                if between[0] < between[1]:
                    continue
                after = theirs[bisect_right(sent, first.acknowledged) :]
                if after and after[0].acknowledged < second.sent:
                    found.append(f"{one.name} and {other.name} had {partition} at {after[0]}")
    return found


def longest_standstill(members: Sequence[UpgradedMember]) -> float:
    """Return the longest time in which nobody read anything, in seconds."""
    times = sorted(at for member in members for at in member.read_at)
    return max(later - earlier for earlier, later in itertools.pairwise(times))


def a_rolling_upgrade_and_back(
    cluster: ClusterProcesses,
    directory: Path,
    topic: str,
    *,
    command: Sequence[str] = OURS,
    classic: Sequence[str] = (),
    modern: Sequence[str] = ("group.protocol=consumer", "group.remote.assignor=range"),
) -> None:
    """Run the story. ``command`` starts a member; ``classic`` and ``modern`` are its settings."""
    with ExitStack() as stack:
        upgrade = Upgrade(cluster, directory, stack, topic, command)
        for _ in range(MEMBERS):
            upgrade.start(classic)
        upgrade.until_divided()
        upgrade.until_type(CLASSIC)
        upgrade.replace_each(modern, trouble=upgrade.kill_the_coordinator)
        upgrade.until_type(CONSUMER)
        upgrade.replace_each(classic, trouble=upgrade.kill_the_coordinator)
        upgrade.until_type(CLASSIC)
        upgrade.all_read_more()
        upgrade.finish()
        for member in upgrade.living:
            member.leave()
