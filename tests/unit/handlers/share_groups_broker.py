"""A broker with a group coordinator, a share coordinator and a persister, and no network."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TypeVar

import pytest
from tests.unit.handlers.admin_broker import AdminBroker

from millstream.coordinator.group.partitioner import group_partition
from millstream.coordinator.share.partitioner import share_coordinator_partition
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TopicId
from millstream.protocol.message import Request, Response
from millstream.runtime.coordinators.coordinator_registry import (
    CoordinatorEntry,
    CoordinatorRegistry,
    CoordinatorType,
)
from millstream.runtime.coordinators.group_coordinator_runtime import GroupCoordinatorRuntime
from millstream.runtime.coordinators.share_coordinator_runtime import ShareCoordinatorRuntime
from millstream.runtime.share.persister import SharePersister

T = TypeVar("T")


class ShareBroker(AdminBroker):
    """A broker with a share coordinator and a persister."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(
            directory, {"share.coordinator.state.topic.num.partitions": "3", **(settings or {})}
        )
        self._ids = itertools.count(1)
        self.is_cut_off = False
        """True while requests to brokers time out."""
        self.share_coordinator = self.begin()
        self.persister = SharePersister(
            clock=self.clock,
            metadata=self.metadata,
            ensure_topic=self.services.ensure_topic,
            send_request=self._send,
        )
        self.services.new_share_persister = lambda: self.persister

    def begin(self) -> ShareCoordinatorRuntime:
        """Make the coordinators, as a start of the broker does."""
        runtime = ShareCoordinatorRuntime(
            self.config.current,
            clock=self.clock,
            offload=self.offload,
            partitions=self.partitions,
            metadata=self.metadata,
            send_request=self._send,
        )
        entry: CoordinatorEntry[ShareCoordinatorRuntime] = CoordinatorEntry(
            CoordinatorType.SHARE,
            SHARE_GROUP_STATE_TOPIC,
            share_coordinator_partition,
            lambda: runtime,
        )
        self.groups = GroupCoordinatorRuntime(
            self.config.current,
            clock=self.clock,
            offload=self.offload,
            partitions=self.partitions,
            metadata=self.metadata,
            new_id=lambda: f"id-{next(self._ids)}",
            send_request=self._send,
        )
        groups: CoordinatorEntry[GroupCoordinatorRuntime] = CoordinatorEntry(
            CoordinatorType.GROUP, GROUP_METADATA_TOPIC, group_partition, lambda: self.groups
        )
        self.services.coordinators = CoordinatorRegistry([groups, entry], self.partitions)
        self.services.group_runtime = groups.get
        self.services.share_runtime = entry.get
        return runtime

    def _send(self, broker_id: BrokerId, request: Request, timeout_ms: int) -> Deferred[Response]:
        if self.is_cut_off:
            lost: Deferred[Response] = Deferred()
            error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            self.clock.call_later(timeout_ms, lambda: lost.fail(error))
            return lost
        return self.requests.send(broker_id, request, timeout_ms)

    def end(self) -> None:
        """Stop the coordinators and close the logs."""
        self.persister.stop()
        self.groups.stop()
        self.share_coordinator.stop()
        self.close()

    def start_again(self) -> None:
        """End the coordinators and begin new ones over the same logs."""
        self.groups.stop()
        self.share_coordinator.stop()
        self.share_coordinator = self.begin()

    def topic(self, name: str, partitions: int = 2) -> TopicId:
        return self.create(name, partitions).topic_id

    def send(self, request: Request, version: int) -> Response:
        return self.result(self.start(request, version))

    def wait(self, reply: Deferred[T]) -> None:
        """Let time pass until there is an answer."""
        for _ in range(300):
            self.clock.advance(0 if reply.done else 100)

    def result(self, reply: Deferred[T]) -> T:
        self.wait(reply)
        return reply.result()

    def refusal(self, reply: Deferred[T]) -> ErrorCode:
        self.wait(reply)
        with pytest.raises(KafkaError) as raised:
            reply.result()
        return raised.value.error
