"""What AlterConfigs and IncrementalAlterConfigs share: checks before the controller is asked.

Kafka: ``ConfigAdminManager.preprocess``. Resources that fail here are answered in their place; the
others go to the controller together. A broker judges a change of its own settings itself, for the
controller does not know the settings in its file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from millstream.config.broker import all_broker_keys
from millstream.config.definition import ConfigKey
from millstream.config.group import GROUP_KEYS
from millstream.config.topic import TopicConfig
from millstream.config.value import parse_integer
from millstream.controller.config_changes import ConfigChange, ResourceType, check_own_change
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
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
    results = await services.controller.topics.alter_configs(
        list(changes.values()), validate_only=validate_only
    )
    for index, result in zip(changes, results, strict=True):
        outcomes[index] = result
    return outcomes


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
