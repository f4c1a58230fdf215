"""Carries out what the application asks of its transactions: init, begin, offsets, commit, abort.

Each operation runs on the loop until it has ended or failed, also when the caller's wait is over,
because ``max.block.ms`` have passed, a task was cancelled, or Ctrl-C was pressed. The same call
again waits for the one that is running, or gets the outcome of the one that has ended meanwhile
(Kafka: ``TransactionManager.handleCachedTransactionRequestResult``). Whatever goes wrong in an
operation, it leaves no state that only a running one leads out of.

* A commit flushes all batches, and sends EndTxn only if every record was acknowledged.
* An abort drops what was not sent, waits until no Produce request is in flight, and sends EndTxn.
* A transaction without records and offsets ends without a request.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from millstream.client.core.consumer.record import (
    GroupMetadata,
    OffsetAndMetadata,
    Offsets,
    read_offsets,
)
from millstream.client.core.network import Network
from millstream.client.core.producer.accumulator import RecordAccumulator
from millstream.client.core.producer.sender import Sender
from millstream.client.core.producer.transaction_errors import of_request
from millstream.client.core.producer.transaction_requests import TransactionRequests
from millstream.client.core.producer.transactions import (
    PreparedTransaction,
    TransactionManager,
    TransactionState,
    renewed,
)
from millstream.client.core.settings import ProducerSettings
from millstream.client.core.waiting import within
from millstream.client.errors import (
    AbortableTransactionError,
    ClientError,
    ClosedError,
    FatalTransactionError,
    TransactionError,
    TransactionStateError,
)
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError
from millstream.model.features import TRANSACTION_VERSION
from millstream.model.producer import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from millstream.model.topic import TopicPartition

_V2: Final = 2


T = TypeVar("T")


class TransactionControl:
    """The transactions of one producer; every method is called on the loop."""

    def __init__(
        self,
        network: Network,
        settings: ProducerSettings,
        accumulator: RecordAccumulator,
        sender: Sender,
        manager: TransactionManager,
    ) -> None:
        self.manager = manager
        self._network = network
        self._settings = settings
        self._accumulator = accumulator
        self._sender = sender
        self._requests = TransactionRequests(network, settings, manager)
        self._running: dict[str, Deferred[Any]] = {}
        """The last operation of each name."""
        self._unheard: set[str] = set()
        """Names of operations whose outcome nobody has waited for to the end."""
        self._adding: Deferred[None] = Deferred.of(None)
        self._offsets: Deferred[None] = Deferred.of(None)
        sender.on_new_partitions = self._add_partitions
        sender.when_transaction_changes(self._changed)
        self._changed()

    def init(self) -> Deferred[None]:
        """Get the producer id and epoch, which fences earlier producers and ends what they left."""
        return self._waited("init_transactions", self._init)

    def begin(self) -> None:
        """Begin a transaction."""
        if not any(self._is_running(name) for name in self._running):
            self._unheard.clear()
        is_v2 = self._network.finalized_level(TRANSACTION_VERSION) >= _V2
        self.manager.begin(is_v2=is_v2)
        self._changed()

    def add_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> Deferred[None]:
        """Add consumed offsets to the transaction: they are committed with it, or not at all."""
        if not self._offsets.done:
            raise TransactionStateError("send_offsets_to_transaction is running already")
        self.manager.check_offsets()
        self._offsets = spawn(self._carried_out(self._add_offsets(dict(offsets), group)))
        return self._within(self._offsets, "send_offsets_to_transaction")

    def commit(self) -> Deferred[None]:
        """Commit: all records and offsets of the transaction become visible."""
        return self._waited("commit_transaction", self._commit)

    def prepare(self) -> Deferred[PreparedTransaction | None]:
        """Deliver everything, and leave the commit to another process."""
        return self._waited("prepare_transaction", self._prepare)

    def abort(self) -> Deferred[None]:
        """Abort: nothing of the transaction becomes visible."""
        return self._waited("abort_transaction", self._abort)

    def interrupted(self, name: str) -> None:
        """Keep the outcome of an operation for the same call again: its caller has not heard it."""
        if name in self._running:
            self._unheard.add(name)

    async def close(self) -> None:
        """Abort the open transaction; wait for a commit or abort that is running."""
        for running in list(self._running.values()):
            await _settled(running)
        if self.manager.is_open:
            await _settled(self.abort())

    # --- the operations --------------------------------------------------------------------------

    async def _init(self) -> None:
        self.manager.begin_init()
        await self._get_epoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

    async def _get_epoch(self, producer_id: int, epoch: int) -> None:
        try:
            answer = await self._requests.init_producer_id(producer_id, epoch)
        except (ClientError, KafkaError) as error:
            raise self._failed(error, "the producer was not initialized", is_fatal=True) from error
        self.manager.initialized(answer.producer_id, answer.producer_epoch)
        self._changed()

    async def _add_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata
    ) -> None:
        manager = self.manager
        if not offsets:
            return
        try:
            goes_on = manager.is_v2 or await self._requests.add_offsets(group.group_id)
            if goes_on:
                manager.is_started = True
                goes_on = await self._requests.commit_offsets(offsets, group)
        except (ClientError, KafkaError) as error:
            raise self._failed(error, f"offsets of group {group.group_id!r}") from error
        if not goes_on:
            raise self._ended_meanwhile()

    async def _commit(self) -> None:
        manager = self.manager
        manager.begin_commit()
        self._changed()
        await _settled(self._offsets)
        await self._sender.flush()
        if manager.error is not None:
            raise renewed(manager.error)
        await self._end(committed=True)

    async def _prepare(self) -> PreparedTransaction | None:
        manager = self.manager
        manager.begin_commit()
        self._changed()
        await _settled(self._offsets)
        await self._sender.flush()
        prepared = manager.prepared()
        self._changed()
        return prepared

    async def _abort(self) -> None:
        self.manager.begin_abort()
        self._changed()
        await _settled(self._adding)
        await _settled(self._offsets)
        await self._sender.flush()
        await self._sender.quiet()
        if self.manager.error is not None:
            # A request that was in flight has shown that another producer has taken over.
            raise renewed(self.manager.error)
        await self._end(committed=False)

    async def _end(self, *, committed: bool) -> None:
        manager = self.manager
        producer_id, epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        if manager.is_started:
            try:
                answer = await self._requests.end(committed=committed)
            except (ClientError, KafkaError) as error:
                about = f"the transaction was not {'committed' if committed else 'aborted'}"
                raise self._failed(error, about, is_fatal=not committed) from error
            producer_id, epoch = answer.producer_id, answer.producer_epoch
        manager.ended(producer_id, epoch)
        if manager.needs_new_epoch:
            await self._get_epoch(manager.producer_id, manager.epoch)
        self._changed()

    def _add_partitions(self) -> None:
        """Add the partitions that the sender waits for (version 1)."""

        async def run() -> None:
            while self.manager.new_partitions:
                added = self.manager.take_new_partitions()
                try:
                    is_added = await self._requests.add_partitions(added)
                except (ClientError, KafkaError) as error:
                    self._failed(error, "partitions were not added to the transaction")
                    return
                if is_added:
                    self.manager.partitions_added(added)
            self._sender.wake()

        if self._adding.done:
            self._adding = spawn(self._carried_out(run()))

    # --- states ----------------------------------------------------------------------------------

    def _failed(
        self, error: ClientError | KafkaError, about: str, *, is_fatal: bool = False
    ) -> Exception:
        """Enter the error's state, and return what the application gets to see."""
        if isinstance(error, ClosedError):
            return error
        failure = of_request(error, about)
        if is_fatal and isinstance(failure, AbortableTransactionError):
            failure = FatalTransactionError(str(failure), failure.error)
        self.manager.fail(failure)
        self._changed()
        return renewed(failure)

    def _ended_meanwhile(self) -> Exception:
        error = self.manager.error
        if error is not None:
            return renewed(error)
        return TransactionStateError("the transaction ended before the offsets were added")

    def _changed(self) -> None:
        """Let ``send`` know whether it is permitted, and the sender what it may send."""
        manager, accumulator = self.manager, self._accumulator
        is_open = manager.state is TransactionState.IN_TRANSACTION
        with accumulator.lock:
            if not accumulator.is_closed:
                accumulator.refusal = None if is_open else manager.refusal
        self._sender.wake()

    def _waited(
        self, name: str, operation: Callable[[], Coroutine[Deferred[Any], None, T]]
    ) -> Deferred[T]:
        running = self._running.get(name)
        if running is None or (running.done and name not in self._unheard):
            self._refuse_others(name)
            running = self._running[name] = spawn(self._carried_out(operation()))
        self._unheard.discard(name)
        waited = self._within(running, name)
        waited.on_done(lambda _: None if running.done else self._unheard.add(name))
        return waited

    def _refuse_others(self, name: str) -> None:
        """Raise TransactionStateError if another operation has to be heard first."""
        if self.manager.has_error:
            return
        for other in self._running.keys() - {name}:
            if self._is_running(other):
                raise TransactionStateError(f"{other}() has not ended: call it again")
            if other in self._unheard and not self.manager.is_open:
                raise TransactionStateError(
                    f"{other}() has ended meanwhile: call it again for its outcome"
                )

    def _is_running(self, name: str) -> bool:
        return not self._running[name].done

    async def _carried_out(self, operation: Coroutine[Deferred[Any], None, T]) -> T:
        """Run an operation; what it does not expect is fatal, because its state is not known."""
        try:
            return await operation
        except (TransactionError, TransactionStateError, ClosedError):
            raise
        except BaseException as error:
            failure = FatalTransactionError(f"the transaction's state is not known: {error!r}")
            failure.__cause__ = error
            self.manager.fail(failure)
            self._changed()
            if isinstance(error, Exception):
                raise renewed(failure) from error
            raise

    def _within(self, running: Deferred[T], name: str) -> Deferred[T]:
        about = f"{name} (max.block.ms)"
        limit_ms = self._settings.max_block_ms
        where = self._network.whereabouts
        return within(self._network.loop, running, limit_ms, about, where=where)


def checked_offsets(
    offsets: Offsets, group: GroupMetadata
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return a user's offsets; TypeError or ValueError for what cannot be committed."""
    if not isinstance(group, GroupMetadata):
        raise TypeError(f"the group is given by a consumer's group_metadata(), not by {group!r}")
    return read_offsets(offsets) or {}


def _settled(running: Deferred[Any]) -> Deferred[None]:
    """Wait until an operation has ended, one way or the other: its caller has its error."""
    cell: Deferred[None] = Deferred()
    running.on_done(lambda _: cell.complete(None))
    return cell
