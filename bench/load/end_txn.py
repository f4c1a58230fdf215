"""EndTxn from request to answer: transactions of a single connection, without records.

The client is the same for every broker: one blocking connection, AddPartitionsToTxn repeated until
the markers of the transaction before it are written, then EndTxn, whose time alone counts. Run as
``python -m bench.load.end_txn SPEC``, SPEC in JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from bench.load.c_client import WrongAnswerError
from bench.load.report import LoadReport, measured
from bench.load.transactions import TransactionSpec
from millstream.client.blocking_loop import BlockingLoop
from millstream.client.connection import Connection
from millstream.client.settings import Address, ClientSettings
from millstream.model.errors import ErrorCode
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

WARM_UP = 500
TIMEOUT_S = 60.0
VERSION = 3
"""Of the requests that the coordinator gets: the last ones of the first protocol (KIP-890)."""


def run(spec: TransactionSpec) -> LoadReport:
    """Commit the transactions and return the seconds that EndTxn has taken."""
    host, _, port = spec.bootstrap.rpartition(":")
    address = Address(host, int(port))
    connection = Connection(address, ClientSettings(bootstrap_servers=(address,)), BlockingLoop())
    transactions = _Transactions(connection, spec)
    transactions.begin()
    transactions.run(WARM_UP)
    transactions.in_commits = 0.0
    report = measured(
        spec.broker_pids,
        lambda: transactions.run(spec.transactions),
        requests=spec.transactions,
        records=0,
        moved_bytes=0,
    )
    connection.close()
    return LoadReport(**{**asdict(report), "seconds": transactions.in_commits})


class _Transactions:
    """The transactions of one id; ``in_commits`` counts the seconds of EndTxn."""

    def __init__(self, connection: Connection, spec: TransactionSpec) -> None:
        self.in_commits = 0.0
        self._connection = connection
        self._transactional_id = f"bench of {spec.topic}"
        self._topic = AddPartitionsToTxnTopic(
            name=spec.topic, partitions=list(range(spec.partitions))
        )
        self._producer_id = self._producer_epoch = -1

    def begin(self) -> None:
        """Take a producer id, once the coordinator is there."""
        _until(self._coordinator_is_there)
        _until(self._has_producer_id)

    def _coordinator_is_there(self) -> bool:
        answer = self._connection.call(
            FindCoordinatorRequest(key="", key_type=1, coordinator_keys=[self._transactional_id]),
            FindCoordinatorResponse,
        )
        return not answer.coordinators[0].error_code

    def _has_producer_id(self) -> bool:
        answer = self._connection.call(
            InitProducerIdRequest(
                transactional_id=self._transactional_id,
                transaction_timeout_ms=60_000,
                producer_id=-1,
                producer_epoch=-1,
            ),
            InitProducerIdResponse,
            version=VERSION,
        )
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
        return not answer.error_code

    def run(self, count: int) -> None:
        """Commit so many transactions."""
        for _ in range(count):
            _until(self._are_partitions_added, pause_s=0.0)
            start = time.perf_counter()
            answer = self._connection.call(
                EndTxnRequest(
                    transactional_id=self._transactional_id,
                    producer_id=self._producer_id,
                    producer_epoch=self._producer_epoch,
                    committed=True,
                ),
                EndTxnResponse,
                version=VERSION,
            )
            self.in_commits += time.perf_counter() - start
            if answer.error_code:
                raise WrongAnswerError(f"EndTxn: {ErrorCode.of(answer.error_code)}")

    def _are_partitions_added(self) -> bool:
        answer = self._connection.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._transactional_id,
                v3_and_below_producer_id=self._producer_id,
                v3_and_below_producer_epoch=self._producer_epoch,
                v3_and_below_topics=[self._topic],
            ),
            AddPartitionsToTxnResponse,
            version=VERSION,
        )
        results = answer.results_by_topic_v3_and_below[0].results_by_partition
        code = results[0].partition_error_code
        if code not in (0, ErrorCode.CONCURRENT_TRANSACTIONS.code):
            raise WrongAnswerError(f"AddPartitionsToTxn: {ErrorCode.of(code)}")
        return not code


def _until(holds: Callable[[], bool], *, pause_s: float = 0.05) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            raise WrongAnswerError("the coordinator refused for too long")
        time.sleep(pause_s)


if __name__ == "__main__":
    print(run(TransactionSpec(**json.loads(sys.argv[1]))).to_json())
