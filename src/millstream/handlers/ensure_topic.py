"""EnsureTopic (key 10003), version 0: a broker has the controller create a topic that it needs."""

from __future__ import annotations

from millstream.controller.isr_changes import check_sender
from millstream.handlers.inter_broker import cluster_of
from millstream.handlers.request import RequestContext
from millstream.model.broker import BrokerId
from millstream.model.errors import KafkaError
from millstream.protocol.messages.ensure_topic import EnsureTopicRequest, EnsureTopicResponse
from millstream.runtime.metadata.metadata_messages import topic_message
from millstream.runtime.services import Services


async def handle(
    services: Services, context: RequestContext, request: EnsureTopicRequest
) -> EnsureTopicResponse:
    """Create the topic if it does not exist, and return its state."""
    cluster_of(services)
    controller = services.controller
    controller.check_active()
    check_sender(controller.context, BrokerId(request.broker_id), request.broker_epoch)
    await controller.topics.ensure_topic(request.name)
    controller.check_active()
    topic = controller.context.topics[request.name]
    return EnsureTopicResponse(
        controller_epoch=controller.context.controller_epoch,
        topic=topic_message(topic, None, created=True),
    )


def failed(
    context: RequestContext, request: EnsureTopicRequest, error: KafkaError
) -> EnsureTopicResponse:
    """Refuse the request."""
    return EnsureTopicResponse(error_code=error.error.code, error_message=error.message)
