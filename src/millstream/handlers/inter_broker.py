"""What the messages between brokers have in common, and requests that are for the controller."""

from __future__ import annotations

from typing import TypeVar

from millstream.handlers.request import RequestContext
from millstream.model.errors import ErrorCode, KafkaError
from millstream.protocol.message import Request, Response
from millstream.runtime.membership.cluster_member import ClusterMember
from millstream.runtime.services import Services

R = TypeVar("R", bound=Response)


def cluster_of(services: Services) -> ClusterMember:
    """Return this broker's part in its cluster; NOT_CONTROLLER for one that is in none."""
    if services.cluster is None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is on its own")
    return services.cluster


def is_elsewhere(services: Services) -> bool:
    """True when another broker of the cluster is the controller."""
    return services.cluster is not None and not services.controller.is_active


async def forward(
    services: Services, context: RequestContext, request: Request, answer: type[R]
) -> R:
    """Return the controller's answer to a request that clients may give to any broker.

    NOT_CONTROLLER when no controller can be reached.
    """
    assert services.cluster is not None
    try:
        response = await services.cluster.channel.forward(request, context.version)
    except KafkaError as error:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, error.message) from error
    assert isinstance(response, answer)
    return response
