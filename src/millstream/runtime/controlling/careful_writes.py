"""Writes whose answer is lost: their outcome is looked up, they are never repeated blindly.

A write that lost its connection may have been applied. All of a multi or nothing is, so one of its
operations tells: the node is read again and compared with what the write would have left. Paths of
the controller have one writer, which makes the comparison certain; and a repeated write names the
same versions, so it cannot be applied twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from millstream.model.clock import Clock
from millstream.model.metadata_store import (
    ANY_VERSION,
    ConnectionLossError,
    Create,
    Delete,
    Done,
    MetadataStore,
    NoNodeError,
    Operation,
    SetData,
)
from millstream.runtime.pauses import pause

RETRY_MS: Final = 100


async def write_surely(
    store: MetadataStore, clock: Clock, operations: Sequence[Operation]
) -> tuple[Done, ...] | None:
    """Carry out a multi, and find out what became of it when the connection is lost.

    Returns None where it was applied and its answer is lost. Raises what the store answered, and
    ConnectionLossError when the store cannot be asked either, or no operation shows the outcome.
    """
    session = store.session_id
    while True:
        try:
            return await store.multi(operations)
        except ConnectionLossError:
            applied = await _look(store, clock, operations, session)
        if applied is None:
            raise ConnectionLossError
        if applied:
            return None


async def _look(
    store: MetadataStore, clock: Clock, operations: Sequence[Operation], session: int
) -> bool | None:
    """Return whether the operations were carried out; None when that cannot be found out."""
    telling = next((each for each in operations if _tells(each)), None)
    if telling is None:
        return None
    while store.session_id == session:
        try:
            return await _is_done(store, telling, session)
        except ConnectionLossError:
            await pause(clock, RETRY_MS)
    return None


def _tells(operation: Operation) -> bool:
    match operation:
        case Create() | Delete():
            return True
        case SetData():
            return operation.version != ANY_VERSION
        case _:
            return False


async def _is_done(store: MetadataStore, operation: Operation, session: int) -> bool | None:
    try:
        node = await store.get(operation.path)
    except NoNodeError:
        return isinstance(operation, Delete)
    match operation:
        case Create():
            mine = not operation.ephemeral or node.owner == session
            return True if mine and node.data == operation.data else None
        case SetData():
            if node.version == operation.version:
                return False
            after = node.version == operation.version + 1 and node.data == operation.data
            return True if after else None
        case Delete():
            return False if node.version == operation.version else None
        case _:
            return None
