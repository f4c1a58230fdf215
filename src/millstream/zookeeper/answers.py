"""Translates kazoo's results and errors into those of a metadata store."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from kazoo import exceptions as kazoo_errors

from millstream.model.metadata_store import (
    BadVersionError,
    Check,
    ConnectionLossError,
    Create,
    Delete,
    Done,
    MetadataStoreError,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionExpiredError,
    SetData,
)

log = logging.getLogger(__name__)


class UnsupportedError(MetadataStoreError):
    """The server does not support this kind of request."""


_UNKNOWN_OUTCOME: Final = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.OperationTimeoutError,
)
ANSWERED_ERRORS: Final = {
    kazoo_errors.NoNodeError: NoNodeError,
    kazoo_errors.NodeExistsError: NodeExistsError,
    kazoo_errors.BadVersionError: BadVersionError,
    kazoo_errors.NotEmptyError: NotEmptyError,
    kazoo_errors.SessionExpiredError: SessionExpiredError,
    kazoo_errors.UnimplementedError: UnsupportedError,
}
"""A kazoo error, and the store's error for it."""


def done_by(operations: Sequence[Operation], results: Sequence[Any]) -> tuple[Done, ...]:
    """Return the result of each operation; raise the error of the one that failed."""
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, kazoo_errors.RolledBackError | kazoo_errors.RuntimeInconsistency):
            continue
        if isinstance(result, Exception):
            raise translated(result, operation.path)
    made: dict[str, int] = {}
    done = []
    for operation, result in zip(operations, results, strict=True):
        match operation:
            case Create() | SetData():
                made[operation.path] = result.czxid
                done.append(Done(result.version, result.czxid))
            case Delete():
                done.append(Done(-1, -1))
            case Check():
                done.append(Done(operation.version, made.get(operation.path, -1)))
    return tuple(done)


def node_of(answer: Any) -> Node:
    """Return the node from the result of a read."""
    data, stat = answer
    return Node(data or b"", stat.version, stat.czxid, stat.ephemeralOwner)


def translated(error: BaseException, path: str) -> MetadataStoreError:
    """Return the store's error for a failure: ConnectionLossError if the outcome is unknown."""
    if isinstance(error, _UNKNOWN_OUTCOME):
        return ConnectionLossError(path)
    known = ANSWERED_ERRORS.get(type(error))
    if known is not None:
        return known(path)
    log.error("ZooKeeper answered %r about %s", error, path)
    failure = MetadataStoreError(path)
    failure.__cause__ = error
    return failure
