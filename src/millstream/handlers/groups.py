"""What the handlers of the group requests share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from millstream.coordinator.group.join_group import Caller
from millstream.handlers.access import Access, access_of
from millstream.handlers.request import RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.features import GROUP_VERSION, SHARE_VERSION
from millstream.runtime.services import Services


class DescribedGroup(Protocol):
    """A group in an answer that describes it."""

    group_id: str


G = TypeVar("G", bound=DescribedGroup)


def caller(context: RequestContext) -> Caller:
    """Return the address of the client, as groups store it (Kafka: ``InetAddress.toString``)."""
    return Caller(context.client_id or "", f"/{context.connection.peer_host}", context.version)


def subscriber(services: Services, context: RequestContext) -> Caller:
    """Return the same, with which topics the client may know of."""
    address = caller(context)
    access = access_of(services, context)
    if access is None:
        return address
    return replace(
        address,
        describable=partial(
            access.allowed_names, AclOperation.DESCRIBE, AclResource.TOPIC, tell_denied=False
        ),
    )


def check_member_access(
    services: Services,
    context: RequestContext,
    group_id: str,
    subscribed_topics: Iterable[str] | None,
) -> None:
    """Raise GROUP_AUTHORIZATION_FAILED for a member that may not READ the group,
    TOPIC_AUTHORIZATION_FAILED for one that subscribes to a topic that it may not DESCRIBE.
    """
    access = access_of(services, context)
    if access is None:
        return
    if not access.allows(AclOperation.READ, AclResource.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    topics = frozenset(subscribed_topics or ())
    if access.allowed_names(AclOperation.DESCRIBE, AclResource.TOPIC, topics) != topics:
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def describable_groups(
    access: Access | None, group_ids: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the groups that the client may DESCRIBE, and the others."""
    if access is None:
        return group_ids, ()
    return access.split(AclOperation.DESCRIBE, AclResource.GROUP, group_ids, str)


def hide_groups(
    access: Access | None,
    groups: Sequence[G],
    topics_of: Callable[[G], Set[str]],
    refused: Callable[[str, KafkaError], G],
) -> list[G]:
    """Return described groups, with those refused whose members have topics that the client may
    not DESCRIBE (Kafka: ``KafkaApis.handleConsumerGroupDescribe``).
    """
    if access is None:
        return list(groups)
    assigned = [(group, topics_of(group)) for group in groups]
    names = {name for _, topics in assigned for name in topics}
    allowed = access.allowed_names(AclOperation.DESCRIBE, AclResource.TOPIC, names)
    error = KafkaError(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "The group has described topic(s) that the client is not authorized to describe.",
    )
    return [
        group if topics <= allowed else refused(group.group_id, error) for group, topics in assigned
    ]


def require_consumer_protocol(services: Services) -> None:
    """Raise UNSUPPORTED_VERSION unless the cluster has switched the consumer protocol on (Kafka:
    ``KafkaApis.isConsumerGroupProtocolEnabled``).
    """
    protocols = services.config.current.group_coordinator_rebalance_protocols
    if "consumer" not in protocols or services.metadata.features.level(GROUP_VERSION) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)


def require_share_groups(services: Services) -> None:
    """Raise UNSUPPORTED_VERSION unless the cluster has switched share groups on (Kafka:
    ``KafkaApis.isShareGroupProtocolEnabled``).
    """
    if services.metadata.features.level(SHARE_VERSION) < 1:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
