"""Updates of metadata as messages between brokers, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from millstream.controller.context import TopicState
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.entities import EntityChanges, EntityKind, EntityValue
from millstream.model.features import FinalizedFeatures
from millstream.model.leadership import IsrMember, LeaderRecoveryState, PartitionState
from millstream.protocol.messages.push_metadata import (
    PushedBroker,
    PushedEndpoint,
    PushedEntity,
    PushedEntityRange,
    PushedFeature,
    PushedMember,
    PushedPartition,
    PushedSetting,
    PushedSettings,
    PushedTopic,
    PushMetadataRequest,
)
from millstream.runtime.metadata.broker_metadata import EntityRange, MetadataUpdate, TopicUpdate


def partition_message(index: int, state: PartitionState) -> PushedPartition:
    """Return a partition's whole state as a message."""
    return PushedPartition(
        index=index,
        replicas=list(state.replicas),
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
        controller_epoch=state.controller_epoch,
        adding_replicas=list(state.adding_replicas),
        removing_replicas=list(state.removing_replicas),
        elr=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        leader_recovery_state=state.leader_recovery_state.value,
        isr_broker_epochs=members_message(state.isr_broker_epochs),
    )


def partition_state(message: PushedPartition) -> PartitionState:
    """Return the state that a message holds."""
    replicas = _brokers(message.replicas)
    isr = _brokers(message.isr)
    return PartitionState(
        replicas=replicas,
        leader=BrokerId(message.leader),
        leader_epoch=message.leader_epoch,
        isr=replicas if isr == replicas else isr,
        partition_epoch=message.partition_epoch,
        controller_epoch=message.controller_epoch,
        adding_replicas=_brokers(message.adding_replicas),
        removing_replicas=_brokers(message.removing_replicas),
        elr=_brokers(message.elr),
        last_known_elr=_brokers(message.last_known_elr),
        leader_recovery_state=LeaderRecoveryState(message.leader_recovery_state),
        isr_broker_epochs=members(message.isr_broker_epochs),
    )


def _brokers(ids: Iterable[int]) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(each) for each in ids)


def members_message(found: Iterable[IsrMember]) -> list[PushedMember]:
    """Return members of an ISR as messages."""
    return [
        PushedMember(broker_id=each.broker_id, broker_epoch=each.broker_epoch) for each in found
    ]


def members(found: Iterable[PushedMember]) -> tuple[IsrMember, ...]:
    """Return the members of an ISR that messages name."""
    return tuple(IsrMember(BrokerId(each.broker_id), each.broker_epoch) for each in found)


def topic_message(
    topic: TopicState, indices: Iterable[int] | None, *, created: bool = False
) -> PushedTopic:
    """Return a topic with some of its partitions, or (None) with all, as a message."""
    chosen = range(len(topic.partitions)) if indices is None else sorted(indices)
    return PushedTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        created=created,
        partition_count=len(topic.partitions),
        settings=_settings(topic.overrides),
        partitions=[partition_message(i, topic.partitions[i]) for i in chosen],
    )


def topic_update(message: PushedTopic) -> TopicUpdate:
    """Return the update that a message holds."""
    return TopicUpdate(
        name=message.name,
        topic_id=message.topic_id,
        overrides={each.name: each.value for each in message.settings},
        partition_count=message.partition_count,
        partitions={each.index: partition_state(each) for each in message.partitions},
        created=message.created,
    )


def broker_message(node: BrokerNode) -> PushedBroker:
    """Return a live broker as a message."""
    return PushedBroker(
        broker_id=node.broker_id,
        broker_epoch=node.epoch,
        rack=node.rack,
        endpoints=[
            PushedEndpoint(listener=each.listener, host=each.host, port=each.port)
            for each in node.endpoints
        ],
    )


def settings_message(configs: Mapping[str, Mapping[str, str]]) -> list[PushedSettings]:
    """Return the dynamic settings of brokers, or of groups, as messages."""
    return [PushedSettings(name=name, settings=_settings(each)) for name, each in configs.items()]


def features_message(features: FinalizedFeatures) -> list[PushedFeature]:
    """Return the finalized levels as messages."""
    return [PushedFeature(name=name, level=level) for name, level in features.levels.items()]


def entity_message(kind: EntityKind, key: str, value: EntityValue | None) -> PushedEntity:
    """Return an entity, or (None) that it is gone, as a message."""
    settings = None if value is None else _settings(value)
    return PushedEntity(kind=kind.value, key=key, value=settings)


def entity_range_message(
    kind: EntityKind, *, after: str | None, through: str | None
) -> PushedEntityRange:
    """Return a range of keys as a message."""
    return PushedEntityRange(kind=kind.value, after=after, through=through)


_KINDS = {kind.value: kind for kind in EntityKind}


def _entities(messages: Iterable[PushedEntity]) -> dict[EntityKind, EntityChanges]:
    """Return changes by kind; kinds that this broker does not know are left out."""
    found: dict[EntityKind, dict[str, EntityValue | None]] = {}
    for each in messages:
        if each.kind in _KINDS:
            value = None if each.value is None else {s.name: s.value for s in each.value}
            found.setdefault(_KINDS[each.kind], {})[each.key] = value
    return dict(found)


def _settings(texts: Mapping[str, str]) -> list[PushedSetting]:
    return [PushedSetting(name=name, value=value) for name, value in texts.items()]


def metadata_update(request: PushMetadataRequest) -> MetadataUpdate:
    """Return the update that a push holds."""
    return MetadataUpdate(
        controller_id=BrokerId(request.controller_id),
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        brokers=[_broker(each) for each in request.brokers],
        topics=[topic_update(each) for each in request.topics],
        deleted=[(each.name, each.topic_id) for each in request.deleted],
        all_topic_ids=request.all_topic_ids,
        broker_configs=_settings_of(request.broker_settings),
        group_configs=_settings_of(request.group_settings),
        sequence=request.sequence,
        entities=_entities(request.entities or ()),
        entity_ranges=[
            EntityRange(_KINDS[each.kind], each.after, each.through)
            for each in request.entity_ranges or ()
            if each.kind in _KINDS
        ],
        features=None
        if request.features is None
        else FinalizedFeatures(
            {each.name: each.level for each in request.features}, request.features_epoch
        ),
    )


def _settings_of(
    messages: list[PushedSettings] | None,
) -> dict[str, dict[str, str]] | None:
    if messages is None:
        return None
    return {each.name: {s.name: s.value for s in each.settings} for each in messages}


def _broker(message: PushedBroker) -> BrokerNode:
    return BrokerNode(
        BrokerId(message.broker_id),
        tuple(Endpoint(each.listener, each.host, each.port) for each in message.endpoints),
        message.rack,
        message.broker_epoch,
    )
