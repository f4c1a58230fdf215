"""Transactional producers of a simulation, of both generations, and committed readers.

A producer writes transactions of a few records into several partitions, most with an offset that it
commits for a group, and ends them. Now and then it dies in the middle: its successor asks for the
producer id and epoch, which ends what is open, and the dead one may still send what it had in hand
(a zombie): nothing of it may be accepted. Version 1 names partitions before it writes to them;
version 2 has Produce add them and takes a new epoch from each EndTxn (KIP-890).
"""

from __future__ import annotations

from random import Random
from typing import Final

from millstream.history.checker import PartitionKey
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from millstream.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from millstream.protocol.outgoing import IN_MEMORY
from millstream.records.batch import iter_batches
from millstream.records.builder import BatchBuilder, BatchOptions
from millstream.runtime.pauses import pause
from millstream.sim.clients import REQUEST_MS, Client, run_client
from millstream.sim.committed_reading import CommittedView
from millstream.sim.transaction_history import End, Sight, Transaction, TransactionHistory

TRANSACTIONAL: Final = "transactional"
"""The topic that the transactions write to."""
PARTITIONS: Final = 2
STATE_PARTITIONS: Final = 2
"""Partitions of ``__transaction_state``."""
TIMEOUT_MS: Final = 4_000
"""After which the coordinator ends a transaction that nobody ends."""
THINKING_MS: Final = 1_500.0
"""How long a producer waits at most before it ends a transaction."""
_KEY_GROUP, _KEY_TRANSACTION = 0, 1
_FETCH_VERSION: Final = 12

_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""After these the same request is sent again, as clients do."""
_FENCED: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""After these a producer begins anew: the coordinator ended its transaction (it took too long), or
the epoch is another one by now."""


class _BeginAnewError(Exception):
    """The transaction is given up; a new incarnation ends it."""


