"""What the client of a request may do, and the log of what it was refused.

A handler asks ``access_of(services, context)`` and is given None where nothing is to be checked: no
authorizer is configured, or the request comes from this broker itself. Otherwise it asks the Access
about each resource that it touches, and answers what it refuses as Kafka does. Which operation is
asked for is Kafka's too (``KafkaApis``, ``ControllerApis``); which API is checked where, see
``access_rules``.

Refusals are logged at INFO by ``kafka.authorizer.logger``, what is allowed at DEBUG (Kafka:
``StandardAuthorizerData.buildAuditMessage``).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from millstream.handlers.request import Answer, Reply, RequestContext
from millstream.model.acl import CLUSTER_NAME, AclOperation, AclResource
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import ZERO_TOPIC_ID, TopicId
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Response
from millstream.runtime.services import Services

if TYPE_CHECKING:  # a broker without an authorizer loads nothing of it
    from millstream.security.authorizer import ClientDecisions

log = logging.getLogger("kafka.authorizer.logger")

T = TypeVar("T")

_MAX_LOGGED: Final = 300
"""How many characters of a name are logged: a request may name thousands of any length."""

_RESOURCE_NAMES: Final = {
    each: each.name.title().replace("_", "")  # TransactionalId
    for each in AclResource
}


def decisions_of(services: Services, context: RequestContext) -> ClientDecisions:
    """Return the decisions about the client of a connection, which are kept with it. There must be
    an authorizer.
    """
    connection = context.connection
    decisions = connection.decisions
    if decisions is None or decisions.principal is not connection.principal:
        authorizer = services.authorizer
        assert authorizer is not None
        decisions = authorizer.client(connection.principal, connection.peer_host)
        connection.decisions = decisions
        connection.readable, connection.writable = decisions.readable, decisions.writable
    return decisions


def access_of(services: Services, context: RequestContext) -> Access | None:
    """Return what the client may do; None where nothing is checked, nor recorded."""
    if type(context) is not RequestContext:
        return context.access(services)
    if services.authorizer is None or context.connection.is_own:
        return None
    return Access(decisions_of(services, context), context)


def with_added(reply: Reply, add: Callable[[Any], None]) -> Reply:
    """Return the reply with what ``add`` puts into its response, now or once it is there."""
    if isinstance(reply, Response):
        add(reply)
        return reply
    if reply is None:
        return None

    async def added() -> Answer:
        answer = await (reply if isinstance(reply, Deferred) else spawn(reply))
        if answer is not None:
            add(answer)
        return answer

    return added()


def topic_name(services: Services, name: str, topic_id: TopicId) -> str | None:
    """Return the name of a topic that a request names by one of both; None for an unknown id."""
    if topic_id == ZERO_TOPIC_ID:
        return name
    image = services.metadata.topic_by_id(topic_id)
    return None if image is None else image.name


class Access:
    """What the client of one request may do. ``tell_denied`` is false where a refusal refuses
    nothing that was asked for: the client gets less to see, or another rule may allow it.
    """

    __slots__ = ("_context", "_decisions")

    def __init__(self, decisions: ClientDecisions, context: RequestContext) -> None:
        self._decisions = decisions
        self._context = context

    def allows(
        self,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        *,
        count: int = 1,
        tell_denied: bool = True,
    ) -> bool:
        """Decide about one operation on one resource, which the request names ``count`` times."""
        is_allowed = bool(self._decisions.operations(resource, name) >> operation & 1)
        if is_allowed:
            if log.isEnabledFor(logging.DEBUG):
                self._tell(logging.DEBUG, operation, resource, name, count)
        elif tell_denied:
            self._tell(logging.INFO, operation, resource, name, count)
        return is_allowed

    def on_cluster(self, operation: AclOperation, *, tell_denied: bool = True) -> bool:
        """Decide about one operation on the cluster."""
        return self.allows(operation, AclResource.CLUSTER, CLUSTER_NAME, tell_denied=tell_denied)

    def require_on_cluster(self, operation: AclOperation) -> None:
        """Raise CLUSTER_AUTHORIZATION_FAILED unless the operation is allowed."""
        if not self.on_cluster(operation):
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"Request {ApiKey(self._context.api_key).name} needs {operation.name} permission.",
            )

    def allowed_names(
        self,
        operation: AclOperation,
        resource: AclResource,
        names: Iterable[str],
        *,
        tell_denied: bool = True,
    ) -> frozenset[str]:
        """Return the names of those resources with which the operation is allowed."""
        return frozenset(
            name
            for name, count in Counter(names).items()
            if self.allows(operation, resource, name, count=count, tell_denied=tell_denied)
        )

    def split(
        self,
        operation: AclOperation,
        resource: AclResource,
        items: Sequence[T],
        name_of: Callable[[T], str],
        *,
        tell_denied: bool = True,
    ) -> tuple[list[T], list[T]]:
        """Return the items whose resources the operation is allowed with, and the others."""
        names = self.allowed_names(
            operation, resource, map(name_of, items), tell_denied=tell_denied
        )
        allowed = [item for item in items if name_of(item) in names]
        return allowed, [item for item in items if name_of(item) not in names]

    def allows_any(self, operation: AclOperation, resource: AclResource) -> bool:
        """Decide whether there may be a resource with which the operation is allowed."""
        return self._decisions.allows_any(operation, resource)

    def operations(self, resource: AclResource, name: str) -> int:
        """Return the operations on a resource that are allowed, as bits."""
        return self._decisions.operations(resource, name)

    def keep_readable(self, topics: Iterable[str | TopicId]) -> None:
        """Note topics, by name or id, that the client may read; not while that is logged."""
        if not log.isEnabledFor(logging.DEBUG):
            self._decisions.keep_readable(topics)

    def keep_writable(self, topics: Iterable[str | TopicId]) -> None:
        """Note topics, by name or id, that the client may write; not while that is logged."""
        if not log.isEnabledFor(logging.DEBUG):
            self._decisions.keep_writable(topics)

    @property
    def kept_since(self) -> object:
        """An object that is another one once the decisions were forgotten."""
        return self._decisions.kept_since

    def _tell(
        self, level: int, operation: AclOperation, resource: AclResource, name: str, count: int
    ) -> None:
        decisions = self._decisions
        decision = decisions.explain(operation, resource, name)
        # What a client has chosen is logged with its line breaks escaped.
        log.log(
            level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for "
            "request = %s with resourceRefCount = %d based on rule %s",
            _one_line(str(decisions.principal)),
            "Allowed" if decision.is_allowed else "Denied",
            operation.name,
            decisions.host,
            _RESOURCE_NAMES[resource],
            _one_line(name),
            ApiKey(self._context.api_key).name.title().replace("_", ""),
            count,
            _one_line(str(decision)),
        )


def _one_line(text: str) -> str:
    if len(text) > _MAX_LOGGED:
        text = f"{text[:_MAX_LOGGED]}..."
    return text if text.isprintable() else text.encode("unicode_escape").decode()
