"""A group coordinator over real logs in a temporary directory, with a hand clock and an offload
that waits to be released.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.topic import TopicConfig
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.leadership import PartitionState
from millstream.model.topic import GROUP_METADATA_TOPIC, TopicId
from millstream.protocol.message import Request, Response
from millstream.runtime.coordinators.group_configs import GroupConfigs
from millstream.runtime.coordinators.group_coordinator_runtime import GroupCoordinatorRuntime
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.replicas.partitions import Partitions
from millstream.runtime.replicas.transaction_verification import (
    RequestSender,
    TransactionVerifier,
)
from millstream.storage.environment import LogEnvironment
from millstream.storage.log_manager import LogManager

T = TypeVar("T")
BROKER = BrokerId(1)
TOPIC_ID = TopicId(bytes(range(16)))


def send_nothing(_broker: BrokerId, _request: Request, _timeout_ms: int) -> Deferred[Response]:
    raise AssertionError("groups send nothing to other brokers")


class HandClock:
    """Time that moves when a test says so."""

    def __init__(self) -> None:
        self.time_ms = 1_700_000_000_000
        self._timers: list[tuple[float, int, HandTimer]] = []
        self._soon: list[Callable[[], None]] = []
        self._count = itertools.count()

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> float:
        return float(self.time_ms)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> HandTimer:
        timer = HandTimer(callback)
        heapq.heappush(self._timers, (self.time_ms + delay_ms, next(self._count), timer))
        return timer

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._soon.append(callback)

    def run_once(self) -> None:
        """Run what was put off to the end of this pass of the loop."""
        soon, self._soon = self._soon, []
        for callback in soon:
            callback()

    def settle(self) -> None:
        """Run until nothing is put off any more."""
        while self._soon:
            self.run_once()

    @property
    def timers_running(self) -> int:
        return sum(timer.is_running for _, _, timer in self._timers)

    def advance(self, milliseconds: int) -> None:
        end_ms = self.time_ms + milliseconds
        self.settle()
        while self._timers and self._timers[0][0] <= end_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            self.time_ms = max(self.time_ms, int(due_ms))
            timer.fire()
            self.settle()
        self.time_ms = end_ms


class HandTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    @property
    def is_running(self) -> bool:
        return self._callback is not None

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        if self._callback is not None:
            self._callback()


class HeldOffload:
    """Runs work at once, or when released while ``held``."""

    def __init__(self) -> None:
        self.held = False
        self._waiting: list[tuple[str, Callable[[], None]]] = []

    def run(self, lane: str, function: Callable[[], T]) -> Deferred[T]:
        outcome: Deferred[T] = Deferred()

        def work() -> None:
            try:
                value = function()
            except Exception as error:
                outcome.fail(error)
            else:
                outcome.complete(value)

        if self.held:
            self._waiting.append((lane, work))
        else:
            work()
        return outcome

    def release(self, lane: str = "") -> None:
        """Run what waits, or only what waits in lanes whose name begins so."""
        waiting, self._waiting = self._waiting, []
        for name, work in waiting:
            if name.startswith(lane):
                work()
            else:
                self._waiting.append((name, work))

    def close(self) -> None:
        assert not self._waiting


class Site:
    """``__consumer_offsets`` with ``partition_count`` partitions, and who coordinates them.

    ``ask_coordinator`` takes the requests that verify transactions.
    """

    def __init__(
        self,
        directory: Path,
        *,
        partition_count: int = 1,
        settings: dict[str, str] | None = None,
        topic_settings: dict[str, str] | None = None,
        creates: bool = True,
        ask_coordinator: RequestSender = send_nothing,
    ) -> None:
        self.clock = HandClock()
        self.offload = HeldOffload()
        self.metadata = MetadataCache("cluster")
        self.log_manager = LogManager([str(directory)], LogEnvironment(), broker_id=BROKER)
        self.failed_directories: list[str] = []
        config = BrokerConfig({"log.dirs": str(directory), **(settings or {})})
        verifier = TransactionVerifier(
            DynamicConfig(config), self.metadata, self.clock, ask_coordinator
        )
        self.partitions = Partitions(
            BROKER,
            clock=self.clock,
            offload=self.offload,
            log_manager=self.log_manager,
            metadata=self.metadata,
            on_directory_failed=self.failed_directories.append,
            new_verifier=lambda: verifier,
        )
        self.topic_config = TopicConfig({"cleanup.policy": "compact", **(topic_settings or {})})
        self.groups = GroupCoordinatorRuntime(
            config,
            clock=self.clock,
            offload=self.offload,
            partitions=self.partitions,
            metadata=self.metadata,
            new_id=map(str, itertools.count(1)).__next__,
            send_request=send_nothing,
            group_configs=GroupConfigs(DynamicConfig(config), self.metadata),
        )
        self.log_manager.lock()
        self.log_manager.start(
            config_of=lambda _partition, _id: self.topic_config, now_ms=self.clock.now_ms()
        )
        if creates:
            self.create(GROUP_METADATA_TOPIC, partition_count)

    def create(self, name: str, partition_count: int, topic_id: TopicId = TOPIC_ID) -> TopicImage:
        state = PartitionState(replicas=(BROKER,), leader=BROKER, leader_epoch=0, isr=(BROKER,))
        image = TopicImage(name, topic_id, (state,) * partition_count, self.topic_config)
        self.metadata.update(image)
        self.partitions.topic_changed(image, created=True)
        return image

    def close(self) -> None:
        self.groups.stop()
        self.partitions.stop()
        self.log_manager.close()
