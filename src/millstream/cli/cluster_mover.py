"""Carries out a plan of moves between brokers: a few at a time, with a bar, until all are over."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from millstream.cli.failures import CommandFailedError, sentence
from millstream.cli.progress import TerminalBar
from millstream.client import Admin
from millstream.client.placement import Placement, bytes_to_copy
from millstream.client.replicas import ClusterView
from millstream.model.topic import TopicPartition

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

_LOOK_EVERY_S: Final = 0.3
_MEASURE_EVERY_S: Final = 1.0


class Mover:
    """Begins moves, at most ``at_once`` at the same time."""

    def __init__(self, admin: Admin, view: ClusterView, plan: Placement, *, at_once: int) -> None:
        self._admin = admin
        present = {each.topic_partition: each for each in view.partitions}
        self._added = {
            topic_partition: set(target) - set(present[topic_partition].replicas)
            for topic_partition, target in plan.items()
        }
        self._sizes = {
            topic_partition: present[topic_partition].size_bytes for topic_partition in plan
        }
        self._cost = {
            topic_partition: bytes_to_copy(
                {topic_partition: present[topic_partition].replicas},
                {topic_partition: target},
                {topic_partition: self._sizes[topic_partition]},
            )
            for topic_partition, target in plan.items()
        }
        self._waiting = dict(sorted(plan.items()))
        self._moving: dict[TopicPartition, Sequence[int]] = {}
        self._at_once = at_once
        self._moved_bytes = 0
        self._ended = 0
        self.begun = 0
        """How many moves were begun: those go on whatever becomes of this process."""

    def run(self) -> None:
        """Move everything; CommandFailedError when a move is refused."""
        with MovesBar(sum(self._cost.values()), len(self._cost)) as bar:
            measured_s = time.monotonic()
            while self._waiting or self._moving:
                self._begin()
                time.sleep(_LOOK_EVERY_S)
                self._look()
                under_way = 0
                if bar.is_shown and time.monotonic() - measured_s >= _MEASURE_EVERY_S:
                    under_way = self._copied()
                    measured_s = time.monotonic()
                bar.show(self._moved_bytes + under_way, self._ended)

    def _begin(self) -> None:
        topic_partitions = list(self._waiting)[: self._at_once - len(self._moving)]
        batch = {
            topic_partition: self._waiting.pop(topic_partition)
            for topic_partition in topic_partitions
        }
        if not batch:
            return
        outcomes = self._admin.alter_partition_reassignments(batch)
        self.begun += len(outcomes) - len(outcomes.errors)
        for topic_partition, error in outcomes.errors.items():
            raise CommandFailedError(f"{topic_partition}: {sentence(error)}")
        self._moving.update(batch)

    def _look(self) -> None:
        still = self._admin.list_partition_reassignments()
        for topic_partition in [
            topic_partition for topic_partition in self._moving if topic_partition not in still
        ]:
            del self._moving[topic_partition]
            self._ended += 1
            self._moved_bytes += self._cost[topic_partition]

    def _copied(self) -> int:
        """Return how many bytes the new replicas have of what moves now."""
        return sum(
            min(replica.size_bytes, self._sizes[topic_partition])
            for broker_id, directories in self._admin.describe_log_dirs().get_all().items()
            for directory in directories
            for topic_partition, replica in directory.replicas.items()
            if topic_partition in self._moving and broker_id in self._added[topic_partition]
        )


class MovesBar(TerminalBar):
    """Bytes that were copied and partitions that have moved; it never goes back."""

    def __init__(self, total_bytes: int, partitions: int) -> None:
        self._shown_bytes = 0
        super().__init__(total=max(1, total_bytes), done=0, all=partitions)

    def columns(self) -> Sequence[ProgressColumn | str]:
        """Bar, bytes, rate, partitions, time."""
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        return (
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TextColumn("{task.fields[done]} of {task.fields[all]} partitions"),
            TimeRemainingColumn(),
        )

    def show(self, copied_bytes: int, moved: int) -> None:
        """Show how far it is."""
        self._shown_bytes = max(self._shown_bytes, copied_bytes)
        self.update(completed=self._shown_bytes, done=moved)
