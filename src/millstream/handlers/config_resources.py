"""What AlterConfigs and IncrementalAlterConfigs share: checks before the controller is asked.

Kafka: ``ConfigAdminManager.preprocess``. Resources that fail here are answered in their place; the
others go to the controller together. A broker judges a change of its own settings itself, for the
controller does not know what stands in its file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from millstream.config.broker import all_broker_keys
from millstream.config.definition import ConfigKey
from millstream.config.topic import TopicConfig
from millstream.config.value import parse_integer
from millstream.controller.config_changes import ConfigChange, ResourceType, check_own_change
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.runtime.services import Services


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A wish: what to do to which resource. ``null_names`` are settings given without a text that
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
        """The kind of resource, UNKNOWN for a code that nobody knows."""
        return ResourceType.of(self.type_code)

    @property
    def key(self) -> tuple[int, str]:
        """What tells the resource from others: a broker may be named as 1 and as 01."""
        number = parse_integer(self.name, 32) if self.type is ResourceType.BROKER else None
        return self.type_code, self.name if number is None else str(number)


Ask = Callable[[Sequence[int]], Awaitable[Sequence[KafkaError | None]]]
"""Hands on the wishes with these indices; answers their outcomes in the same order."""


async def alter(
    services: Services, wishes: Sequence[ResourceChange], *, validate_only: bool
) -> list[KafkaError | None]:
    """Carry out what can be; the outcomes are in the order of the wishes."""
    counts = Counter(wish.key for wish in wishes)
    outcomes: list[KafkaError | None] = [None] * len(wishes)
    changes: dict[int, ConfigChange] = {}
    for index, wish in enumerate(wishes):
        try:
            if counts[wish.key] > 1:
                raise _refused("Each resource must appear at most once.")
            changes[index] = _checked(wish, _own_id(services))
        except KafkaError as error:
            outcomes[index] = error
    results = await services.controller.topics.alter_configs(
        list(changes.values()), validate_only=validate_only
    )
    for index, result in zip(changes, results, strict=True):
        outcomes[index] = result
    return outcomes


async def alter_through_controller(
    services: Services, wishes: Sequence[ResourceChange], ask: Ask
) -> list[KafkaError | None]:
    """Have the controller carry out what this broker does not refuse itself: ``ask`` is given the
    indices of the wishes to hand on.
    """
    outcomes = _refusals_of_own(services, wishes)
    left = [index for index, refusal in enumerate(outcomes) if refusal is None]
    if left:
        for index, outcome in zip(left, await ask(left), strict=True):
            outcomes[index] = outcome
    return outcomes


def _refusals_of_own(
    services: Services, wishes: Sequence[ResourceChange]
) -> list[KafkaError | None]:
    """Return what this broker says to changes of its own settings, None for all others."""
    counts = Counter(wish.key for wish in wishes)
    outcomes: list[KafkaError | None] = []
    for wish in wishes:
        refusal = None
        if wish.type is ResourceType.BROKER and wish.name and counts[wish.key] < 2:
            try:
                change = _checked(wish, None)
                if change.name == str(services.node.broker_id):
                    check_own_change(change, services.config)
            except KafkaError as error:
                refusal = error
        outcomes.append(refusal)
    return outcomes


def _own_id(services: Services) -> BrokerId | None:
    """Return the only broker whose settings may be changed here; None on a cluster's controller,
    to which all brokers hand on what they are asked.
    """
    return services.node.broker_id if services.cluster is None else None


def _checked(wish: ResourceChange, broker_id: BrokerId | None) -> ConfigChange:
    if len(set(wish.setting_names)) < len(wish.setting_names):
        raise _refused("Error due to duplicate config keys")
    if wish.null_names:
        raise _refused(f"Null value not supported for : {', '.join(wish.null_names)}")
    if wish.type is ResourceType.TOPIC:
        keys, name = TopicConfig.keys, wish.name
    elif wish.type is ResourceType.BROKER:
        keys, name = all_broker_keys(), _broker_name(wish.name, broker_id)
    else:
        raise _refused(f"Unknown resource type {wish.type_code}")
    wish.check(wish.type)
    return ConfigChange(
        wish.type,
        name,
        lambda texts: wish.change(texts, keys),
        named=frozenset(wish.setting_names),
        replaces_all=wish.replaces_all,
    )


def _broker_name(name: str, broker_id: BrokerId | None) -> str:
    if not name:
        return name
    wanted = parse_broker_id(name, "Node id")
    if broker_id is not None and wanted != broker_id:
        raise _refused(f"Unexpected broker id, expected {broker_id}, but received {name}")
    return str(wanted)


def parse_broker_id(name: str, what: str) -> int:
    """Return a broker's id from the name of its resource; INVALID_REQUEST when it is no number."""
    broker_id = parse_integer(name, 32)
    if broker_id is None:
        raise _refused(f"{what} must be an integer, but it is: {name}")
    return broker_id


def outcome_of(error_code: int, message: str | None) -> KafkaError | None:
    """Return what an answer of the controller says of one resource."""
    return KafkaError(ErrorCode.of(error_code), message) if error_code else None


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
