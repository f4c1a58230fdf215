"""Plans changes of topics: creation, more partitions, deletion.

A plan is a new :class:`TopicState` and the store operations for it; nothing changes until the store
has applied them. The order of the checks is that of Kafka's controller
(``ReplicationControlManager``), because it decides which error a request with two mistakes gets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from millstream.config.topic import TopicConfig, validate
from millstream.controller import paths, payloads
from millstream.controller.assignment import (
    Replicas,
    assign_replicas,
    check_manual_replicas,
    check_replication_factor,
    manual_assignment,
    spread_over_racks,
)
from millstream.controller.context import ControllerContext, TopicState
from millstream.controller.election import new_partition
from millstream.model.broker import BrokerId
from millstream.model.errors import ConfigError, ErrorCode, KafkaError
from millstream.model.metadata_store import Create, Delete, Operation, SetData
from millstream.model.topic import TopicId, topic_id_to_text, validate_topic_name

DEFAULT: Final = -1
"""Partitions or replicas that are left to the broker's defaults."""

MAX_PARTITIONS_PER_REQUEST: Final = 10_000
"""More new partitions in one request are refused (Kafka: ``MAX_RECORDS_PER_USER_OP``)."""

MAX_REMEMBERED_DELETIONS: Final = 10_000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A requested topic. ``assignments`` are manual (partition index, brokers)."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A request for a topic to have ``total`` partitions; ``assignments`` has the brokers of each
    new one, or None.
    """

    topic: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class PlacementContext:
    """The input of a plan besides the request: the broker's defaults, and two random numbers."""

    partition_count: int
    replication_factor: int
    config: TopicConfig
    start_index: int = 0
    shift: int = 0
    broker_epochs: Mapping[BrokerId, int] = field(default_factory=dict)
    """Epochs of the live brokers; empty for a standalone broker, which has none."""
    racks: Mapping[BrokerId, str] = field(default_factory=dict)
    """Racks of the live brokers; empty unless all have one."""
    cordoned: Collection[BrokerId] = ()
    """Brokers all of whose log directories are cordoned (KIP-1066): they get no new replicas."""

    def eligible_brokers(self, live_brokers: Sequence[BrokerId]) -> list[BrokerId]:
        """Return the live brokers that may get new replicas."""
        return [broker_id for broker_id in live_brokers if broker_id not in self.cordoned]


def plan_topic(
    context: ControllerContext, wanted: NewTopic, placing: PlacementContext, topic_id: TopicId
) -> TopicState:
    """Return the topic to create, or raise the KafkaError that refuses it."""
    check_new_name(context, wanted.name)
    overrides = _checked_configs(wanted.configs, placing.config)
    assignment = _new_assignment(context, wanted, placing)
    live = context.live_brokers
    return TopicState(
        name=wanted.name,
        topic_id=topic_id,
        partitions=tuple(
            new_partition(
                replicas, live, context.controller_epoch, broker_epochs=placing.broker_epochs
            )
            for replicas in assignment
        ),
        overrides=overrides,
    )


def check_new_name(context: ControllerContext, name: str) -> None:
    """Raise unless a topic of this name may be created."""
    if name in context.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    validate_topic_name(name)
    colliding = context.colliding_topic(name)
    if colliding is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topic: {colliding}",
        )


def _checked_configs(configs: Mapping[str, str | None], defaults: TopicConfig) -> dict[str, str]:
    missing = [name for name, text in configs.items() if text is None]
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(missing)}",
        )
    texts = {name: text for name, text in configs.items() if text is not None}
    check_topic_config(texts, defaults)
    return texts


def check_topic_config(overrides: Mapping[str, str], defaults: TopicConfig) -> None:
    """Raise INVALID_CONFIG when a topic cannot have these settings over these defaults."""
    try:
        if overrides:
            validate(TopicConfig(overrides, defaults))
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def _new_assignment(
    context: ControllerContext, wanted: NewTopic, placing: PlacementContext
) -> list[Replicas]:
    if wanted.assignments:
        for value, what in (
            (wanted.replication_factor, "replication factor"),
            (wanted.partition_count, "numPartitions"),
        ):
            if value != DEFAULT:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"A manual partition assignment was specified, but {what} was not set to -1.",
                )
        return manual_assignment(wanted.assignments, context.live_brokers)
    if wanted.replication_factor < DEFAULT or wanted.replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if wanted.partition_count < DEFAULT or wanted.partition_count == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    factor = wanted.replication_factor
    factor = placing.replication_factor if factor == DEFAULT else factor
    eligible_brokers = placing.eligible_brokers(context.live_brokers)
    check_replication_factor(factor, eligible_brokers)
    return assign_replicas(
        spread_over_racks(eligible_brokers, placing.racks),
        partition_count=count_of(wanted, placing),
        replication_factor=factor,
        start_index=placing.start_index,
        shift=placing.shift,
        racks=placing.racks,
    )


def count_of(wanted: NewTopic, placing: PlacementContext) -> int:
    """Return how many partitions a request creates; never negative, even if the request is
    invalid.
    """
    if wanted.assignments:
        return len(wanted.assignments)
    count = wanted.partition_count
    return placing.partition_count if count == DEFAULT else max(0, count)


