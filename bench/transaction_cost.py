"""What a transaction costs inside the broker, without sockets: bytecodes, by step.

As `bench.request_cost`, for what a producer of the first protocol sends (the C client): the
partitions are added by one request, each partition gets a Produce request of its own, EndTxn
follows; then the broker writes the markers and the end into its logs. Only Millstream's own code is
counted, so the passes of the event loop do not matter. Run as ``python -m bench.transaction_cost``;
``--version-2`` has Produce 12 add the partitions and each end bump the epoch (KIP-890);
``--functions 30`` names the functions that execute most of them, for one partition.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Annotated, Any, Final, TypeVar

import typer

import millstream
from bench import wire
from bench.request_cost import InProcess, broker_in
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode
from millstream.protocol.codec import decode_response, encode_request
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from millstream.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
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
from millstream.protocol.outgoing import Outgoing
from millstream.records.builder import BatchBuilder, BatchOptions

TOPIC: Final = "transactions"
TRANSACTIONAL_ID: Final = "bench of transactions"
SETTINGS: Final = {
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
CASES: Final = (1, 10, 100)
"""Partitions of a transaction."""
COUNTED: Final = 5
WARM_UP: Final = 3
PASSES: Final = 30
"""Passes of the loop in which a broker without a disk ends what it has begun."""

_OWN_CODE: Final = os.path.dirname(millstream.__file__)
_OWN_MODULES: Final = f"{millstream.__name__}."
"""Whose code is counted: by the names of modules, for what dataclasses generate has no file."""

R = TypeVar("R", bound=Response)


@dataclass(frozen=True, slots=True)
class TransactionCost:
    """Bytecodes of one transaction, by step: those of Produce are of all its requests."""

    partitions: int
    add: float
    produce: float
    end: float
    markers: float

    @property
    def total(self) -> float:
        return self.add + self.produce + self.end + self.markers


class _Counter:
    """Counts the bytecodes of Millstream's own code by step, in what runs inside :meth:`step`."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        self.functions: dict[CodeType, int] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        executed, functions = 0, self.functions

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal executed
            if event == "call":
                if not str(frame.f_globals.get("__name__")).startswith(_OWN_MODULES):
                    return None
                frame.f_trace_opcodes, frame.f_trace_lines = True, False
            elif event == "opcode":
                executed += 1
                functions[frame.f_code] = functions.get(frame.f_code, 0) + 1
            return trace

        before = sys.gettrace()
        # From Python 3.12 on, settrace looks whether any frame wants opcodes at all.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(before)
            self.steps[name] = self.steps.get(name, 0) + executed


