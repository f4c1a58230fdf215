"""Settings of topics and brokers: describe them and where they come from, set and unset them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millstream.client.cluster import Cluster
from millstream.client.connection import Connection
from millstream.client.core.admin.configs import (
    Operation,
    Resource,
    ResourceType,
    Setting,
    Source,
    read_setting,
)
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

__all__ = [
    "Resource",
    "ResourceType",
    "Setting",
    "Source",
    "alter_configs",
    "describe_configs",
]


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
    return sorted(map(read_setting, result.configs), key=lambda each: each.name)


def alter_configs(
    cluster: Cluster,
    resource: Resource,
    *,
    values: Mapping[str, str] | None = None,
    delete: Sequence[str] = (),
) -> None:
    """Set and unset settings of a resource, all or none; KafkaError says which one is refused."""
    changes = [
        AlterableConfig(name=name, config_operation=Operation.SET, value=value)
        for name, value in (values or {}).items()
    ]
    changes += [
        AlterableConfig(name=name, config_operation=Operation.DELETE, value=None) for name in delete
    ]
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


def _raise(code: int, message: str | None, resource: Resource) -> None:
    if code:
        raise KafkaError(ErrorCode.of(code), message or str(resource))
