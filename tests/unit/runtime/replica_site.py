"""Three brokers in one process: real partitions, fetchers and handlers over files in memory, one
hand clock, a network that a test cuts, and a controller of a few lines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, cast

from tests.memory_files import MemoryFileSystem
from tests.unit.runtime.coordinator_site import HandClock, HeldOffload
from tests.unit.runtime.log_site import batch

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.config.topic import TopicConfig
from millstream.handlers.request import ConnectionInfo, RequestContext
from millstream.handlers.routes import ROUTES
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import PartitionState
from millstream.model.topic import TopicId, TopicPartition
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.protocol.outgoing import IN_MEMORY, Outgoing
from millstream.runtime.broker_channels import BrokerChannels, TransportOwner
from millstream.runtime.metadata.metadata_cache import MetadataCache, TopicImage
from millstream.runtime.replicas.fetch_sessions import FetchSessions
from millstream.runtime.replicas.isr_updates import IsrProposal
from millstream.runtime.replicas.leader_role import ReplicationContext
from millstream.runtime.replicas.partition import Partition
from millstream.runtime.replicas.partitions import Partitions
from millstream.runtime.replicas.replica_manager import ReplicaManager
from millstream.runtime.services import Services
from millstream.server.dispatch import Dispatcher, DispatchSession
from millstream.storage.environment import LogEnvironment
from millstream.storage.log_manager import LogManager

IDS = tuple(BrokerId(each) for each in (1, 2, 3))
TOPIC = "t"
TOPIC_ID = TopicId(b"topic-of-a-test.")
PLACE = TopicPartition(TOPIC, 0)
LAG_MS = 10_000


class Link:
    """One connection between two brokers, seen from the one that opened it."""

    def __init__(self, site: ClusterSite, source: BrokerId, target: BrokerId, owner: Any) -> None:
        self._site = site
        self._ends = (source, target)
        self._owner: TransportOwner = owner
        self.received_size = 0
        self._closed = False
        self._session: DispatchSession | None = None
        site.clock.call_soon(self._connect)

    def _connect(self) -> None:
        if self._closed:
            return
        target = self._site.brokers[self._ends[1]]
        if not target.alive or self._site.is_cut(*self._ends):
            self.drop("connection refused")
            return
        self._session = target.open_session(self._ends[0])
        self._owner.connected()

    def send(self, outgoing: Outgoing) -> None:
        frame = joined(outgoing)[4:]
        self._site.clock.call_soon(lambda: self._arrive(frame))

    def _arrive(self, frame: bytes) -> None:
        if self._closed or self._site.is_cut(*self._ends) or self._session is None:
            return  # lost on the way
        served = self._session.serve(memoryview(frame))
        if isinstance(served, Deferred):
            served.on_done(lambda ready: self._answer(ready.result()))
        else:
            self._answer(served)

    def _answer(self, outgoing: Outgoing | None) -> None:
        if outgoing is not None:
            frame = joined(outgoing)[4:]
            self._site.clock.call_soon(lambda: self._deliver(frame))

    def _deliver(self, frame: bytes) -> None:
        source, target = self._ends
        alive = self._site.brokers[source].alive and self._site.brokers[target].alive
        if not self._closed and alive and not self._site.is_cut(target, source):
            self._owner.frame_received(memoryview(frame))

    def drop(self, reason: str) -> None:
        if not self._closed:
            self._closed = True
            self._owner.closed(reason)

    def close(self) -> None:
        self._closed = True
        if self._session is not None and not self._site.is_cut(*self._ends):
            self._site.clock.call_soon(self._session.closed)

    def touches(self, broker_id: BrokerId) -> bool:
        return broker_id in self._ends


def joined(outgoing: Outgoing) -> bytes:
    return b"".join(
        bytes(each) if isinstance(each, IN_MEMORY) else each.read() for each in outgoing.pieces
    )


class TwinBroker:
    """One broker; a start reads what the last life left in its files."""

    def __init__(self, site: ClusterSite, broker_id: BrokerId, rack: str | None) -> None:
        self.site = site
        self.broker_id = broker_id
        self.rack = rack
        self.files = MemoryFileSystem()
        self.alive = False
        self.epoch = 0
        self.on_topic_changed: Callable[[TopicImage], None] | None = None

    def start(self) -> None:
        site = self.site
        self.alive = True
        self.epoch = site.next_epoch()
        self.config = DynamicConfig(
            BrokerConfig({"broker.id": str(self.broker_id), **site.settings})
        )
        self.metadata = MetadataCache("cluster")
        self.offload = HeldOffload()
        self.log_manager = LogManager(
            ["/logs"], LogEnvironment(file_system=self.files), broker_id=self.broker_id
        )
        self.partitions = Partitions(
            self.broker_id,
            clock=site.clock,
            offload=self.offload,
            log_manager=self.log_manager,
            metadata=self.metadata,
            on_directory_failed=lambda _: None,
        )
        self.channels = BrokerChannels(
            self, site.clock, client_id=str(self.broker_id), endpoint_of=self._endpoint_of
        )
        context = ReplicationContext(
            self.broker_id,
            site.clock,
            self.config,
            self.metadata,
            site.controller,
            site.controller,
            self._state_read,
        )
        self.partitions.replicas = ReplicaManager(context, self.channels)
        self.log_manager.lock()
        self.log_manager.start(config_of=lambda _, __: site.config, now_ms=site.clock.now_ms())
        self.node = BrokerNode(
            self.broker_id, (Endpoint("PLAINTEXT", "h", self.broker_id),), self.rack, self.epoch
        )
        parts: dict[str, Any] = dict.fromkeys((each.name for each in fields(Services)), None)
        parts |= {
            "node": self.node,
            "clock": site.clock,
            "offload": self.offload,
            "config": self.config,
            "metadata": self.metadata,
            "log_manager": self.log_manager,
            "partitions": self.partitions,
            "fetch_sessions": FetchSessions(
                slots=100, evict_after_ms=1000, random_id=site.next_epoch
            ),
        }
        self.services = Services(**parts)

    def _state_read(self, topic_partition: TopicPartition, state: PartitionState) -> None:
        """Show what the store says, as the broker's part in the cluster does."""
        image = TopicImage(topic_partition.topic, TOPIC_ID, (state,), self.site.config)
        self.metadata.update(image)
        self.partitions.topic_changed(image, created=False)

    def kill(self) -> None:
        """kill -9: what was written stays in the files, all else is gone."""
        self.alive = False
        assert self.partitions.replicas is not None
        self.partitions.replicas.stop()
        self.channels.close()
        self.log_manager.give_back()
        for link in self.site.links:
            if link.touches(self.broker_id):
                self.site.clock.call_soon(lambda link=link: link.drop("reset"))  # type: ignore[misc]

    def open(self, host: str, port: int, owner: TransportOwner) -> Link:
        link = Link(self.site, self.broker_id, BrokerId(port), owner)
        self.site.links.append(link)
        return link

    def open_session(self, peer: BrokerId) -> DispatchSession:
        info = ConnectionInfo(peer, "PLAINTEXT", "h", 0)
        return DispatchSession(Dispatcher(self.services), info)

    def _endpoint_of(self, broker_id: BrokerId) -> Endpoint | None:
        node = self.metadata.brokers.get(broker_id)
        return None if node is None else node.endpoints[0]

    @property
    def partition(self) -> Partition:
        found = self.partitions.replica(TOPIC, 0)
        assert found is not None
        return found

    @property
    def end(self) -> int:
        return self.partition.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self.partition.high_watermark

    def ask(self, key: ApiKey, version: int, request: Request) -> Deferred[Response]:
        """Have a client's request served; the answer may come later."""
        context = RequestContext(ConnectionInfo(99, "PLAINTEXT", "h", 0), key, version, 0, "client")
        reply = ROUTES[key].handle()(self.services, context, request)
        if isinstance(reply, Deferred):
            return cast("Deferred[Response]", reply)
        if isinstance(reply, Response):
            return Deferred.of(reply)
        return cast("Deferred[Response]", spawn(cast(Any, reply)))

    def produce(
        self, *values: bytes, acks: int = -1, timeout_ms: int = 5_000, topic: str = TOPIC
    ) -> Produced:
        records = bytes(batch(*(values or (b"v",))).buffer)
        data = PartitionProduceData(index=0, records=memoryview(bytearray(records)))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        return Produced(self.ask(ApiKey.PRODUCE, 12, request))

    def values(self) -> list[bytes]:
        """Return the bytes of the log as it stands on this broker."""
        directory = "/logs/t-0"
        names = sorted(
            each.name for each in self.files.scan(directory) if each.name.endswith(".log")
        )
        found = []
        for name in names:
            file = self.files.open(f"{directory}/{name}", writable=False)
            found.append(file.read_at(0, file.size()))
        return found


