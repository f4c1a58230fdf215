"""WriteAuditLog (key 10009), version 0: a broker appends to a partition of ``__audit_log``.

Served by the leader of the partition, to this broker itself and on the listener of brokers, with
ClusterAction. It is answered once the records are committed, as with acks=all, and with
REQUEST_TIMED_OUT after ``timeout_ms``: they may be committed yet. What it appends is not audited.
"""

from __future__ import annotations

from millstream.handlers.request import RequestContext
from millstream.model.errors import CorruptLogError, ErrorCode, KafkaError
from millstream.model.topic import AUDIT_LOG_TOPIC
from millstream.protocol.messages.write_audit_log import (
    WriteAuditLogRequest,
    WriteAuditLogResponse,
)
from millstream.records.batch import Batch, header_at
from millstream.runtime.pauses import at_most
from millstream.runtime.replicas.committed_appends import append_internal
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: WriteAuditLogRequest
) -> WriteAuditLogResponse:
    """Append, and wait until it is committed."""
    partition = services.partitions.get(AUDIT_LOG_TOPIC, request.partition_index)
    refusal = partition.refusal_to_write(-1)
    if refusal is not None:
        raise refusal
    try:
        is_whole = header_at(request.records).size == len(request.records)
        Batch(memoryview(request.records)).ensure_valid()
    except CorruptLogError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE) from error
    if not is_whole:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
    appended = append_internal(partition, request.records)
    if await at_most(services.clock, appended, request.timeout_ms) is None:
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    return WriteAuditLogResponse()


def failed(
    context: RequestContext, request: WriteAuditLogRequest, error: KafkaError
) -> WriteAuditLogResponse:
    """Refuse the records."""
    return WriteAuditLogResponse(error_code=error.error.code, error_message=error.message)