class _Producer:
    """A producer of one broker; it sends the next requests before it has the answers."""

    def __init__(self, broker: InProcess, *, version_2: bool) -> None:
        self._broker = broker
        self._loop = broker.loop
        self._version_2 = version_2
        self._sequences: dict[int, int] = {}
        self._producer_id = self._epoch = -1

    def begin(self, partitions: int) -> None:
        """Create the topic and take a producer id, once the coordinator is there."""
        self._broker.ask(wire.create_topic_request(TOPIC, partitions, {}))
        lookup = FindCoordinatorRequest(key="", key_type=1, coordinator_keys=[TRANSACTIONAL_ID])
        while True:
            (found,) = self._ask([lookup], 4, FindCoordinatorResponse)
            if not found.coordinators[0].error_code:
                break
        question = InitProducerIdRequest(
            transactional_id=TRANSACTIONAL_ID,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        (given,) = self._ask([question], 4, InitProducerIdResponse)
        _check(given.error_code)
        self._producer_id, self._epoch = given.producer_id, given.producer_epoch

    def transact(self, partitions: int, counter: _Counter) -> None:
        """Write one record into each partition, commit, and wait for the markers."""
        if not self._version_2:
            (added,) = self._ask(
                [self._added(partitions)], 3, AddPartitionsToTxnResponse, counter.step("add")
            )
            for topic in added.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    _check(each.partition_error_code)
        requests = [self._produced(index) for index in range(partitions)]
        version = 12 if self._version_2 else wire.PRODUCE_VERSION
        answers = self._ask(requests, version, ProduceResponse, counter.step("produce"))
        for answer in answers:
            _check(answer.responses[0].partition_responses[0].error_code)
        end = EndTxnRequest(
            transactional_id=TRANSACTIONAL_ID,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=True,
        )
        version = 5 if self._version_2 else 3
        (ended,) = self._ask([end], version, EndTxnResponse, counter.step("end"))
        _check(ended.error_code)
        with counter.step("markers"):
            self._turn(PASSES)
        if self._version_2:
            self._epoch = ended.producer_epoch
            self._sequences.clear()

    def _added(self, partitions: int) -> AddPartitionsToTxnRequest:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=TOPIC, partitions=list(range(partitions)))
            ],
        )

    def _produced(self, index: int) -> ProduceRequest:
        sequence = self._sequences.get(index, 0)
        self._sequences[index] = sequence + 1
        builder = BatchBuilder(
            BatchOptions(
                producer_id=self._producer_id,
                producer_epoch=self._epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )
        builder.append(0, None, bytes(100))
        data = PartitionProduceData(index=index, records=builder.build())
        return ProduceRequest(
            transactional_id=TRANSACTIONAL_ID,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )

    def _ask(
        self,
        requests: Iterable[Request],
        version: int,
        kind: type[R],
        counting: AbstractContextManager[None] | None = None,
    ) -> list[R]:
        frames = [memoryview(bytearray(_frame(request, version))) for request in requests]
        with counting or nullcontext():
            served = [self._broker.session.serve(frame) for frame in frames]
            later = [each for each in served if isinstance(each, Deferred)]
            self._turn_until(lambda: all(each.done for each in later))
        answers = []
        for each in served:
            answer = each.result() if isinstance(each, Deferred) else each
            assert isinstance(answer, Outgoing), "every request is answered"
            _, response = decode_response(kind.API_KEY, version, answer.join()[4:])
            assert isinstance(response, kind)
            answers.append(response)
        return answers

    def _turn_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            self._turn(1)

    def _turn(self, passes: int) -> None:
        for _ in range(passes):
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()


def measured(
    broker: InProcess,
    partitions: int,
    *,
    version_2: bool,
    functions: dict[CodeType, int] | None = None,
) -> TransactionCost:
    """Return what a transaction over so many partitions costs, on a broker of its own; add to
    ``functions`` what each function executed in `COUNTED` of them.
    """
    producer = _Producer(broker, version_2=version_2)
    producer.begin(partitions)
    for _ in range(WARM_UP):
        producer.transact(partitions, _Counter())
    counter = _Counter()
    for _ in range(COUNTED):
        producer.transact(partitions, counter)
    if functions is not None:
        functions.update(counter.functions)
    steps = {name: count / COUNTED for name, count in counter.steps.items()}
    return TransactionCost(
        partitions, steps.get("add", 0.0), steps["produce"], steps["end"], steps["markers"]
    )


def _frame(request: Request, version: int) -> bytes:
    return encode_request(request, version, 1, "bench").join()[4:]


def _check(code: int) -> None:
    if code:
        raise SystemExit(f"a request was refused: {ErrorCode.of(code).name}")


def main(
    version_2: Annotated[bool, typer.Option(help="Transactions of the second protocol.")] = False,
    functions: Annotated[
        int, typer.Option(help="How many functions to name, for one partition.", min=0)
    ] = 0,
) -> None:
    """Count what the broker executes for a transaction."""
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    print(f"{'partitions':>10}{'add':>9}{'produce':>10}{'end':>8}{'markers':>10}{'sum':>10}")
    for partitions in CASES[:1] if functions else CASES:
        counts: dict[CodeType, int] = {}
        with (
            tempfile.TemporaryDirectory(dir=place) as directory,
            broker_in(directory, SETTINGS) as broker,
        ):
            cost = measured(broker, partitions, version_2=version_2, functions=counts)
        print(
            f"{partitions:10}{cost.add:9.0f}{cost.produce:10.0f}{cost.end:8.0f}"
            f"{cost.markers:10.0f}{cost.total:10.0f}",
            flush=True,
        )
        for code, count in sorted(counts.items(), key=lambda each: -each[1])[:functions]:
            name = os.path.relpath(code.co_filename, _OWN_CODE)
            print(f"{count / COUNTED:10.0f}  {name}:{code.co_firstlineno} {code.co_qualname}")


if __name__ == "__main__":
    typer.run(main)
