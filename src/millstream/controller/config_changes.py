"""Changes of dynamic settings: a list of operations applied to the stored values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from millstream.config.definition import ConfigKey
from millstream.config.dynamic import MIN_INSYNC_REPLICAS, DynamicConfig
from millstream.config.group import check_group_config
from millstream.config.value import ConfigType, format_value
from millstream.controller import paths, payloads
from millstream.controller.context import ControllerContext
from millstream.controller.topic_changes import check_topic_config, config_change
from millstream.model.errors import ConfigError, ErrorCode, KafkaError
from millstream.model.metadata_store import Create, Delete, Operation, SetData
from millstream.model.topic import validate_topic_name

MAX_TEXT_BYTES: Final = 32_767
"""The maximum length of a string in a message."""


MAX_GROUPS: Final = 10_000
"""How many groups may have settings of their own: every broker keeps them all."""


class ResourceType(Enum):
    """What settings belong to; the value is the code on the wire."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def of(cls, code: int) -> ResourceType:
        """Return the type of a code; UNKNOWN for an unknown code."""
        return cls(code) if code in _RESOURCE_CODES else cls.UNKNOWN


_RESOURCE_CODES = frozenset(each.value for each in ResourceType)


class OperationType(Enum):
    """What to do with one setting; the value is the code on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class ConfigOperation:
    """One change of one setting; a deletion has no text."""

    type: OperationType
    name: str
    text: str | None


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """A change of one resource's settings: ``change`` maps the stored values to new ones.

    The name of a broker is its id in decimal digits, or empty for all brokers.
    """

    type: ResourceType
    name: str
    change: Callable[[Mapping[str, str]], Mapping[str, str]]
    named: frozenset[str] = frozenset()
    """The settings that the client named, whether or not that changes them."""
    replaces_all: bool = False
    """True where a setting that is not named goes back to its default."""


def apply_operations(
    texts: Mapping[str, str], operations: Iterable[ConfigOperation], keys: Mapping[str, ConfigKey]
) -> dict[str, str]:
    """Return the settings after the operations.

    Raises INVALID_CONFIG when something is appended to a setting that is not a list. Deleting a
    setting that is not set, or an unknown name, changes nothing.
    """
    changed = dict(texts)
    for operation in operations:
        name = operation.name
        if operation.type is OperationType.DELETE:
            changed.pop(name, None)
            continue
        assert operation.text is not None
        if operation.type is OperationType.SET:
            changed[name] = operation.text
        else:
            changed[name] = _changed_list(changed.get(name), operation, keys.get(name))
    return changed


def _changed_list(text: str | None, operation: ConfigOperation, key: ConfigKey | None) -> str:
    if key is None or key.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {operation.type.name} to key {operation.name} because its type is not LIST.",
        )
    if text is None:
        text = format_value(key.default) or ""
    items = [item for item in text.split(",") if item]
    assert operation.text is not None
    for item in operation.text.split(","):
        if operation.type is OperationType.SUBTRACT:
            if item in items:
                items.remove(item)
        elif item not in items:
            items.append(item)
    return ",".join(items)


def check_change(
    change: ConfigChange, context: ControllerContext, config: DynamicConfig
) -> dict[str, str]:
    """Return the settings that a resource would have, or raise a KafkaError with the reason why it
    cannot.
    """
    if change.type is ResourceType.TOPIC:
        return _check_topic_change(change, context, config)
    if change.type is ResourceType.GROUP:
        return _check_group_change(change, context, config)
    if change.type is not ResourceType.BROKER:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {change.type.value}")
    before = context.broker_configs.get(change.name, {})
    texts = dict(change.change(before))
    _check_lengths(texts)
    try:
        if change.name in ("", str(config.static.broker)):
            config.check(texts, for_all_brokers=not change.name)
        else:
            # The broker's other settings are in its own file.
            config.check_each(texts, for_all_brokers=False)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    _check_min_insync_replicas(change, before, texts)
    return texts


def _check_min_insync_replicas(
    change: ConfigChange, before: Mapping[str, str], texts: Mapping[str, str]
) -> None:
    """Keep `min.insync.replicas` one value for all brokers: the eligible leaders of partitions
    depend on it (Kafka: ``ConfigurationControlManager.validateAlterConfig``).

    One broker's own value, which older versions took, may still be removed.
    """
    reason = None
    if change.name:
        is_removed = MIN_INSYNC_REPLICAS in before and MIN_INSYNC_REPLICAS not in texts
        if MIN_INSYNC_REPLICAS in change.named and not is_removed:
            reason = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    elif MIN_INSYNC_REPLICAS not in texts and (
        change.replaces_all or MIN_INSYNC_REPLICAS in change.named
    ):
        reason = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, reason)


def _check_lengths(texts: Mapping[str, str]) -> None:
    """Refuse a value that is too long for a message, as a list can become by appending."""
    if any(len(text.encode()) > MAX_TEXT_BYTES for text in texts.values()):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{MAX_TEXT_BYTES} bytes.",
        )


def check_own_change(change: ConfigChange, config: DynamicConfig) -> None:
    """Raise a KafkaError if a broker cannot apply a change of its own settings."""
    try:
        config.check(change.change(config.of_this_broker), for_all_brokers=False)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _check_topic_change(
    change: ConfigChange, context: ControllerContext, config: DynamicConfig
) -> dict[str, str]:
    if not change.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    topic = context.topics.get(change.name)
    texts = dict(change.change(topic.overrides if topic is not None else {}))
    _check_lengths(texts)
    validate_topic_name(change.name)
    check_topic_config(texts, config.current.topic_defaults)
    if topic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{change.name}' does not exist."
        )
    return texts


def _check_group_change(
    change: ConfigChange, context: ControllerContext, config: DynamicConfig
) -> dict[str, str]:
    if not change.name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    texts = dict(change.change(context.group_configs.get(change.name, {})))
    _check_lengths(texts)
    try:
        check_group_config(texts, config.current)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    if change.name not in context.group_configs and len(context.group_configs) >= MAX_GROUPS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"{MAX_GROUPS} groups have settings, which is the limit"
        )
    return texts


def stored_change(
    change: ConfigChange, texts: Mapping[str, str], context: ControllerContext
) -> Iterator[Operation]:
    """Yield the store operations of a checked change."""
    if change.type is ResourceType.TOPIC:
        yield from config_change(context.topics[change.name], texts)
        return
    if change.type is ResourceType.GROUP:
        yield from _stored_group_change(change, texts, context)
        return
    path = paths.broker_config(change.name)
    if change.name in context.broker_configs:
        yield SetData(path, payloads.config(texts))
    else:
        yield Create(path, payloads.config(texts))


def _stored_group_change(
    change: ConfigChange, texts: Mapping[str, str], context: ControllerContext
) -> Iterator[Operation]:
    path, is_there = paths.group_config(change.name), change.name in context.group_configs
    if texts and is_there:
        yield SetData(path, payloads.config(texts))
    elif texts:
        yield Create(path, payloads.config(texts))
    elif is_there:
        yield Delete(path)
