"""Several controllers over one tree in memory, and a network between them that a test can cut."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.memory_metadata_store import MemoryMetadataStore, MemoryTree
from tests.unit.runtime.coordinator_site import HandClock

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.controller.election import LogEnd
from millstream.controller.payloads import Registration
from millstream.controller.topic_changes import NewTopic
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.model.topic import TopicPartition
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.describe_fetchers import (
    DescribeFetchersRequest,
    DescribeFetchersResponse,
)
from millstream.protocol.messages.describe_replicas import (
    DescribedReplica,
    DescribeReplicasRequest,
    DescribeReplicasResponse,
)
from millstream.protocol.messages.push_metadata import PushMetadataRequest, PushMetadataResponse
from millstream.runtime.controlling.cluster_controller import ClusterController, LocalObservations
from millstream.runtime.controlling.cluster_reading import prepare_store
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.membership.broker_registration import BrokerRegistration
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.metadata.metadata_messages import metadata_update

SESSION_MS = 6_000


@dataclass
class Heard:
    """What a broker was told."""

    changed: list[TopicImage] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        self.changed.append(image)
        if created:
            self.created.append(image.name)

    def topic_deleted(self, image: TopicImage) -> None:
        self.deleted.append(image.name)

    def config_changed(self, image: TopicImage) -> None:
        self.changed.append(image)


class Member:
    """One broker: its store, its controller, its registration."""

    def __init__(
        self,
        site: Site,
        number: int,
        *,
        continuity: int | None = -1,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.site = site
        self.id = BrokerId(number)
        self.store: MemoryMetadataStore = site.tree.open()
        config = DynamicConfig(
            BrokerConfig({"broker.id": str(number), "min.insync.replicas": "2", **(settings or {})})
        )
        counter = itertools.count(number * 1000)
        self.heard = Heard()
        self.local = BrokerMetadata(self.id, MetadataCache(""), config, listener=self.heard)
        self.local.start_listening()
        self.controller_state = ControllerState(
            config, lambda size: next(counter).to_bytes(size, "big")
        )
        self.log_ends: dict[TopicPartition, LogEnd] = {}
        self.unreachable_leaders: set[BrokerId] = set()
        self.cluster_controller = ClusterController(
            self.controller_state,
            self.store,
            site.clock,
            self.local,
            self._send,
            self._send,
            local=LocalObservations(
                self.log_ends.get,
                lambda: self.unreachable_leaders,
                is_gone=lambda node: site.members[node.broker_id].killed,
            ),
            on_store_failed=lambda _: None,
        )
        self.election = self.cluster_controller.election
        self.decisions = self.cluster_controller.controller
        self.events = self.cluster_controller._events
        self.registration = BrokerRegistration(
            self.store,
            site.clock,
            self.local,
            session_timeout_ms=SESSION_MS,
            on_registered=lambda _: None,
        )
        self.node = BrokerNode(self.id, (Endpoint("PLAINTEXT", "host", 9000 + number),))
        self.said = Registration(f"directory-{number}", continuity)
        self.cut_from: set[int] = set()
        self.unanswered_by: set[int] = set()
        """Members that answer nothing to this one: requests time out."""
        self.refused_sends = 0
        """Requests of members that are cut from this one."""
        self.killed = False

    @property
    def is_controller(self) -> bool:
        return self.decisions.is_active

    def start(self) -> None:
        site = self.site
        site.wait(spawn(prepare_store(self.store, "cluster")))
        site.wait(self.registration.start(self.node, self.said))
        self.cluster_controller.start()
        site.settle()

    def kill(self) -> None:
        """Vanish; the session goes with it at once."""
        self.killed = True
        self.controller_state.end_term()
        self.registration.stop()
        self.store.vanish()
        self.site.settle()

    def _send(self, to: BrokerId, request: Request, timeout_ms: float) -> Deferred[Response]:
        outcome: Deferred[Response] = Deferred()

        def deliver() -> None:
            other = self.site.members.get(to)
            if self.killed:
                return
            if other is None or other.killed:
                outcome.fail(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "connection refused"))
            elif to in self.unanswered_by:
                error = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
                self.site.clock.call_later(timeout_ms, lambda: outcome.fail(error))
            elif to in self.cut_from:
                other.refused_sends += 1
                outcome.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            else:
                outcome.complete(other.serve(request))

        self.site.clock.call_later(1, deliver)
        return outcome

    def serve(self, request: Request) -> Response:
        """Answer as the handlers do, by way of the wire."""
        if isinstance(request, PushMetadataRequest):
            read = PushMetadataRequest.decode_body(0, request.encode_body(0))
            try:
                self.local.apply(metadata_update(read))
            except KafkaError as error:
                return PushMetadataResponse(error_code=error.error.code)
            return PushMetadataResponse(error_code=0)
        if isinstance(request, DescribeFetchersRequest):
            return DescribeFetchersResponse(unreachable_leaders=sorted(self.unreachable_leaders))
        assert isinstance(request, DescribeReplicasRequest)
        answers = []
        for each in request.replicas:
            image = self.local.cache.topic_by_id(each.topic_id)
            end = image and self.log_ends.get(TopicPartition(image.name, each.index))
            answers.append(
                DescribedReplica(present=False)
                if not end
                else DescribedReplica(
                    present=True, last_epoch=end.last_epoch, log_end_offset=end.log_end_offset
                )
            )
        return DescribeReplicasResponse(replicas=answers)

    def state(self, topic: str, index: int = 0) -> PartitionState:
        """What this broker knows of a partition."""
        image = self.local.cache.topic(topic)
        assert image is not None
        return image.partitions[index]


class Site:
    """A tree, a clock and members by number."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.clock = HandClock()
        self.members: dict[int, Member] = {}

    def add(
        self,
        number: int,
        *,
        continuity: int | None = -1,
        settings: dict[str, str] | None = None,
    ) -> Member:
        member = Member(self, number, continuity=continuity, settings=settings)
        self.members[number] = member
        member.start()
        return member

    def wait(self, deferred: Deferred[object]) -> None:
        self.until(lambda: deferred.done)
        deferred.result()

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(2_000):
            if condition():
                return
            self.clock.advance(10)
        raise AssertionError("waited in vain")

    def settle(self, milliseconds: int = 1_000) -> None:
        self.clock.advance(milliseconds)

    @property
    def controller(self) -> Member:
        (found,) = [
            each for each in self.members.values() if each.is_controller and not each.killed
        ]
        return found

    def create(self, name: str, replicas: tuple[int, ...], **configs: str) -> None:
        created = self.controller.decisions.topics.create_topics(
            [NewTopic(name, assignments=[(0, replicas)], configs=dict(configs))]
        )
        self.settle()
        (result,) = created.result()
        assert not isinstance(result, KafkaError), result
        self.settle()


def three() -> Site:
    """Brokers 1, 2 and 3; 1 is the controller."""
    site = Site()
    for number in (1, 2, 3):
        site.add(number)
    return site
