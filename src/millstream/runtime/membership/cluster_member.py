"""One broker's part in a cluster: its registration, its claim to the seat, its voice and its ear.

A start goes so: the store is read into the cache, the logs are opened with what it says, the broker
registers, and whoever claims the controller's seat tells everybody what is so. A stop gives
leaderships away first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from millstream.config.dynamic import DynamicConfig
from millstream.controller import paths, payloads
from millstream.controller.adoption import Adoption, FoundLog, plan_arrival
from millstream.controller.context import TopicState
from millstream.controller.election import LogEnd
from millstream.controller.loading import load_brokers, load_context
from millstream.controller.payloads import Registration
from millstream.controller.topic_deletion import load_deletions
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.model.leadership import PartitionState
from millstream.model.metadata_store import MetadataStore, MetadataStoreError, SessionEvent
from millstream.model.topic import TopicId, TopicPartition, topic_id_to_text
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.ensure_topic import EnsureTopicRequest, EnsureTopicResponse
from millstream.protocol.messages.stop_leading import StopLeadingRequest, StopLeadingResponse
from millstream.runtime.broker_channels import BrokerChannels, Network
from millstream.runtime.controlling.cluster_controller import ClusterController
from millstream.runtime.controlling.cluster_reading import prepare_store, read_cluster, read_nodes
from millstream.runtime.controlling.controller_runtime import ControllerRuntime
from millstream.runtime.membership.broker_registration import BrokerRegistration
from millstream.runtime.membership.controller_watch import ControllerWatch
from millstream.runtime.membership.isr_proposals import IsrProposals
from millstream.runtime.membership.offline_reporter import OfflineReporter
from millstream.runtime.membership.vigils import Vigils
from millstream.runtime.metadata.broker_metadata import BrokerMetadata, BrokerStateListener
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.pauses import at_most, pause, until

log = logging.getLogger(__name__)

CONTROLLER_LANE: Final = "controller"
FORWARD_TIMEOUT_MS: Final = 10_000
PUSHED_LIMIT_MS: Final = 5_000
RETRY_MS: Final = 100
STOP_LEADING_MS: Final = 5_000
HAND_OVER_MS: Final = 1_000
KNOWN_LIMIT_MS: Final = 5_000
LOOK_MS: Final = 5

_ASK_AGAIN: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.STALE_BROKER_EPOCH,
    }
)


@dataclass(frozen=True, slots=True)
class KeptReplicas:
    """What the cluster asks of the replicas on this broker: how far one reaches (None for one that
    is not here), and which cannot be served.
    """

    log_end: Callable[[TopicPartition], LogEnd | None]
    offline: Callable[[], Collection[TopicPartition]]


class ClusterMember:
    """Everything of a broker that deals with the rest of its cluster."""

    def __init__(
        self,
        controller: ControllerRuntime,
        config: DynamicConfig,
        clock: Clock,
        network: Network,
        *,
        listener_name: str,
        session_timeout_ms: int,
        kept: KeptReplicas,
        on_epoch: Callable[[int, int], None],
    ) -> None:
        """``on_epoch`` hears each new broker epoch, and the continuity that goes with it."""
        self._controller = controller
        self._config = config
        self._clock = clock
        self._listener_name = listener_name
        self._session_timeout_ms = session_timeout_ms
        self._on_epoch = on_epoch
        self._node: BrokerNode | None = None
        self._last_heard_ms = 0.0
        self._was_told = False
        self._rebalance_timer: TimerHandle | None = None
        self._reporter = OfflineReporter(self, kept.offline)
        self.broker_id = config.static.broker
        self.local_log_end = kept.log_end
        self.channels = BrokerChannels(
            network,
            clock,
            client_id=f"broker-{self.broker_id}",
            endpoint_of=self.endpoint_of,
        )
        self._vigils = Vigils(
            clock,
            network,
            self._local.cache,
            self.broker_id,
            listener_name=listener_name,
            on_gone=self._is_gone,
        )
        self._local.on_brokers = self._vigils.look
        self._store.watch_session(self._session_changed)
        self.leading = ClusterController(
            controller.desk,
            self.broker_id,
            self.send,
            local_log_end=kept.log_end,
            is_gone=self._vigils.is_gone,
        )
        """This broker as the controller, whenever it is."""
        controller.replicas = self.leading.replicas
        self.registration = BrokerRegistration(
            self._store, clock, session_timeout_ms=session_timeout_ms, on_epoch=self._registered
        )
        self.proposals = IsrProposals(
            self.broker_id,
            clock,
            send=self.send,
            decide=self.leading.replicas.propose,
            controller_id=lambda: self._local.cache.controller_id,
            broker_epoch=lambda: self._local.broker_epoch,
        )
        self._watch = ControllerWatch(clock, network, self)
        controller.forward_topic = self.ensure_topic

    @property
    def _store(self) -> MetadataStore:
        return self._controller.desk.store

    @property
    def _local(self) -> BrokerMetadata:
        return self._controller.local

    @property
    def listener_name(self) -> str:
        """The listener on which brokers talk to each other."""
        return self._listener_name

    # --- start -------------------------------------------------------------------------------

    def prepare(self, cluster_id: str | None) -> Deferred[None]:
        """Read what the cluster has decided into the cache, before logs are opened.

        ``cluster_id`` is the one in the log directories; KafkaError INCONSISTENT_CLUSTER_ID says
        that this is another cluster's.
        """
        return spawn(self._prepare(cluster_id))

    async def _prepare(self, cluster_id: str | None) -> None:
        desk = self._controller.desk
        new_id = cluster_id or topic_id_to_text(desk.new_topic_id())
        stored = await prepare_store(self._store, new_id)
        if cluster_id and stored != cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the metadata is of cluster {stored}, the log directories are of {cluster_id}",
            )
        nodes = await read_cluster(self._store)
        context = load_context(nodes, piecemeal=True)
        context.deletions = load_deletions(nodes)
        desk.context = context
        local = self._local
        local.cache.cluster_id = stored
        local.set_broker_configs(context.broker_configs)
        local.set_brokers(each.node for each in load_brokers(nodes))
        for topic in context.topics.values():
            if all(state.partition_epoch >= 0 for state in topic.partitions):
                local.show(topic)

    def arrival(self, found: Mapping[TopicPartition, FoundLog]) -> Adoption:
        """Return what is to become of the logs on this broker's disks."""
        return plan_arrival(self._controller.desk.context, found, broker_id=self.broker_id)

    def start(
        self, node: BrokerNode, registration: Registration, listener: BrokerStateListener
    ) -> Deferred[None]:
        """Register, and take part in the controller's election.

        The broker leads and follows nothing before a controller that knows of its new life tells
        it to: what the store says of it may be of the life before. Fails with
        DUPLICATE_BROKER_REGISTRATION while another broker has the id.
        """
        self._node = node
        self._local.listener = listener
        return spawn(self._start(node, registration))

    async def _start(self, node: BrokerNode, registration: Registration) -> None:
        await self.registration.start(node, registration)
        self._last_heard_ms = self._clock.monotonic_ms()
        self.leading.start()
        self._watch.start()
        self._vigils.start()
        self._arm_rebalance()

    def _session_changed(self, event: SessionEvent) -> None:
        """Take nothing more that is meant for a registration that has gone with its session: a push
        that was late could make this broker believe that it leads still.
        """
        if event is SessionEvent.EXPIRED:
            self._local.broker_epoch = None

    def _registered(self, epoch: int) -> None:
        assert self._node is not None
        local = self._local
        local.broker_epoch = epoch
        local.cache.brokers[self.broker_id] = replace(self._node, epoch=epoch)
        continuity = self.registration.continuity
        assert continuity is not None
        self._on_epoch(epoch, continuity)

    def until_known(self) -> Deferred[None]:
        """Return what is filled once the controller knows this broker, and no later than
        ``KNOWN_LIMIT_MS`` from now: a cluster may have no controller.

        Before that it refuses to give partitions to the broker.
        """
        return spawn(self._until_known())

    async def _until_known(self) -> None:
        def is_known() -> bool:
            return self._was_told or self.leading.seat.leads

        if not await until(self._clock, is_known, limit_ms=KNOWN_LIMIT_MS, look_ms=LOOK_MS):
            log.warning("no controller has told this broker anything yet")

    # --- the controller, wherever it is ----------------------------------------------------------

    def endpoint_of(self, broker_id: BrokerId) -> Endpoint | None:
        """Return where another broker listens for brokers; None when it is not alive."""
        node = self._local.cache.brokers.get(broker_id)
        return None if node is None else node.endpoint(self._listener_name)

    def send(self, broker_id: BrokerId, request: Request, timeout_ms: float) -> Deferred[Response]:
        """Send one of the messages between brokers."""
        return self.channels.send(broker_id, request, timeout_ms, version=0, lane=CONTROLLER_LANE)

    def report_here(
        self, broker_epoch: int, places: Collection[tuple[TopicId, int]]
    ) -> Deferred[None]:
        """Tell the controller on this broker what cannot be served here."""
        return self.leading.replicas.report_offline(self.broker_id, broker_epoch, tuple(places))

    def forward(self, request: Request, version: int) -> Deferred[Response]:
        """Have the controller answer a client's request; NOT_CONTROLLER when there is none."""
        controller_id = self._local.cache.controller_id
        if controller_id in (self.broker_id, BrokerId(-1)):
            failed: Deferred[Response] = Deferred()
            failed.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "no controller is known"))
            return failed
        return self.channels.send(
            controller_id, request, FORWARD_TIMEOUT_MS, version=version, lane="forward"
        )

    def ensure_topic(self, name: str) -> Deferred[TopicImage]:
        """Return a topic, created by the controller when it is not there."""
        return spawn(self._ensure_topic(name))

    async def _ensure_topic(self, name: str) -> TopicImage:
        deadline_ms = self._clock.monotonic_ms() + FORWARD_TIMEOUT_MS
        while True:
            try:
                return await self._ask_for_topic(name)
            except KafkaError as error:
                late = self._clock.monotonic_ms() > deadline_ms
                if late or error.error not in _ASK_AGAIN:
                    raise
            await pause(self._clock, RETRY_MS)

    async def _ask_for_topic(self, name: str) -> TopicImage:
        known = self._local.cache.topic(name)
        if known is not None:
            return known
        controller_id = self._local.cache.controller_id
        if controller_id == self.broker_id:
            return await self._controller.ensure_topic_here(name)
        request = EnsureTopicRequest(
            broker_id=self.broker_id, broker_epoch=self._local.broker_epoch or 0, name=name
        )
        response = await self.send(controller_id, request, FORWARD_TIMEOUT_MS)
        assert isinstance(response, EnsureTopicResponse)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code), response.error_message)
        return await self._pushed(name)

    async def _pushed(self, name: str) -> TopicImage:
        """Wait until the controller's push tells of a topic that it says is there.

        Taken from the answer it would come out of its turn: a push that was made before could take
        it away again, log and all, and one that came before could have deleted it.
        """
        find = self._local.cache.topic
        await until(
            self._clock,
            lambda: find(name) is not None,
            limit_ms=PUSHED_LIMIT_MS,
            look_ms=LOOK_MS,
        )
        image = find(name)
        if image is None:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"no push tells of {name}, which is there"
            )
        return image

    def read_state(self, topic_partition: TopicPartition) -> Deferred[PartitionState]:
        """Return what the store itself says of a partition; fails with a MillstreamError."""
        return spawn(self._read_state(topic_partition))

    async def _read_state(self, topic_partition: TopicPartition) -> PartitionState:
        name, index = topic_partition.topic, topic_partition.partition
        topic_path, state_path = paths.topic(name), paths.state(name, index)
        nodes = await read_nodes(self._store, (topic_path, state_path))
        if topic_path not in nodes or state_path not in nodes:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assignment = payloads.read_topic(topic_path, nodes[topic_path].data)
        known = self._local.cache.topic(name)
        if known is None or known.topic_id != assignment.topic_id:
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{name} is another topic by now")
        node = nodes[state_path]
        return payloads.read_state(
            state_path,
            node.data,
            replicas=assignment.replicas[index],
            version=node.version,
            adding=assignment.adding.get(index, ()),
            removing=assignment.removing.get(index, ()),
        )

    def state_read(self, topic_partition: TopicPartition, state: PartitionState) -> None:
        """Take over a state that the store itself told, if it is newer. Without a registration it
        may speak of the one before.
        """
        known = self._local.cache.topic(topic_partition.topic)
        index = topic_partition.partition
        if known is None or index >= len(known.partitions) or self._local.broker_epoch is None:
            return
        if state.partition_epoch <= known.partitions[index].partition_epoch:
            return
        partitions = list(known.partitions)
        partitions[index] = state
        self._local.show(
            TopicState(
                known.name,
                known.topic_id,
                tuple(partitions),
                self._local.overrides(known.name),
            )
        )

    # --- is there a controller? (``controller_watch.Seat``) ---------------------------------------

    def told(self) -> None:
        """Take note of a push, which a controller sends to a life that it knows."""
        self._was_told = True
        self.heard()

    def heard(self) -> None:
        """Take note that a controller lives, and tell it what cannot be served here."""
        self._last_heard_ms = self._clock.monotonic_ms()
        self._reporter.look(self._local)

    def endpoint(self) -> Endpoint | None:
        """Return where the controller listens; None when nobody knows, or it is this broker."""
        holder = self.leading.seat.holder
        if self._controller.desk.active or holder is None or holder[0] == self.broker_id:
            return None
        return self.endpoint_of(holder[0])

    def last_heard_ms(self) -> float:
        """Return when the controller was heard of last."""
        if self._controller.desk.active:
            self.heard()
        return self._last_heard_ms

    def gone(self) -> None:
        """Take the controller's seat: nobody listens where it did."""
        holder = self.leading.seat.holder
        if holder is not None:
            log.warning("the controller, broker %d, is gone", holder[0])
            self._last_heard_ms = self._clock.monotonic_ms()
            self.leading.seat.evict(holder[1])

    def _is_gone(self, node: BrokerNode) -> None:
        """Act on the end of another broker's process: take its registration, or its seat."""
        holder = self.leading.seat.holder
        if self._controller.desk.active:
            self.leading.evict(node)
        elif holder is not None and holder[0] == node.broker_id:
            self.gone()

    # --- what is done by the clock ---------------------------------------------------------------

    def _arm_rebalance(self) -> None:
        seconds = self._config.current.leader_imbalance_check_interval_seconds
        self._rebalance_timer = self._clock.call_later(seconds * 1000, self._rebalance)

    def _rebalance(self) -> None:
        current = self._config.current
        if self._controller.desk.active and current.auto_leader_rebalance_enable:
            done = self.leading.replicas.rebalance(current.leader_imbalance_per_broker_percentage)
            done.on_done(_log_failure)
        self._arm_rebalance()

    # --- stop ----------------------------------------------------------------------------------

    def give_away(self) -> Deferred[None]:
        """Move leaderships to other brokers; filled when they have gone, or cannot, or the time for
        it is over: a store that is away would hold the shutdown up for as long as that.
        """
        limit_ms = STOP_LEADING_MS + HAND_OVER_MS
        return at_most(self._clock, spawn(self._give_away()), limit_ms)

    async def _give_away(self) -> None:
        self.registration.stop()
        deadline_ms = self._clock.monotonic_ms() + STOP_LEADING_MS
        said = ""
        while self._clock.monotonic_ms() < deadline_ms:
            try:
                remaining = await self._ask_to_stop_leading()
            except (KafkaError, MetadataStoreError) as error:
                if str(error) != said:
                    said = str(error)
                    log.info("leaderships cannot be given away yet: %s", error)
                await pause(self._clock, RETRY_MS)
                continue
            if remaining:
                log.info("nobody else can lead %s", ", ".join(map(str, remaining[:10])))
            await self._until_handed_over(remaining)
            return

    async def _ask_to_stop_leading(self) -> Sequence[TopicPartition]:
        epoch = self._local.broker_epoch
        if epoch is None:
            return ()
        if self._controller.desk.active:
            return await self.leading.replicas.stop_leading(self.broker_id, epoch)
        controller_id = self._local.cache.controller_id
        if controller_id == self.broker_id:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        request = StopLeadingRequest(broker_id=self.broker_id, broker_epoch=epoch)
        response = await self.send(controller_id, request, STOP_LEADING_MS)
        assert isinstance(response, StopLeadingResponse)
        if response.error_code:
            raise KafkaError(ErrorCode.of(response.error_code))
        return [TopicPartition(each.topic, each.index) for each in response.remaining]

    async def _until_handed_over(self, remaining: Sequence[TopicPartition]) -> None:
        """Wait until this broker, and those that lead now, have been told."""
        kept = set(remaining)

        def is_told() -> bool:
            if self._controller.desk.active and self.leading.pushes.is_telling:
                return False
            return not any(
                state.leader == self.broker_id
                for image in self._local.cache.topics()
                for index, state in enumerate(image.partitions)
                if TopicPartition(image.name, index) not in kept
            )

        await until(self._clock, is_told, limit_ms=HAND_OVER_MS, look_ms=20)

    def stop(self) -> Deferred[None]:
        """Leave the controller's seat and hang up; the end of the session does the rest."""
        self.registration.stop()
        self._watch.stop()
        self._vigils.stop()
        if self._rebalance_timer is not None:
            self._rebalance_timer.cancel()
        return spawn(self._stop())

    async def _stop(self) -> None:
        await self.leading.stop()
        self.channels.close()


def _log_failure(done: Deferred[None]) -> None:
    try:
        done.result()
    except MillstreamError as error:
        log.info("leaders were not moved back: %s", error)
