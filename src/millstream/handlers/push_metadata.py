"""PushMetadata (key 10000), version 0: the controller sends its decisions to this broker.

Served on the inter-broker listener of a broker in a cluster. The answer says that everything was
taken over, or STALE_CONTROLLER_EPOCH, STALE_BROKER_EPOCH, or UNKNOWN_TOPIC_OR_PARTITION for parts
of which the rest is not known here.
"""

from __future__ import annotations

from millstream.handlers.inter_broker import cluster_of
from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.messages.push_metadata import PushMetadataRequest, PushMetadataResponse
from millstream.runtime.metadata.metadata_messages import metadata_update
from millstream.runtime.services import Services


def handle(
    services: Services, context: RequestContext, request: PushMetadataRequest
) -> PushMetadataResponse:
    """Take over what is newer."""
    cluster_of(services).take_push(metadata_update(request))
    return PushMetadataResponse(error_code=ErrorCode.NONE.code)


def failed(
    context: RequestContext, request: PushMetadataRequest, error: KafkaError
) -> PushMetadataResponse:
    """Refuse the push."""
    return PushMetadataResponse(error_code=error.error.code)
