"""A transactional producer for scenarios, of either generation."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.session import Answer, Session

TRANSACTIONAL = 0x10
CONCURRENT_TRANSACTIONS = 51
LATER = (14, 15, 16, CONCURRENT_TRANSACTIONS)
"""Errors that pass: of coordinators, and of a transaction that is being ended."""
TIMEOUT_MS = 60_000


class Transactor:
    """A transactional id, and the producer id and epoch that it has now.

    Transaction version 1 adds partitions itself; version 2 has Produce add them and takes a new
    epoch from every EndTxn.
    """

    def __init__(self, s: Session, label: str = "x", *, version: int = 1) -> None:
        self.s = s
        self.name = s.name(label)
        self.version = version
        self.producer_id = self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        s.until(
            lambda answer: answer["error_code"] == 0,
            "FindCoordinator",
            1,
            key=self.name,
            key_type=1,
        )

    # Requests

    def init_fields(self, **more: Any) -> dict[str, Any]:
        """Return the fields of InitProducerId for a new incarnation."""
        fields = {"transactional_id": self.name, "transaction_timeout_ms": TIMEOUT_MS}
        return fields | {"producer_id": -1, "producer_epoch": -1} | more

    def begin(self) -> Transactor:
        """Take a producer id and epoch, quietly."""
        answer = self.s.until(
            lambda each: each["error_code"] not in LATER,
            "InitProducerId",
            5,
            **self.init_fields(),
        )
        assert answer["error_code"] == 0, answer
        self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        self._sequences.clear()
        return self

    def identity(self, **more: Any) -> dict[str, Any]:
        """Return the fields that say who this producer is."""
        return {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        } | more

    def partition_fields(self, version: int, *topics: tuple[str, list[int]]) -> dict[str, Any]:
        """Return the fields of AddPartitionsToTxn of this version."""
        named = [{"name": topic, "partitions": indexes} for topic, indexes in topics]
        if version >= 4:
            return {"transactions": [self.identity(topics=named, verify_only=False)]}
        return {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self.producer_id,
            "v3_and_below_producer_epoch": self.epoch,
            "v3_and_below_topics": named,
        }

    def add(self, topic: str, *indexes: int) -> None:
        """Add partitions to the transaction, quietly."""

        def is_added(answer: Answer) -> bool:
            (result,) = answer["results_by_topic_v3_and_below"]
            codes = {each["partition_error_code"] for each in result["results_by_partition"]}
            return codes == {0}

        fields = self.partition_fields(3, (topic, list(indexes or (0,))))
        self.s.until(is_added, "AddPartitionsToTxn", 3, **fields)

    def batch(self, topic: str, *values: str, index: int = 0, **fields: Any) -> bytes:
        """Return the next batch of a partition."""
        sequence = self._sequences.get((topic, index), 0)
        self._sequences[topic, index] = sequence + len(values)
        return batch(
            *values,
            **{
                "attributes": TRANSACTIONAL,
                "producer_id": self.producer_id,
                "producer_epoch": self.epoch,
                "base_sequence": sequence,
            }
            | fields,
        )

    def produce_fields(self, topic: str, records: bytes, index: int = 0) -> dict[str, Any]:
        """Return the fields of a Produce request for one partition."""
        return self.s.produce_fields(
            [(topic, index, records)], version=self.produce_version, transactional_id=self.name
        )

    @property
    def produce_version(self) -> int:
        """The version that speaks for this generation."""
        return 11 if self.version == 1 else 12

    def write(self, topic: str, *values: str, index: int = 0) -> None:
        """Write a batch, quietly; it must be accepted."""
        if self.version == 1:
            self.add(topic, index)
        fields = self.produce_fields(topic, self.batch(topic, *values, index=index), index)
        self.s.until(
            lambda answer: answer["responses"][0]["partition_responses"][0]["error_code"] == 0,
            "Produce",
            self.produce_version,
            **fields,
        )

    def end(self, *, commit: bool = True) -> None:
        """End the transaction, quietly, and wait until all markers are written."""
        version = 3 if self.version == 1 else 5
        answer = self.s.until(
            lambda each: each["error_code"] != CONCURRENT_TRANSACTIONS,
            "EndTxn",
            version,
            **self.identity(committed=commit),
        )
        assert answer["error_code"] == 0, answer
        if self.version == 2:
            self.producer_id, self.epoch = answer["producer_id"], answer["producer_epoch"]
            self._sequences.clear()
        self.await_state("CompleteCommit" if commit else "CompleteAbort")

    def await_state(self, state: str) -> None:
        """Wait until the coordinator says that the transaction is in a state."""
        self.s.until(
            lambda answer: answer["transaction_states"][0]["transaction_state"] == state,
            "DescribeTransactions",
            0,
            transactional_ids=[self.name],
        )

    def offset_fields(self, group: str, topic: str, offset: int = 7, **more: Any) -> dict[str, Any]:
        """Return the fields of TxnOffsetCommit for one partition."""
        part = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": "note",
        }
        return (
            self.identity(
                group_id=group,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=[{"name": topic, "partitions": [part]}],
            )
            | more
        )

    def await_group(self, group: str) -> None:
        """Wait until the group's coordinator answers."""
        self.s.until(
            lambda answer: answer["error_code"] == 0,
            "FindCoordinator",
            1,
            key=group,
            key_type=0,
        )
        self.s.until(
            lambda answer: answer["error_code"] == 0,
            "OffsetFetch",
            5,
            group_id=group,
            topics=None,
        )


BOTH = {"version_1": 1, "version_2": 2}
"""Cases: both generations of transactions."""
ENDS = {"committed": True, "aborted": False}
"""Cases: both ends of a transaction."""