class Transactor:
    """One transactional id, and one process after the other that uses it."""

    def __init__(
        self,
        client: Client,
        name: str,
        history: TransactionHistory,
        *,
        version: int,
        pause_ms: float,
        thinking: Random,
    ) -> None:
        """``thinking`` is the chance of waiting before a transaction is ended."""
        self._client = client
        self._thinking = thinking
        self.name = name
        self.group = f"group of {name}"
        self._history = history
        self._version = version
        self._pause_ms = pause_ms
        self._coordinators: dict[int, BrokerId] = {}
        self._producer_id = self._epoch = -1
        self._sequences: dict[PartitionKey, int] = {}
        self._number = 0
        self.last_committed_ms = -1.0
        self.ended = dict.fromkeys(End, 0)
        self.fenced_zombies = 0

    def start(self) -> None:
        """Go on until the client is stopped."""
        run_client(self._client, self._run())

    async def _run(self) -> None:
        client = self._client
        while not client.stopped:
            await pause(client.clock, client.chance.expovariate(1 / self._pause_ms))
            try:
                if self._producer_id < 0:
                    await self._begin_anew()
                await self._transact()
            except _BeginAnewError:
                await self._leave_a_zombie()

    async def _leave_a_zombie(self) -> None:
        """Begin a new incarnation; let the old one send what it has in hand."""
        old = (self._producer_id, self._epoch, dict(self._sequences))
        self._producer_id = -1
        try:
            await self._begin_anew()
        except _BeginAnewError:
            return
        if self._client.chance.random() < 0.5 and old[0] == self._producer_id:
            await self._send_as_a_zombie(*old)

    # --- one transaction -----------------------------------------------------------------------

    async def _transact(self) -> None:
        client, chance = self._client, self._client.chance
        self._number += 1
        transaction = Transaction(self.name, self._number)
        self._history.transactions.append(transaction)
        for index in chance.sample(range(PARTITIONS), chance.choice((1, 2))):
            partition_key = (TRANSACTIONAL, index)
            if self._version == 1:
                await self._add_partition(partition_key)
            for _ in range(chance.choice((1, 1, 2))):
                await self._write(transaction, partition_key)
                self._may_die()
        if chance.random() < 0.6:
            await self._commit_offset(transaction)
            self._may_die()
        if self._thinking.random() < 0.2:
            await pause(client.clock, THINKING_MS * self._thinking.random())
        commits = chance.random() < 0.7
        if commits:
            transaction.end = End.OPEN
        await self._end(transaction, commits=commits)
        transaction.end = End.COMMITTED if commits else End.ABORTED
        self.ended[transaction.end] += 1
        if commits:
            self.last_committed_ms = client.clock.monotonic_ms()

    def _may_die(self) -> None:
        if self._client.chance.random() < 0.05:
            raise _BeginAnewError

    async def _begin_anew(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS
        )
        response = await self._ask_coordinator(request, 4 + (self._version == 2))
        assert isinstance(response, InitProducerIdResponse)
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()

    async def _add_partition(self, partition_key: PartitionKey) -> None:
        topic, index = partition_key
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[index])],
        )
        await self._ask_coordinator(request, 3)

    async def _write(self, transaction: Transaction, partition_key: PartitionKey) -> None:
        value = f"{transaction.process}:{transaction.number}:{len(transaction.attempted)}"
        transaction.attempted.add(value)
        sequence = self._sequences.get(partition_key, 0)
        for attempt in range(60):
            error = await self._produce(
                partition_key, value, self._producer_id, self._epoch, sequence
            )
            if error is ErrorCode.NONE:
                self._sequences[partition_key] = sequence + 1
                transaction.values.setdefault(partition_key, []).append(value)
                return
            if self._client.stopped and attempt > 40:
                break
            self._judge(error, "Produce")
            await self._client.look_again(partition_key)
        raise _BeginAnewError

    async def _produce(
        self, partition_key: PartitionKey, value: str, producer_id: int, epoch: int, sequence: int
    ) -> ErrorCode:
        builder = BatchBuilder(
            BatchOptions(
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )
        builder.append(self._client.clock.now_ms(), None, value.encode())
        topic, index = partition_key
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=REQUEST_MS // 2,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    partition_data=[PartitionProduceData(index=index, records=builder.build())],
                )
            ],
        )
        version = 11 if self._version == 1 else 12
        try:
            leader = await self._client.leader_of(partition_key)
            response = await self._client.ask(leader, request, version, lane=self.name)
        except KafkaError as error:
            return error.error
        assert isinstance(response, ProduceResponse)
        return ErrorCode.of(response.responses[0].partition_responses[0].error_code)

    async def _commit_offset(self, transaction: Transaction) -> None:
        if self._version == 1:
            await self._ask_coordinator(
                AddOffsetsToTxnRequest(
                    transactional_id=self.name,
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    group_id=self.group,
                ),
                3,
            )
        partition = TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=transaction.number, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TRANSACTIONAL, partitions=[partition])],
        )
        await self._ask_coordinator(request, 3 if self._version == 1 else 5, _KEY_GROUP)
        transaction.commits_offsets = True

    async def _end(self, transaction: Transaction, *, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commits,
        )
        response = await self._ask_coordinator(request, 3 if self._version == 1 else 5)
        assert isinstance(response, EndTxnResponse)
        if self._version == 2:
            if (response.producer_id, response.producer_epoch) == (self._producer_id, self._epoch):
                self._client.problems.append(
                    f"{transaction.name} was ended without a new epoch: {response}"
                )
            self._producer_id, self._epoch = response.producer_id, response.producer_epoch
            self._sequences.clear()

    # --- zombies -------------------------------------------------------------------------------

    async def _send_as_a_zombie(
        self, producer_id: int, epoch: int, sequences: dict[PartitionKey, int]
    ) -> None:
        """Send what an older incarnation had in hand: whoever takes it lets it into the newer
        one's transaction.
        """
        client = self._client
        partition_key = (TRANSACTIONAL, client.chance.randrange(PARTITIONS))
        self._number += 1
        zombie = Transaction(f"a zombie of {self.name}", self._number)
        self._history.transactions.append(zombie)
        value = f"zombie {self.name}:{self._number}"
        zombie.attempted.add(value)
        error = await self._produce(
            partition_key, value, producer_id, epoch, sequences.get(partition_key, 0)
        )
        if error is ErrorCode.NONE:
            client.problems.append(
                f"{self.name}: a write of epoch {epoch} was accepted after epoch {self._epoch} was "
                "given out"
            )
        self.fenced_zombies += error in _FENCED

    # --- asking --------------------------------------------------------------------------------

    async def _ask_coordinator(
        self, request: Request, version: int, key_type: int = _KEY_TRANSACTION
    ) -> Response:
        """Ask until there is an answer; _BeginAnewError where there will be none."""
        client = self._client
        for attempt in range(80):
            if client.stopped and attempt > 40:
                break
            try:
                coordinator = await self._coordinator(key_type)
                response = await client.ask(coordinator, request, version, lane=self.name)
            except KafkaError as error:
                failure = error.error
            else:
                failure = _error_of(response)
                if failure is ErrorCode.NONE:
                    return response
            self._judge(failure, type(request).__name__)
            if failure is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._coordinators.pop(key_type, None)
            await pause(client.clock, 20 + 200 * client.chance.random())
        raise _BeginAnewError

    def _judge(self, error: ErrorCode, what: str) -> None:
        """Return where the same is to be tried again; _BeginAnewError where it is not."""
        if error in _TRY_AGAIN:
            return
        if error not in _FENCED:
            self._client.problems.append(f"{self.name}: {what} was answered {error.name}")
        raise _BeginAnewError

    async def _coordinator(self, key_type: int) -> BrokerId:
        if key_type not in self._coordinators:
            key = self.name if key_type == _KEY_TRANSACTION else self.group
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            response = await self._client.ask(
                self._client.any_broker(), request, 4, lane=f"find {self.name}"
            )
            assert isinstance(response, FindCoordinatorResponse)
            (found,) = response.coordinators
            if found.error_code:
                raise KafkaError(ErrorCode.of(found.error_code))
            self._coordinators[key_type] = BrokerId(found.node_id)
        return self._coordinators[key_type]


