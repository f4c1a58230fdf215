"""Settings of topics and brokers: describe them and where they come from, set and unset them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from millstream.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET: Final = 0
_DELETE: Final = 1


class ResourceType(IntEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class Resource:
    """A topic by name, or a broker by id; the broker named "" is the default of all brokers."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER:
            return f"broker {self.name}" if self.name else "the default of all brokers"
        return f"topic {self.name!r}"


class Source(IntEnum):
    """Where a value comes from (Kafka: ``ConfigSource``)."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @property
    def words(self) -> str:
        """The source as a person would say it."""
        return _WORDS.get(self, self.name.lower().replace("_", " "))


_WORDS: Final = {
    Source.DYNAMIC_BROKER: "broker",
    Source.DYNAMIC_DEFAULT_BROKER: "broker default",
    Source.STATIC_BROKER: "server.properties",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting as the broker sees it; ``value`` is None for null and for secrets."""

    name: str
    value: str | None
    source: Source
    is_read_only: bool
    is_sensitive: bool


def describe_configs(
    cluster: Cluster, resource: Resource, names: Sequence[str] | None = None
) -> list[Setting]:
    """Return the settings of a resource, all or those named, in alphabetical order.

    KafkaError when the resource does not exist.
    """
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configuration_keys=None if names is None else list(names),
            )
        ]
    )
    result = _connection(cluster, resource).call(request, DescribeConfigsResponse).results[0]
    _raise(result.error_code, result.error_message, resource)
    return sorted(
        (
            Setting(
                name=each.name,
                value=each.value,
                source=_source(each.config_source),
                is_read_only=each.read_only,
                is_sensitive=each.is_sensitive,
            )
            for each in result.configs
        ),
        key=lambda each: each.name,
    )


def alter_configs(
    cluster: Cluster,
    resource: Resource,
    *,
    values: Mapping[str, str] | None = None,
    delete: Sequence[str] = (),
) -> None:
    """Set and unset settings of a resource, all or none; KafkaError says which one is refused."""
    changes = [
        AlterableConfig(name=name, config_operation=_SET, value=value)
        for name, value in (values or {}).items()
    ]
    changes += [AlterableConfig(name=name, config_operation=_DELETE, value=None) for name in delete]
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=resource.type, resource_name=resource.name, configs=changes
            )
        ],
        validate_only=False,
    )
    response = _connection(cluster, resource).call(request, IncrementalAlterConfigsResponse)
    _raise(response.responses[0].error_code, response.responses[0].error_message, resource)


def _connection(cluster: Cluster, resource: Resource) -> Connection:
    """Return a connection to the broker that is meant, or to any when the cluster is."""
    if resource.type is ResourceType.BROKER and resource.name:
        return cluster.connection_to(int(resource.name))
    return cluster.any_connection()


def _source(number: int) -> Source:
    return Source(number) if number in Source._value2member_map_ else Source.UNKNOWN


def _raise(code: int, message: str | None, resource: Resource) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code), message or str(resource))
