"""What AlterConfigs and IncrementalAlterConfigs share: checks before the controller is asked.

Kafka: ``ConfigAdminManager.preprocess``. Resources that fail here are answered in their place; the
others go to the controller together. A broker judges a change of its own settings itself, for the
controller does not know the settings in its file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from millstream.config.broker import all_broker_keys
from millstream.config.client_metrics import CLIENT_METRICS_KEYS, check_client_metrics
from millstream.config.definition import ConfigKey
from millstream.config.group import GROUP_KEYS
from millstream.config.topic import TopicConfig
from millstream.config.value import parse_integer
from millstream.controller.config_changes import ConfigChange, ResourceType, check_own_change
from millstream.handlers.access import Access
from millstream.model.acl import CLUSTER_NAME, AclOperation, AclResource
from millstream.model.broker import BrokerId
from millstream.model.entities import EntityChanges, EntityKind, EntityValue
from millstream.model.entity_keys import encode_name
from millstream.model.errors import ConfigError, ErrorCode, KafkaError
from millstream.runtime.services import Services


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A requested change of one resource. ``null_names`` are settings given without a text that
    need one. ``check`` raises what only this kind of request can be refused for; ``change`` maps
    the texts that are there to new ones, knowing the resource's settings.
    """

    type_code: int
    name: str
    setting_names: Sequence[str]
    null_names: Sequence[str]
    check: Callable[[ResourceType], None]
    change: Callable[[Mapping[str, str], Mapping[str, ConfigKey]], Mapping[str, str]]
    replaces_all: bool = False
    """True where a setting that is not named goes back to its default."""

    @property
    def type(self) -> ResourceType:
        """The kind of resource, UNKNOWN for an unknown code."""
        return ResourceType.of(self.type_code)

    @property
    def key(self) -> tuple[int, str]:
        """The identity of the resource: 1 and 01 name the same broker."""
        number = parse_integer(self.name, 32) if self.type is ResourceType.BROKER else None
        return self.type_code, self.name if number is None else str(number)


