"""What AlterConfigs and IncrementalAlterConfigs share: checks before the controller is asked.

Kafka: ``ConfigAdminManager.preprocess``. Resources that fail here are answered in their place; the
others go to the controller together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from millstream.config.broker import all_broker_keys
from millstream.config.definition import ConfigKey
from millstream.config.topic import TopicConfig
from millstream.controller.config_changes import ConfigChange, ResourceType
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

    @property
    def type(self) -> ResourceType:
        """The kind of resource, UNKNOWN for a code that nobody knows."""
        return ResourceType.of(self.type_code)


async def alter(
    services: Services, wishes: Sequence[ResourceChange], *, validate_only: bool
) -> list[KafkaError | None]:
    """Carry out what can be; the outcomes are in the order of the wishes."""
    counts = Counter((wish.type_code, wish.name) for wish in wishes)
    outcomes: list[KafkaError | None] = [None] * len(wishes)
    changes: dict[int, ConfigChange] = {}
    for index, wish in enumerate(wishes):
        try:
            if counts[wish.type_code, wish.name] > 1:
                raise _refused("Each resource must appear at most once.")
            changes[index] = _checked(wish, _own_id(services))
        except KafkaError as error:
            outcomes[index] = error
    results = await services.controller.alter_configs(
        list(changes.values()), validate_only=validate_only
    )
    for index, result in zip(changes, results, strict=True):
        outcomes[index] = result
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
    return ConfigChange(wish.type, name, lambda texts: wish.change(texts, keys))


def _broker_name(name: str, broker_id: BrokerId | None) -> str:
    if not name:
        return name
    wanted = parse_broker_id(name, "Node id")
    if broker_id is not None and wanted != broker_id:
        raise _refused(f"Unexpected broker id, expected {broker_id}, but received {name}")
    return str(wanted)


def parse_broker_id(name: str, what: str) -> int:
    """Return a broker's id from the name of its resource; INVALID_REQUEST when it is no number."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    if not digits.isdecimal():
        raise _refused(f"{what} must be an integer, but it is: {name}")
    return int(name)


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
