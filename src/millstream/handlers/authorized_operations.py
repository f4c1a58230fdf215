"""Which operations a client may carry out: the bit fields of Metadata, DescribeCluster and others.

Bit *n* stands for the ACL operation with code *n* (KIP-430). Without an authorizer everything is
allowed that makes sense for the kind of resource.
"""

from __future__ import annotations

from typing import Final

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
