"""Producer ids: unique in the cluster, handed out from blocks that are reserved in the store.

A broker reserves a thousand ids at a time by one versioned write of `/latest_producer_id_block`
(Kafka: ``ZkProducerIdManager``). Ids that are left over when the broker stops are never used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from millstream.controller import paths, payloads
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError, StorageError
from millstream.model.metadata_store import (
    BadVersionError,
    Create,
    MetadataStore,
    MetadataStoreError,
    NodeExistsError,
    NoNodeError,
    Operation,
    SetData,
)

BLOCK_SIZE: Final = 1000
MAX_PRODUCER_ID: Final = 2**63 - 1


def first_unused_id(known: Iterable[int]) -> int:
    """Return an id above all that the logs on this broker's disks remember.

    The logs of an adopted Kafka directory know producers that this store never counted; an id given
    out twice would meet the sequence numbers of its first owner. A client can make ids up, so
    those in the upper half of the range do not count.
    """
    return 1 + max((each for each in known if each <= MAX_PRODUCER_ID // 2), default=-1)


class ProducerIds:
    """Hands out producer ids. ``on_store_failed`` hears of a store whose disk failed.

    A store that has given out none begins at ``first_id``: see ``first_unused_id``.
    """

    def __init__(
        self,
        store: MetadataStore,
        broker_id: BrokerId,
        on_store_failed: Callable[[StorageError], None],
        *,
        first_id: int = 0,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._on_store_failed = on_store_failed
        self._first_id = first_id
        self._next = 0
        self._end = 0
        """One past the last id of the block in hand."""
        self._reserving: Deferred[None] | None = None

    def next(self) -> Deferred[int]:
        """Return an id that nobody had before; KafkaError when no block can be reserved."""
        if self._next < self._end:
            return Deferred.of(self._take())
        return spawn(self._reserve_and_take())

    def _take(self) -> int:
        producer_id = self._next
        self._next += 1
        return producer_id

    async def _reserve_and_take(self) -> int:
        while self._next >= self._end:
            # All who come while a block is being reserved wait for the same one.
            reserving = self._reserving
            if reserving is None:
                reserving = self._reserving = spawn(self._reserve())
                reserving.on_done(lambda _: self._forget_reservation())
            await reserving
        return self._take()

    def _forget_reservation(self) -> None:
        self._reserving = None

    async def _reserve(self) -> None:
        try:
            while not await self._try_to_reserve():
                pass
        except StorageError as error:
            self._on_store_failed(error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except MetadataStoreError as error:
            # Clients ask again: nothing was handed out.
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error

    async def _try_to_reserve(self) -> bool:
        """Reserve the block after the newest one; False when another broker was faster."""
        path = paths.PRODUCER_ID_BLOCK
        operations: Sequence[Operation]
        try:
            node = await self._store.get(path)
        except NoNodeError:
            first = self._first_id
            operations = [Create(path, self._block(first))]
        else:
            first = payloads.read_producer_id_block(path, node.data) + 1
            operations = [SetData(path, self._block(first), node.version)]
        if first > MAX_PRODUCER_ID - BLOCK_SIZE:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
        try:
            await self._store.multi(operations)
        except (BadVersionError, NodeExistsError):
            return False
        self._next, self._end = first, first + BLOCK_SIZE
        return True

    def _block(self, first: int) -> bytes:
        last = first + BLOCK_SIZE - 1
        return payloads.producer_id_block(broker_id=self._broker_id, first=first, last=last)