CONFIG_RESOURCES: Final = {
    ResourceType.TOPIC: (AclResource.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ResourceType.GROUP: (AclResource.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ResourceType.BROKER: (AclResource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ResourceType.BROKER_LOGGER: (AclResource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ResourceType.CLIENT_METRICS: (AclResource.CLUSTER, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
}
"""Which kind of resource a client needs to have access to for settings of a kind, and how it is
refused. Settings of brokers belong to the cluster.
"""


def refusal(
    access: Access | None, operation: AclOperation, type_code: int, name: str
) -> KafkaError | None:
    """Return why the client may not do something with the settings of a resource; None where it
    may, and for an unknown type.
    """
    needed = CONFIG_RESOURCES.get(ResourceType.of(type_code))
    if access is None or needed is None:
        return None
    resource, error = needed
    is_cluster = resource is AclResource.CLUSTER
    if access.allows(operation, resource, CLUSTER_NAME if is_cluster else name):
        return None
    return KafkaError(error)


_WORDS: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
}


def refusals(access: Access | None, resources: Sequence[tuple[int, str]]) -> dict[int, KafkaError]:
    """Return which of some resources, each a type and a name, the client may not ALTER_CONFIGS of,
    by their index. One that is named twice is left to be refused for that.
    """
    if access is None:
        return {}
    counts = Counter(resources)
    found = {
        index: refusal(access, AclOperation.ALTER_CONFIGS, *resource)
        for index, resource in enumerate(resources)
        if counts[resource] == 1
    }
    return {
        index: KafkaError(error.error, _WORDS[error.error])
        for index, error in found.items()
        if error is not None
    }


Ask = Callable[[Sequence[int]], Awaitable[Sequence[KafkaError | None]]]
"""Forwards the changes with these indices; returns their outcomes in the same order."""


async def alter(
    services: Services, requested: Sequence[ResourceChange], *, validate_only: bool
) -> list[KafkaError | None]:
    """Make the changes that are valid; the outcomes are in the order of the requested changes."""
    counts = Counter(change.key for change in requested)
    outcomes: list[KafkaError | None] = [None] * len(requested)
    changes: dict[int, ConfigChange] = {}
    for index, change in enumerate(requested):
        try:
            if counts[change.key] > 1:
                raise _refused("Each resource must appear at most once.")
            changes[index] = _checked(change, _own_id(services))
        except KafkaError as error:
            outcomes[index] = error
    settings = {
        index: change
        for index, change in changes.items()
        if change.type is not ResourceType.CLIENT_METRICS
    }
    results = await services.controller.topics.alter_configs(
        list(settings.values()), validate_only=validate_only
    )
    for index, result in zip(settings, results, strict=True):
        outcomes[index] = result
    for index in changes.keys() - settings.keys():
        outcomes[index] = await _alter_client_metrics(
            services, changes[index], validate_only=validate_only
        )
    return outcomes


async def _alter_client_metrics(
    services: Services, change: ConfigChange, *, validate_only: bool
) -> KafkaError | None:
    """Change a subscription to metrics of clients, which is an entity; return what refuses it."""
    key = encode_name(change.name)

    def decide(present: Mapping[str, EntityValue]) -> EntityChanges:
        texts = change.change(present.get(key, {}))
        try:
            check_client_metrics(texts)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        return {} if validate_only else {key: texts or None}

    try:
        await services.controller.change_entities(EntityKind.CLIENT_METRICS, decide)
    except KafkaError as error:
        return error
    return None


async def alter_through_controller(
    services: Services, requested: Sequence[ResourceChange], ask: Ask
) -> list[KafkaError | None]:
    """Have the controller carry out what this broker does not refuse itself: ``ask`` is given the
    indices of the changes to forward.
    """
    outcomes = _refusals_of_own(services, requested)
    left = [index for index, refusal in enumerate(outcomes) if refusal is None]
    if left:
        for index, outcome in zip(left, await ask(left), strict=True):
            outcomes[index] = outcome
    return outcomes


def _refusals_of_own(
    services: Services, requested: Sequence[ResourceChange]
) -> list[KafkaError | None]:
    """Return this broker's refusals of changes of its own settings, None for all others."""
    counts = Counter(change.key for change in requested)
    outcomes: list[KafkaError | None] = []
    for change in requested:
        refusal = None
        if change.type is ResourceType.BROKER and change.name and counts[change.key] < 2:
            try:
                checked = _checked(change, None)
                if checked.name == str(services.node.broker_id):
                    check_own_change(checked, services.config)
            except KafkaError as error:
                refusal = error
        outcomes.append(refusal)
    return outcomes


def _own_id(services: Services) -> BrokerId | None:
    """Return the only broker whose settings may be changed here; None on a cluster's controller,
    to which all brokers hand on what they are asked.
    """
    return services.node.broker_id if services.cluster is None else None


def _checked(change: ResourceChange, broker_id: BrokerId | None) -> ConfigChange:
    if len(set(change.setting_names)) < len(change.setting_names):
        raise _refused("Error due to duplicate config keys")
    if change.null_names:
        raise _refused(f"Null value not supported for : {', '.join(change.null_names)}")
    keys: Mapping[str, ConfigKey]
    if change.type is ResourceType.TOPIC:
        keys, name = TopicConfig.keys, change.name
    elif change.type is ResourceType.BROKER:
        keys, name = all_broker_keys(), _broker_name(change.name, broker_id)
    elif change.type is ResourceType.GROUP:
        keys, name = GROUP_KEYS, change.name
    elif change.type is ResourceType.CLIENT_METRICS:
        if not change.name:
            raise _refused("Subscription name can't be empty")
        keys, name = CLIENT_METRICS_KEYS, change.name
    else:
        raise _refused(f"Unknown resource type {change.type_code}")
    change.check(change.type)
    return ConfigChange(
        change.type,
        name,
        lambda texts: change.change(texts, keys),
        named=frozenset(change.setting_names),
        replaces_all=change.replaces_all,
    )


def _broker_name(name: str, broker_id: BrokerId | None) -> str:
    if not name:
        return name
    wanted = parse_broker_id(name, "Node id")
    if broker_id is not None and wanted != broker_id:
        raise _refused(f"Unexpected broker id, expected {broker_id}, but received {name}")
    return str(wanted)


def parse_broker_id(name: str, what: str) -> int:
    """Return the broker id in a resource's name; INVALID_REQUEST when it is not a number."""
    broker_id = parse_integer(name, 32)
    if broker_id is None:
        raise _refused(f"{what} must be an integer, but it is: {name}")
    return broker_id


def outcome_of(error_code: int, message: str | None) -> KafkaError | None:
    """Return the outcome of one resource from an answer of the controller."""
    return KafkaError(ErrorCode.of(error_code), message) if error_code else None


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
