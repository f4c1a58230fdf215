"""Pushes to the other brokers what the controller has decided, until each has acknowledged it.

Pushes are level-triggered: a push holds the newest whole state of what has changed, read when it is
sent. Each broker has one push under way. What it did not acknowledge is pushed again. A broker that
has registered is pushed everything. Partitions that are not settled (no leader, a small ISR, a
move) are repeated every few seconds, acknowledged or not. An empty push every ``HEARTBEAT_MS``
shows that the controller is alive. Kafka: ``ControllerChannelManager``, ``UpdateMetadataRequest``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from millstream.controller.context import TopicState
from millstream.model.broker import BrokerId, BrokerNode
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.entities import EntityKind
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.leadership import NO_LEADER, PartitionState
from millstream.model.topic import TopicId
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.push_metadata import (
    PushedDeletion,
    PushedEntity,
    PushedEntityRange,
    PushedTopic,
    PushMetadataRequest,
    PushMetadataResponse,
)
from millstream.runtime.controlling.controller_state import ControllerState
from millstream.runtime.controlling.entity_pushes import (
    EVERYTHING,
    Position,
    take_changed,
    take_next,
)
from millstream.runtime.metadata.metadata_messages import (
    broker_message,
    features_message,
    settings_message,
    topic_message,
)

log = logging.getLogger(__name__)

HEARTBEAT_MS: Final = 250
"""How often a broker hears from the controller at least."""
REPEAT_MS: Final = 3_000
"""How often what is not settled is pushed again."""
RETRY_MS: Final = 100
"""The first pause after a push that failed; each further one is twice as long."""
MAX_RETRY_MS: Final = 800
PUSH_TIMEOUT_MS: Final = 5_000
MAX_PARTITIONS: Final = 2_000
"""Partitions in one push; more follow in the next."""

Send = Callable[[BrokerId, Request, float], Deferred[Response]]


@dataclass(slots=True)
class Unsent:
    """What one broker has not acknowledged, apart from the push that is under way."""

    everything: bool = False
    """The broker has registered: it is sent the list of all topics."""
    topics: dict[str, set[int] | None] = field(default_factory=dict)
    """Partitions by topic; None stands for all of them."""
    created: dict[str, TopicId] = field(default_factory=dict)
    deleted: dict[TopicId, str] = field(default_factory=dict)
    brokers: bool = False
    configs: bool = False
    features: bool = False
    entities: dict[tuple[EntityKind, str], None] = field(default_factory=dict)
    """Entities that have changed, the oldest change first."""
    entities_from: Position | None = None
    """Where the entities begin that the broker is to be told whole; None for none."""

    def __bool__(self) -> bool:
        flags = self.everything or self.brokers or self.configs or self.features
        entities = self.entities or self.entities_from is not None
        return bool(flags or self.topics or self.deleted or entities)

    def add_topic(self, name: str, indices: Iterable[int] | None) -> None:
        """Note that partitions of a topic changed."""
        if indices is None or self.topics.get(name, ()) is None:
            self.topics[name] = None
            return
        known = self.topics.setdefault(name, set())
        assert known is not None
        known.update(indices)

    def merge(self, other: Unsent) -> None:
        """Take back what was sent and not acknowledged."""
        self.everything |= other.everything
        self.brokers |= other.brokers
        self.configs |= other.configs
        self.features |= other.features
        for name, indices in other.topics.items():
            self.add_topic(name, indices)
        self.created = other.created | self.created
        self.deleted = other.deleted | self.deleted
        self.entities = other.entities | self.entities
        positions = [each.entities_from for each in (self, other)]
        self.entities_from = min((each for each in positions if each is not None), default=None)


class _Addressee:
    """One broker: what is to be pushed to it, and whether a push is under way."""

    def __init__(self, node: BrokerNode) -> None:
        self.node = node
        self.unsent = Unsent(everything=True, brokers=True, configs=True)
        self.sent = Unsent()
        """What the push that was sent last holds, until it is acknowledged."""
        self.under_way = False
        self.last_sent_ms = 0.0
        self.pause_ms = 0
        """How long the pause after the last push is, 0 after one that was acknowledged."""
        self.is_paused = False
        """True until the pause is over: whatever changes meanwhile waits for its end."""
        self.refused = 0
        """Pushes in a row whose connection was refused."""


class MetadataPushes:
    """Implements ``metadata_propagation.MetadataPropagation`` over requests to each live broker.

    ``send(broker, request, timeout_ms)`` carries a request. ``on_refused(node)`` is called when a
    broker's address refuses connections, ``on_deletions_acknowledged(broker, topics)`` when a
    broker keeps nothing more of deleted topics, ``on_fenced`` when a broker knows a newer
    controller.
    """

    def __init__(
        self,
        state: ControllerState,
        clock: Clock,
        broker_id: BrokerId,
        send: Send,
        *,
        on_refused: Callable[[BrokerNode], None],
        on_deletions_acknowledged: Callable[[BrokerId, list[TopicId]], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self._state = state
        self._clock = clock
        self._on_fenced = on_fenced
        self._broker_id = broker_id
        self._send = send
        self._on_refused = on_refused
        self._on_deletions_acknowledged = on_deletions_acknowledged
        self._addressees: dict[BrokerId, _Addressee] = {}
        self._flushing = False
        self._timer: TimerHandle | None = None
        self._last_repeat_ms = 0.0
        self._term = -1
        self._sequence = 0
        """Counts the pushes of this term: a broker tells by it which of two pushes is newer."""

    def start(self) -> None:
        """Push everything to every live broker, and push changes from now on."""
        self.stop()
        self._term = self._state.term
        self._sequence = 0
        self._last_repeat_ms = self._clock.monotonic_ms()
        self.brokers_changed()
        self._tick()

    def stop(self) -> None:
        """Push nothing more."""
        self._term = -1
        self._addressees.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- what changed ------------------------------------------------------------------------

    def topic_changed(self, topic: TopicState, indices: Iterable[int] | None) -> None:
        """Tell of a topic: of some partitions, or (None) of all of it."""
        chosen = None if indices is None else tuple(indices)
        for each in self._addressees.values():
            each.unsent.add_topic(topic.name, chosen)
        self._flush_soon()

    def topic_created(self, topic: TopicState) -> None:
        """Tell of a topic that was made just now."""
        for each in self._addressees.values():
            each.unsent.created[topic.name] = topic.topic_id
            each.unsent.add_topic(topic.name, None)
        self._flush_soon()

    def topic_deleted(self, name: str, topic_id: TopicId) -> None:
        """Tell that a topic is gone."""
        for each in self._addressees.values():
            each.unsent.deleted[topic_id] = name
            each.unsent.topics.pop(name, None)
            each.unsent.created.pop(name, None)
        self._on_deletions_acknowledged(self._broker_id, [topic_id])
        self._flush_soon()

    def brokers_changed(self) -> None:
        """Tell who lives; a broker that came, or came again, is told everything."""
        brokers = self._state.context.brokers
        for broker_id in [each for each in self._addressees if each not in brokers]:
            del self._addressees[broker_id]
        for broker_id, broker in brokers.items():
            if broker_id == self._broker_id:
                continue
            known = self._addressees.get(broker_id)
            if known is None or known.node != broker.node:
                self._addressees[broker_id] = self._registered(broker.node)
            else:
                known.unsent.brokers = True
        self._flush_soon()

    def features_changed(self) -> None:
        """Tell which levels of features are finalized: every push does."""
        for each in self._addressees.values():
            each.unsent.features = True
        self._flush_soon()

    def broker_configs_changed(self) -> None:
        """Tell of dynamic settings of brokers."""
        for each in self._addressees.values():
            each.unsent.configs = True
        self._flush_soon()

    def entities_changed(self, kind: EntityKind, keys: Iterable[str]) -> None:
        """Tell of entities that have changed, or are gone."""
        changed = dict.fromkeys((kind, key) for key in keys)
        for each in self._addressees.values():
            each.unsent.entities |= changed
        self._flush_soon()

    def entities_loaded(self) -> None:
        """Tell all entities to everybody."""
        for each in self._addressees.values():
            each.unsent.entities_from = EVERYTHING
        self._flush_soon()

    def _registered(self, node: BrokerNode) -> _Addressee:
        addressee = _Addressee(node)
        self._add_everything(addressee)
        if self._state.context.entities is not None:
            addressee.unsent.entities_from = EVERYTHING
        return addressee

    def _add_everything(self, addressee: _Addressee) -> None:
        addressee.unsent.everything = True
        addressee.unsent.configs = True
        for name in self._state.context.topics:
            addressee.unsent.add_topic(name, None)
        for topic_id, deletion in self._state.context.deletions.items():
            if addressee.node.broker_id in deletion.brokers:
                addressee.unsent.deleted[topic_id] = deletion.name

    # --- sending -----------------------------------------------------------------------------

    @property
    def is_telling(self) -> bool:
        """True while a broker has not acknowledged everything."""
        return any(each.under_way or each.unsent for each in self._addressees.values())

    def is_behind(self, broker_id: BrokerId) -> bool:
        """True while a live broker has not acknowledged every change that it was told of; an empty
        push that is under way is none.
        """
        addressee = self._addressees.get(broker_id)
        return addressee is not None and bool(addressee.unsent or addressee.sent)

    def _flush_soon(self) -> None:
        """Push after what runs now: one decision often changes many topics."""
        if self._term < 0 or self._flushing:
            return
        self._flushing = True
        self._clock.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        for each in tuple(self._addressees.values()):
            if each.unsent:
                self._push(each)

    def _tick(self) -> None:
        clock = self._clock
        now_ms = clock.monotonic_ms()
        if now_ms - self._last_repeat_ms >= REPEAT_MS:
            self._last_repeat_ms = now_ms
            self._repeat_unsettled()
        for each in tuple(self._addressees.values()):
            if each.unsent or now_ms - each.last_sent_ms >= HEARTBEAT_MS:
                self._push(each)
        if self._term >= 0:
            self._timer = clock.call_later(HEARTBEAT_MS, self._tick)

    def _repeat_unsettled(self) -> None:
        for topic in self._state.context.topics.values():
            indices = [i for i, state in enumerate(topic.partitions) if not _is_settled(state)]
            if indices:
                for each in self._addressees.values():
                    each.unsent.add_topic(topic.name, indices)

    def _push(self, addressee: _Addressee) -> None:
        if addressee.under_way or addressee.is_paused or self._term != self._state.term:
            return
        request, sent = self._next_push(addressee)
        addressee.under_way = True
        addressee.sent = sent
        addressee.last_sent_ms = self._clock.monotonic_ms()
        self._send(addressee.node.broker_id, request, PUSH_TIMEOUT_MS).on_done(
            lambda answer: self._answered(addressee, sent, answer)
        )

    def _next_push(self, addressee: _Addressee) -> tuple[PushMetadataRequest, Unsent]:
        """Return the next push and what it takes from what the broker is to be told."""
        context = self._state.context
        unsent, addressee.unsent = addressee.unsent, Unsent()
        topics = self._take_topics(unsent, addressee.unsent)
        entities, ranges = self._take_entities(unsent, addressee.unsent)
        self._sequence += 1
        request = PushMetadataRequest(
            controller_id=self._broker_id,
            controller_epoch=context.controller_epoch,
            broker_epoch=addressee.node.epoch,
            brokers=[broker_message(each.node) for each in context.brokers.values()],
            all_topic_ids=[each.topic_id for each in context.topics.values()]
            if unsent.everything
            else None,
            topics=topics,
            deleted=[
                PushedDeletion(name=name, topic_id=topic_id)
                for topic_id, name in unsent.deleted.items()
            ],
            broker_settings=settings_message(context.broker_configs) if unsent.configs else None,
            sequence=self._sequence,
            features=features_message(context.features),
            features_epoch=context.features.epoch,
            group_settings=settings_message(context.group_configs) if unsent.configs else None,
            entities=entities or None,
            entity_ranges=ranges or None,
        )
        return request, unsent

    def _take_topics(self, unsent: Unsent, rest: Unsent) -> list[PushedTopic]:
        """Return the first topics that fit into one push; ``rest`` gets the others."""
        messages: list[PushedTopic] = []
        count = 0
        for name, indices in list(unsent.topics.items()):
            topic = self._state.context.topics.get(name)
            if topic is None:
                del unsent.topics[name]
                continue
            if messages and count >= MAX_PARTITIONS:
                rest.add_topic(name, indices)
                del unsent.topics[name]
                if name in unsent.created:
                    rest.created[name] = unsent.created.pop(name)
                continue
            created = unsent.created.get(name) == topic.topic_id
            messages.append(topic_message(topic, indices, created=created))
            count += len(messages[-1].partitions)
        return messages

    def _take_entities(
        self, unsent: Unsent, rest: Unsent
    ) -> tuple[list[PushedEntity], list[PushedEntityRange]]:
        """Return the first entities that fit into one push; ``rest`` gets the others."""
        entities = self._state.context.entities
        if entities is None:
            rest.entities, unsent.entities = unsent.entities, {}
            rest.entities_from, unsent.entities_from = unsent.entities_from, None
            return [], []
        messages, left = take_changed(entities, unsent.entities)
        for each in left:
            del unsent.entities[each]
        rest.entities = left
        if left or unsent.entities_from is None:
            rest.entities_from = unsent.entities_from
            unsent.entities_from = None
            return messages, []
        chunk = take_next(entities, unsent.entities_from)
        rest.entities_from = chunk.following
        return [*messages, *chunk.entities], [chunk.range]

    def _answered(self, addressee: _Addressee, sent: Unsent, answer: Deferred[Response]) -> None:
        addressee.under_way = False
        addressee.sent = Unsent()
        if self._addressees.get(addressee.node.broker_id) is not addressee:
            return
        try:
            response = answer.result()
            assert isinstance(response, PushMetadataResponse)
            if response.error_code != ErrorCode.NONE.code:
                raise KafkaError(ErrorCode.of(response.error_code))
        except KafkaError as error:
            self._failed(addressee, sent, error)
            return
        addressee.refused = 0
        addressee.pause_ms = 0
        if sent.deleted:
            self._on_deletions_acknowledged(addressee.node.broker_id, list(sent.deleted))
        if addressee.unsent:
            self._push(addressee)

    def _failed(self, addressee: _Addressee, sent: Unsent, error: KafkaError) -> None:
        sent.merge(addressee.unsent)
        addressee.unsent = sent
        if error.error is ErrorCode.STALE_CONTROLLER_EPOCH:
            self._on_fenced()
            return
        if error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._add_everything(addressee)
        if error.error is ErrorCode.BROKER_NOT_AVAILABLE and is_refusal(error):
            addressee.refused += 1
            if addressee.refused >= 2:
                self._on_refused(addressee.node)
        else:
            addressee.refused = 0
        addressee.pause_ms = min(max(RETRY_MS, 2 * addressee.pause_ms), MAX_RETRY_MS)
        addressee.is_paused = True
        self._clock.call_later(addressee.pause_ms, lambda: self._retry(addressee))

    def _retry(self, addressee: _Addressee) -> None:
        addressee.is_paused = False
        if self._addressees.get(addressee.node.broker_id) is addressee:
            self._push(addressee)


def is_refusal(error: KafkaError) -> bool:
    """True when the address refused the connection: the process that listened there has ended.

    A process that is paused, or cut off, accepts connections or answers nothing at all.
    """
    return "connection refused" in (error.message or "")


def _is_settled(state: PartitionState) -> bool:
    return (
        state.leader != NO_LEADER
        and len(state.isr) == len(state.replicas)
        and not state.adding_replicas
        and not state.removing_replicas
    )
