"""Where each API asks what its client may do: an API without a line here cannot be served.

``Open``       nothing is asked: it serves to get to know each other, or to say who one is.
``OnCluster``  one of some operations on the cluster, for the request as a whole; refused with
               CLUSTER_AUTHORIZATION_FAILED before the handler is called.
``OnGroup``    an operation on the group that the request names; GROUP_AUTHORIZATION_FAILED, again
               before the handler.
``Inside``     the handler asks for each resource, see its module (``access.access_of``).
``Apart``      the module has a second handler, ``handle_authorized``, that is called in place of
               ``handle`` where there is an authorizer: without one, nothing is asked.

Which operation it is, and what is answered, is Kafka's (``KafkaApis``, ``ControllerApis`` 4.3).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final, TypeAlias

from millstream.handlers.access import access_of
from millstream.handlers.request import Handle, Reply, RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.api import FIRST_INTERNAL_KEY, ApiKey
from millstream.runtime.services import Services


@dataclass(frozen=True, slots=True)
class Open:
    """Nothing is asked."""


@dataclass(frozen=True, slots=True)
class OnCluster:
    """The request needs one of ``operations`` on the cluster."""

    operations: tuple[AclOperation, ...]


@dataclass(frozen=True, slots=True)
class OnGroup:
    """The request needs an operation on the group ``group_id``."""

    operation: AclOperation


@dataclass(frozen=True, slots=True)
class Inside:
    """The handler asks."""


@dataclass(frozen=True, slots=True)
class Apart:
    """``handle_authorized`` asks."""


Rule: TypeAlias = Open | OnCluster | OnGroup | Inside | Apart


def authorized(rule: Rule, module: ModuleType) -> Handle:
    """Return the handler that asks what a rule tells, of a broker with an authorizer."""
    handle: Handle = module.handle
    match rule:
        case OnCluster(operations):
            return _on_cluster(handle, operations)
        case OnGroup(operation):
            return _on_group(handle, operation)
        case Apart():
            apart: Handle = module.handle_authorized
            return apart
        case Open() | Inside():
            return handle


def _on_cluster(handle: Handle, operations: tuple[AclOperation, ...]) -> Handle:
    *others, last = operations

    def handle_authorized(services: Services, context: RequestContext, request: Any) -> Reply:
        access = access_of(services, context)
        if access is not None and not any(
            access.on_cluster(operation, tell_denied=False) for operation in others
        ):
            access.require_on_cluster(last)
        return handle(services, context, request)

    return handle_authorized


def _on_group(handle: Handle, operation: AclOperation) -> Handle:
    def handle_authorized(services: Services, context: RequestContext, request: Any) -> Reply:
        access = access_of(services, context)
        if access is not None and not access.allows(operation, AclResource.GROUP, request.group_id):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return handle(services, context, request)

    return handle_authorized


_ALTER: Final = OnCluster((AclOperation.ALTER,))
_DESCRIBE: Final = OnCluster((AclOperation.DESCRIBE,))
_DESCRIBE_CONFIGS: Final = OnCluster((AclOperation.DESCRIBE_CONFIGS,))
_CLUSTER_ACTION: Final = OnCluster((AclOperation.CLUSTER_ACTION,))
_READ_GROUP: Final = OnGroup(AclOperation.READ)

RULES: Final[dict[ApiKey, Rule]] = {
    ApiKey.PRODUCE: Apart(),
    ApiKey.FETCH: Apart(),
    ApiKey.LIST_OFFSETS: Inside(),
    ApiKey.METADATA: Inside(),
    ApiKey.OFFSET_COMMIT: Inside(),
    ApiKey.OFFSET_FETCH: Inside(),
    ApiKey.FIND_COORDINATOR: Inside(),
    ApiKey.JOIN_GROUP: _READ_GROUP,
    ApiKey.HEARTBEAT: _READ_GROUP,
    ApiKey.LEAVE_GROUP: _READ_GROUP,
    ApiKey.SYNC_GROUP: Inside(),
    ApiKey.DESCRIBE_GROUPS: Inside(),
    ApiKey.LIST_GROUPS: Inside(),
    ApiKey.SASL_HANDSHAKE: Open(),
    ApiKey.API_VERSIONS: Open(),
    ApiKey.CREATE_TOPICS: Inside(),
    ApiKey.DELETE_TOPICS: Inside(),
    ApiKey.DELETE_RECORDS: Inside(),
    ApiKey.INIT_PRODUCER_ID: Inside(),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Inside(),
    ApiKey.ADD_PARTITIONS_TO_TXN: Inside(),
    ApiKey.ADD_OFFSETS_TO_TXN: Inside(),
    ApiKey.END_TXN: Inside(),
    ApiKey.WRITE_TXN_MARKERS: OnCluster((AclOperation.ALTER, AclOperation.CLUSTER_ACTION)),
    ApiKey.TXN_OFFSET_COMMIT: Inside(),
    ApiKey.DESCRIBE_ACLS: _DESCRIBE,
    ApiKey.CREATE_ACLS: _ALTER,
    ApiKey.DELETE_ACLS: _ALTER,
    ApiKey.DESCRIBE_CONFIGS: Inside(),
    ApiKey.ALTER_CONFIGS: Inside(),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _ALTER,
    ApiKey.DESCRIBE_LOG_DIRS: _DESCRIBE,
    ApiKey.SASL_AUTHENTICATE: Open(),
    ApiKey.CREATE_PARTITIONS: Inside(),
    ApiKey.CREATE_DELEGATION_TOKEN: Inside(),
    ApiKey.RENEW_DELEGATION_TOKEN: Inside(),
    ApiKey.EXPIRE_DELEGATION_TOKEN: Inside(),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: Inside(),
    ApiKey.DELETE_GROUPS: Inside(),
    ApiKey.ELECT_LEADERS: _ALTER,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: Inside(),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _ALTER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _DESCRIBE,
    ApiKey.OFFSET_DELETE: Inside(),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _DESCRIBE_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS: OnCluster((AclOperation.ALTER_CONFIGS,)),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _DESCRIBE,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _ALTER,
    ApiKey.UPDATE_FEATURES: _ALTER,
    ApiKey.DESCRIBE_CLUSTER: Inside(),
    ApiKey.DESCRIBE_PRODUCERS: Inside(),
    ApiKey.UNREGISTER_BROKER: _ALTER,
    ApiKey.DESCRIBE_TRANSACTIONS: Inside(),
    ApiKey.LIST_TRANSACTIONS: Inside(),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: Inside(),
    ApiKey.CONSUMER_GROUP_DESCRIBE: Inside(),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: Open(),
    ApiKey.PUSH_TELEMETRY: Open(),
    ApiKey.LIST_CONFIG_RESOURCES: _DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: Inside(),
    ApiKey.SHARE_GROUP_HEARTBEAT: Inside(),
    ApiKey.SHARE_GROUP_DESCRIBE: Inside(),
    ApiKey.SHARE_FETCH: Inside(),
    ApiKey.SHARE_ACKNOWLEDGE: Inside(),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: Inside(),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: Inside(),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: Inside(),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.READ_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.WRITE_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.DELETE_SHARE_GROUP_STATE: _CLUSTER_ACTION,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _CLUSTER_ACTION,
    **{key: _CLUSTER_ACTION for key in ApiKey if key >= FIRST_INTERNAL_KEY},
}