def growth_of(wanted: NewPartitions, context: ControllerContext) -> int:
    """Return how many partitions a request adds; 0 if the request is invalid."""
    topic = context.topics.get(wanted.topic)
    return 0 if topic is None else max(0, wanted.total - len(topic.partitions))


def refuse_too_many(partition_count: int) -> None:
    """Raise POLICY_VIOLATION if one request creates more partitions than allowed."""
    if partition_count > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )


def plan_partitions(
    context: ControllerContext, wanted: NewPartitions, placing: PlacementContext
) -> TopicState:
    """Return the topic with more partitions, or raise the KafkaError that refuses it."""
    topic = context.topics.get(wanted.topic)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    count = len(topic.partitions)
    _check_growth(wanted, count)
    additional = wanted.total - count
    factor = len(topic.partitions[0].replicas)
    live = context.live_brokers
    if wanted.assignments is not None:
        for replicas in wanted.assignments:
            check_manual_replicas(replicas, live, factor)
        assignment = [
            tuple(BrokerId(broker_id) for broker_id in replicas) for replicas in wanted.assignments
        ]
    else:
        eligible_brokers = placing.eligible_brokers(live)
        check_replication_factor(factor, eligible_brokers)
        assignment = assign_replicas(
            spread_over_racks(eligible_brokers, placing.racks),
            partition_count=additional,
            replication_factor=factor,
            start_index=placing.start_index,
            shift=placing.shift,
            first_partition=count,
            racks=placing.racks,
        )
    added = (
        new_partition(placed, live, context.controller_epoch, broker_epochs=placing.broker_epochs)
        for placed in assignment
    )
    return replace(topic, partitions=(*topic.partitions, *added))


def _check_growth(wanted: NewPartitions, count: int) -> None:
    if wanted.total == count:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if wanted.total < count:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.topic} currently has {count} partition(s); {wanted.total} would "
            "not be an increase.",
        )
    additional = wanted.total - count
    if wanted.assignments is not None and len(wanted.assignments) != additional:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {additional} additional partition(s), but only "
            f"{len(wanted.assignments)} assignment(s) were specified.",
        )


# --- plans as operations of the store ----------------------------------------------------------


def creation(topic: TopicState) -> Iterator[Operation]:
    """Yield the store operations that create a topic."""
    if topic.overrides:
        yield Create(paths.topic_config(topic.name), payloads.config(topic.overrides))
    yield Create(paths.topic(topic.name), payloads.topic(topic.topic_id, topic.partitions))
    yield Create(paths.partitions(topic.name), b"")
    yield from _partition_creation(topic, 0)


def growth(topic: TopicState, first_new: int) -> Iterator[Operation]:
    """Yield the store operations that create the partitions from ``first_new`` on."""
    yield SetData(paths.topic(topic.name), payloads.topic(topic.topic_id, topic.partitions))
    yield from _partition_creation(topic, first_new)


def _partition_creation(topic: TopicState, first: int) -> Iterator[Operation]:
    for index in range(first, len(topic.partitions)):
        yield Create(paths.partition(topic.name, index), b"")
        yield Create(paths.state(topic.name, index), payloads.state(topic.partitions[index]))


def deletion(
    topic: TopicState, brokers_with_replicas: Collection[BrokerId] = ()
) -> Iterator[Operation]:
    """Yield the store operations that delete a topic and create its deletion record, with the
    brokers that host replicas.
    """
    identifier = topic_id_to_text(topic.topic_id)
    yield Create(
        paths.deleted_topic(identifier), payloads.deleted_topic(topic.name, brokers_with_replicas)
    )
    if topic.overrides:
        yield Delete(paths.topic_config(topic.name))
    for index in range(len(topic.partitions)):
        yield Delete(paths.state(topic.name, index))
        yield Delete(paths.partition(topic.name, index))
    yield Delete(paths.partitions(topic.name))
    yield Delete(paths.topic(topic.name))


def forgetting(context: ControllerContext) -> Iterator[Operation]:
    """Yield the store operations that remove the oldest deletion records if there are too many.

    A deletion record is kept until the next start finds the topic's directories gone. After ten
    thousand later deletions the renames of its directories are long durable.
    """
    for path in context.deleted[:-MAX_REMEMBERED_DELETIONS]:
        yield Delete(path)


def remember(context: ControllerContext, deleted: Iterable[TopicState]) -> None:
    """Apply to the context what :func:`deletion` and :func:`forgetting` stored."""
    del context.deleted[:-MAX_REMEMBERED_DELETIONS]
    context.deleted += [paths.deleted_topic(topic_id_to_text(topic.topic_id)) for topic in deleted]


def config_change(topic: TopicState, overrides: Mapping[str, str]) -> Iterator[Operation]:
    """Yield the store operations that replace a topic's own settings."""
    path = paths.topic_config(topic.name)
    if overrides and topic.overrides:
        yield SetData(path, payloads.config(overrides))
    elif overrides:
        yield Create(path, payloads.config(overrides))
    elif topic.overrides:
        yield Delete(path)