def _error_of(response: Response) -> ErrorCode:
    """Return the one error that a response has."""
    match response:
        case AddPartitionsToTxnResponse():
            (topic,) = response.results_by_topic_v3_and_below
            (partition,) = topic.results_by_partition
            return ErrorCode.of(partition.partition_error_code)
        case TxnOffsetCommitResponse():
            return ErrorCode.of(response.topics[0].partitions[0].error_code)
        case InitProducerIdResponse() | EndTxnResponse() | AddOffsetsToTxnResponse():
            return ErrorCode.of(response.error_code)
        case _:
            raise AssertionError(response)


class CommittedReader:
    """Reads one partition over and over as read_committed, each time with fetches of another
    size.
    """

    def __init__(
        self, client: Client, index: int, name: str, history: TransactionHistory, *, rack: str
    ) -> None:
        self._client = client
        self._partition_key = (TRANSACTIONAL, index)
        self._name = name
        self._history = history
        self._rack = rack
        self._near: BrokerId | None = None
        self._view = CommittedView()
        self._max_bytes = 1 << 16

    def start(self) -> None:
        """Read until the client is stopped."""
        run_client(self._client, self._run())

    async def _run(self) -> None:
        client = self._client
        while not client.stopped:
            if client.chance.random() < 0.05:
                self._view = CommittedView()
                self._max_bytes = client.chance.choice((1, 200, 1 << 16))
            try:
                await self._read()
            except KafkaError:
                self._near = None
                await client.look_again(self._partition_key)

    async def _read(self) -> None:
        client, (topic, index) = self._client, self._partition_key
        leader = await client.leader_of(self._partition_key)
        request = FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            isolation_level=1,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=index,
                            current_leader_epoch=client.epoch_of(self._partition_key),
                            fetch_offset=self._view.position,
                            partition_max_bytes=self._max_bytes,
                        )
                    ],
                )
            ],
            rack_id=self._rack,
        )
        source = leader if self._near is None else self._near
        response = await client.ask(source, request, _FETCH_VERSION, lane=self._name)
        assert isinstance(response, FetchResponse)
        data = response.responses[0].partitions[0]
        if response.error_code or data.error_code:
            raise KafkaError(ErrorCode.of(response.error_code or data.error_code))
        if data.preferred_read_replica >= 0:
            self._near = BrokerId(data.preferred_read_replica)
            return
        if not data.records:
            return
        assert isinstance(data.records, IN_MEMORY)
        aborted = [
            (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        ]
        for offset, value in self._view.take(iter_batches(data.records), aborted):
            self._history.sights.append(Sight(self._partition_key, self._name, offset, value))
