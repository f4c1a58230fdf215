"""Settings of a consumer under Kafka's names (Kafka: ``ConsumerConfig``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from millstream.client.core.consumer.assignors.assignor import Assignor, RebalanceProtocol
from millstream.client.core.consumer.assignors.range import RangeAssignor
from millstream.client.core.consumer.assignors.round_robin import RoundRobinAssignor
from millstream.client.core.consumer.assignors.sticky import (
    CooperativeStickyAssignor,
    StickyAssignor,
)
from millstream.client.core.consumer.reset import LATEST, ResetStrategy, parse_reset
from millstream.client.core.setting_types import (
    INT_MAX,
    boolean,
    choice,
    integer,
    milliseconds,
    optional_text,
    serializer,
    setting,
)
from millstream.client.core.settings import ObservedSettings, dotted
from millstream.model.errors import ConfigError

_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."

_ASSIGNORS: Final[dict[str, type[Assignor]]] = {
    "range": RangeAssignor,
    "roundrobin": RoundRobinAssignor,
    "sticky": StickyAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
_JAVA_NAMES: Final = {each.__name__: name for name, each in _ASSIGNORS.items()}

_DEFAULT_ASSIGNORS: Final = ("range", "cooperative-sticky")


def _reset(value: object) -> ResetStrategy:
    if isinstance(value, ResetStrategy):
        return value
    if not isinstance(value, str):
        raise ValueError("it takes earliest, latest, none or by_duration:…")
    return parse_reset(value)


def _assignors(value: object) -> tuple[str | Assignor, ...]:
    parts: Sequence[object]
    if isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
    elif isinstance(value, Sequence):
        parts = value
    else:
        parts = [value]
    chosen = tuple(_assignor(part) for part in parts)
    if not chosen:
        raise ValueError("it takes at least one assignor")
    return chosen


def _assignor(value: object) -> str | Assignor:
    if not isinstance(value, str):
        if not (hasattr(value, "assign") and hasattr(value, "rebalance_protocols")):
            raise ValueError(f"{value!r} is not an assignor")
        return cast(Assignor, value)
    name = value.removeprefix(_JAVA_PACKAGE)
    name = _JAVA_NAMES.get(name, name)
    if name not in _ASSIGNORS:
        raise ValueError(f"there is no assignor {value!r}: it takes {', '.join(_ASSIGNORS)}")
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings(ObservedSettings):
    """Settings of a consumer; names ending in ``_ms`` are milliseconds.

    ``fetch_buffer_bytes`` is Millstream's own: the limit of fetched and unprocessed bytes over all
    partitions; nothing is fetched while it is reached. ``receive_buffer_bytes`` is −1 by default:
    the system sizes it, which is better for large responses.
    """

    receive_buffer_bytes: int = setting(integer(-1), -1)

    group_id: str | None = setting(optional_text, None)
    group_instance_id: str | None = setting(optional_text, None)
    group_protocol: str = setting(choice("classic", "consumer"), "classic")
    group_remote_assignor: str | None = setting(optional_text, None)
    partition_assignment_strategy: tuple[str | Assignor, ...] = setting(
        _assignors, _DEFAULT_ASSIGNORS
    )
    session_timeout_ms: int = setting(integer(1), 45_000)
    heartbeat_interval_ms: int = setting(integer(1), 3_000)
    max_poll_interval_ms: int = setting(integer(1), 300_000)
    max_poll_records: int = setting(integer(1), 500)
    enable_auto_commit: bool = setting(boolean, True)
    auto_commit_interval_ms: float = setting(milliseconds(), 5_000)
    auto_offset_reset: ResetStrategy = setting(_reset, LATEST)  # noqa: RUF009 - LATEST is frozen
    isolation_level: str = setting(choice("read_uncommitted", "read_committed"), "read_uncommitted")
    fetch_min_bytes: int = setting(integer(), 1)
    fetch_max_bytes: int = setting(integer(), 52_428_800)
    fetch_max_wait_ms: int = setting(integer(), 500)
    max_partition_fetch_bytes: int = setting(integer(), 1_048_576)
    fetch_buffer_bytes: int = setting(integer(1, 2**62), 67_108_864)
    check_crcs: bool = setting(boolean, True)
    default_api_timeout_ms: float = setting(milliseconds(most=INT_MAX), 60_000)
    exclude_internal_topics: bool = setting(boolean, True)
    allow_auto_create_topics: bool = setting(boolean, True)
    internal_leave_group_on_close: bool = setting(boolean, True)
    key_deserializer: object = setting(serializer, None)
    value_deserializer: object = setting(serializer, None)

    @property
    def read_committed(self) -> bool:
        """True when records of open and aborted transactions are left out."""
        return self.isolation_level == "read_committed"

    @property
    def speaks_consumer_protocol(self) -> bool:
        """True if members are told their partitions by the coordinator (KIP-848)."""
        return self.group_protocol == "consumer"

    @property
    def auto_commits(self) -> bool:
        """True if positions are committed automatically."""
        return self.enable_auto_commit and self.group_id is not None


_FOR_CLASSIC_ONLY: Final = (
    "partition_assignment_strategy",
    "session_timeout_ms",
    "heartbeat_interval_ms",
)
"""Of the other protocol the coordinator has these settings (Kafka: ``ConsumerConfig``)."""


def check_settings(settings: ConsumerSettings) -> None:
    """Raise ConfigError for settings that exclude each other."""
    if settings.group_id == "":
        raise ConfigError("group.id is empty: leave it out to read without a group")
    if settings.group_instance_id is not None and settings.group_id is None:
        raise ConfigError("group.instance.id without group.id")
    if settings.speaks_consumer_protocol:
        for name in _FOR_CLASSIC_ONLY:
            if name in settings.given:
                raise ConfigError(
                    f"{dotted(name)} cannot be set when group.protocol is consumer: "
                    "the group's coordinator decides it"
                )
    elif settings.group_remote_assignor is not None:
        raise ConfigError("group.remote.assignor cannot be set when group.protocol is classic")
    if settings.heartbeat_interval_ms >= settings.session_timeout_ms:
        raise ConfigError(
            f"heartbeat.interval.ms ({settings.heartbeat_interval_ms}) must be smaller than "
            f"session.timeout.ms ({settings.session_timeout_ms})"
        )
    names = [assignor_name(each) for each in settings.partition_assignment_strategy]
    if len(set(names)) < len(names):
        raise ConfigError("partition.assignment.strategy names an assignor twice")
    rebalance_protocol(make_assignors(settings.partition_assignment_strategy))


def assignor_name(chosen: str | Assignor) -> str:
    """Return the name under which members agree on an assignor."""
    return chosen if isinstance(chosen, str) else chosen.name


def make_assignors(chosen: Sequence[str | Assignor]) -> list[Assignor]:
    """Return the assignors in the order of preference; they have state of one consumer."""
    return [_ASSIGNORS[each]() if isinstance(each, str) else each for each in chosen]


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the most lenient protocol that all of them support; ConfigError when there is none."""
    shared = frozenset(RebalanceProtocol)
    for assignor in assignors:
        shared &= assignor.rebalance_protocols
    if not shared:
        raise ConfigError(
            "the assignors of partition.assignment.strategy share no rebalance protocol"
        )
    return max(shared, key=lambda each: each.value)
