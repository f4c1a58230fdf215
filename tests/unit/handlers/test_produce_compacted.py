"""Produce to a compacted topic: what cannot be kept by key is refused, record by record."""

from __future__ import annotations

import pytest
from tests.unit.handlers.admin_broker import AdminBroker
from tests.unit.storage.cleaning_support import Pair, keyed_batch

from millstream.model.errors import ErrorCode
from millstream.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from millstream.records.compression import Codec


def produce(
    broker: AdminBroker, *pairs: Pair, codec: Codec = Codec.NONE, version: int = 9
) -> PartitionProduceResponse:
    times = [broker.clock.now_ms()] * len(pairs)
    records = bytes(keyed_batch(pairs, timestamps=times, codec=codec).buffer)
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name="t", partition_data=[PartitionProduceData(index=0, records=records)]
            )
        ],
    )
    answer = broker.call(request, version, ProduceResponse)
    return answer.responses[0].partition_responses[0]


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_records_without_a_key_are_named(broker: AdminBroker, policy: str, codec: Codec) -> None:
    broker.create("t", 1, cleanup_policy=policy)
    refused = produce(broker, (b"k", b"1"), (None, b"2"), (b"", b"3"), (None, None), codec=codec)
    assert refused.error_code == ErrorCode.INVALID_RECORD.code
    assert [error.batch_index for error in refused.record_errors] == [1, 3]
    assert all(error.batch_index_error_message for error in refused.record_errors)
    assert broker.partitions.get("t", 0).log.log_end_offset == 0
    accepted = produce(broker, (b"k", b"1"), (b"", b"3"), (b"gone", None), codec=codec)
    assert (accepted.error_code, accepted.base_offset) == (0, 0)


def test_a_topic_that_only_deletes_takes_them(broker: AdminBroker) -> None:
    broker.create("t", 1)
    assert produce(broker, (None, b"2")).error_code == 0
