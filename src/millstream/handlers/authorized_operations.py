"""Which operations a client may carry out: the bit fields of Metadata, DescribeCluster and others.

Bit *n* stands for the ACL operation with code *n* (KIP-430). Without an authorizer everything is
allowed that makes sense for the kind of resource.

Kafka: ``AuthHelper.authorizedOperations``, ``AclEntry.supportedOperations``.
"""

from __future__ import annotations

from typing import Final

from millstream.handlers.access import Access
from millstream.model.acl import CLUSTER_NAME, AclOperation, AclResource

NOT_ASKED: Final = -(2**31)
"""The value of the field when the request did not ask for it."""

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << code for code in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (
    1 << code for code in range(9, 13)
)

TOPIC: Final = (
    _READ | _WRITE | _CREATE | _DELETE | _ALTER | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
)
CLUSTER: Final = (
    _CREATE
    | _ALTER
    | _DESCRIBE
    | _CLUSTER_ACTION
    | _DESCRIBE_CONFIGS
    | _ALTER_CONFIGS
    | _IDEMPOTENT_WRITE
)
GROUP: Final = _READ | _DELETE | _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS


def of_topic(access: Access | None, name: str) -> int:
    """Return what the client may do with a topic; all of it for None."""
    return TOPIC if access is None else TOPIC & access.operations(AclResource.TOPIC, name)


def of_group(access: Access | None, group_id: str) -> int:
    """Return what the client may do with a group; all of it for None."""
    return GROUP if access is None else GROUP & access.operations(AclResource.GROUP, group_id)


def of_cluster(access: Access | None) -> int:
    """Return what the client may do with the cluster; nothing unless it may describe it."""
    if access is None:
        return CLUSTER
    if not access.on_cluster(AclOperation.DESCRIBE):
        return 0
    return CLUSTER & access.operations(AclResource.CLUSTER, CLUSTER_NAME)