class Produced:
    """The answer to a produce request, now or later."""

    def __init__(self, reply: Deferred[Response]) -> None:
        self._reply = reply

    @property
    def done(self) -> bool:
        return self._reply.done

    @property
    def answer(self) -> PartitionProduceResponse:
        response = self._reply.result()
        assert isinstance(response, ProduceResponse)
        return response.responses[0].partition_responses[0]

    @property
    def error(self) -> ErrorCode:
        return ErrorCode.of(self.answer.error_code)


class ScriptedController:
    """Writes the ISRs that are proposed, as long as it is told to; elects whom it is told."""

    def __init__(self, site: ClusterSite) -> None:
        self._site = site
        self.answering = True
        self.refusal: ErrorCode | None = None
        self.proposals: list[IsrProposal] = []
        self.state = PartitionState(IDS, IDS[0], 0, IDS, 0)
        self.reads = 0

    def propose(self, proposal: IsrProposal) -> Deferred[PartitionState]:
        self.proposals.append(proposal)
        outcome: Deferred[PartitionState] = Deferred()
        if self.answering:
            self._site.clock.call_soon(lambda: self._decide(proposal, outcome))
        else:
            self._site.clock.call_later(
                1000, lambda: outcome.fail(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
            )
        return outcome

    def _decide(self, proposal: IsrProposal, outcome: Deferred[PartitionState]) -> None:
        state = self.state
        if self.refusal is not None:
            outcome.fail(KafkaError(self.refusal))
        elif proposal.leader_epoch != state.leader_epoch:
            outcome.fail(KafkaError(ErrorCode.FENCED_LEADER_EPOCH))
        elif proposal.partition_epoch != state.partition_epoch:
            outcome.fail(KafkaError(ErrorCode.INVALID_UPDATE_VERSION))
        else:
            self.write(isr=tuple(member.broker_id for member in proposal.isr))
            outcome.complete(self.state)
            self._site.push()

    def write(self, **changes: Any) -> None:
        self.state = replace(self.state, partition_epoch=self.state.partition_epoch + 1, **changes)

    def elect(self, leader: int, *isr: int) -> None:
        """Write a new leader (and ISR) and tell every broker."""
        members = tuple(BrokerId(each) for each in isr) or self.state.isr
        self.write(leader=BrokerId(leader), isr=members, leader_epoch=self.state.leader_epoch + 1)
        self._site.push()

    def read_state(self, topic_partition: TopicPartition) -> Deferred[PartitionState]:
        self.reads += 1
        return Deferred.of(self.state)


class ClusterSite:
    """A topic with one partition on three brokers, broker 1 leading."""

    def __init__(self, *, min_isr: int = 1, racks: str = "abc", **settings: str) -> None:
        self.clock = HandClock()
        self.settings = {
            "replica.lag.time.max.ms": str(LAG_MS),
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.config = TopicConfig(
            {
                "min.insync.replicas": str(min_isr),
                "flush.policy": settings.get("log_flush_policy", "os"),
            }
        )
        self._epoch = 0
        self.links: list[Link] = []
        self._cuts: set[tuple[BrokerId, BrokerId]] = set()
        self.controller = ScriptedController(self)
        self.brokers = {
            each: TwinBroker(self, each, rack) for each, rack in zip(IDS, racks, strict=True)
        }
        for broker in self.brokers.values():
            broker.start()
        self.push()
        self.settle()

    def next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    def __getitem__(self, broker_id: int) -> TwinBroker:
        return self.brokers[BrokerId(broker_id)]

    def settle(self) -> None:
        self.clock.settle()

    def advance(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds)

    def push(self, *only: int) -> None:
        """Tell brokers the state that the controller holds, and who is alive."""
        image = TopicImage(TOPIC, TOPIC_ID, (self.controller.state,), self.config)
        nodes = {each.broker_id: each.node for each in self.brokers.values() if each.alive}
        for broker in self.brokers.values():
            if broker.alive and (not only or broker.broker_id in only):
                broker.metadata.brokers = dict(nodes)
                broker.metadata.update(image)
                broker.partitions.topic_changed(image, created=False)

    def create(
        self,
        name: str,
        *,
        leader: int = 1,
        epoch: int = 0,
        replicas: tuple[BrokerId, ...] = IDS,
    ) -> None:
        """Show another topic like the first, which only the brokers hear of."""
        topic_id = TopicId(name.encode().ljust(16, b".")[:16])
        state = PartitionState(replicas, BrokerId(leader), epoch, replicas, epoch)
        image = TopicImage(name, topic_id, (state,), self.config)
        for broker in self.brokers.values():
            if broker.alive:
                broker.metadata.update(image)
                broker.partitions.topic_changed(image, created=epoch == 0)
                if broker.on_topic_changed is not None:
                    broker.on_topic_changed(image)

    def cut(self, source: int, target: int) -> None:
        """Lose everything that one broker sends to another, from now on."""
        self._cuts.add((BrokerId(source), BrokerId(target)))

    def cut_off(self, broker_id: int) -> None:
        for other in IDS:
            if other != broker_id:
                self.cut(broker_id, other)
                self.cut(other, broker_id)

    def heal(self) -> None:
        self._cuts.clear()

    def is_cut(self, source: BrokerId, target: BrokerId) -> bool:
        return (source, target) in self._cuts

    def kill(self, broker_id: int) -> None:
        self[broker_id].kill()
        self.settle()

    def restart(self, broker_id: int) -> None:
        self[broker_id].start()
        self.push()
        self.settle()

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(sorted(self.controller.state.isr))
