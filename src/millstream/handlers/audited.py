"""Handlers that are audited: what was decided about a request, and what became of it.

``audited`` puts itself around the handler of an API of which something is recorded; the others are
called as they are. It hands the handler an :class:`AuditedContext`, by which ``access_of`` knows to
answer an :class:`AuditedAccess`: that one notes each decision, also one that the authorizer has
kept. On a broker without an authorizer decisions are asked of one that allows everything, where
what is allowed is recorded.

What was denied, and every decision about a management request, is recorded once the request is
answered, with its result. The rest, which is allowed and comes in great numbers, is recorded, or
counted, where it is decided.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from millstream.handlers.access import Access
from millstream.handlers.access_rules import authorized
from millstream.handlers.request import Answer, ConnectionInfo, Handle, Reply, RequestContext
from millstream.model.acl import AclOperation, AclResource
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.runtime.audit.audit_log import AuditLog
from millstream.runtime.services import Services
from millstream.security.audit.event import (
    ANY_RESOURCE,
    NO_AUTHORIZER,
    NOT_ASKED,
    Authorization,
    JsonValue,
    Origin,
    RequestHead,
)
from millstream.security.audit.kinds import BASE_KINDS, EventKind, Outcome, kind_of, kinds_of
from millstream.security.audit.redaction import request_data, shortened
from millstream.security.audit.results import (
    AUTHORIZATION_ERRORS,
    SUCCESS,
    failure,
    result_of,
    top_error,
)
from millstream.security.authorizer import ClientDecisions, Decision

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.handlers.routes import Route

_ANY_NAME: Final = "*"
_Key = tuple[AclOperation, AclResource, str]

_DENIALS: Final = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResource.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def audited(
    audit: AuditLog,
    services: Services,
    route: Route,
    handle: Handle,
    *,
    forwarded_by: str | None = None,
) -> Handle:
    """Return the handler of an API that records; ``handle`` where nothing of it is recorded.

    ``forwarded_by`` is the broker that speaks for the client: it records what was allowed.
    """
    key = route.key
    if key not in BASE_KINDS:
        return handle
    outcomes = [Outcome.DENIED] if services.authorizer is not None else []
    if forwarded_by is None:
        outcomes.append(Outcome.ALLOWED)
    if not any(audit.records(kind, outcome) for kind in kinds_of(key) for outcome in outcomes):
        return handle
    asks = handle if services.authorizer is not None else authorized(route.rule, route.module())
    is_management = BASE_KINDS[key] is EventKind.MANAGEMENT

    def handle_audited(services: Services, context: RequestContext, request: Any) -> Reply:
        own = AuditedContext(audit, context, forwarded_by)
        try:
            reply = asks(services, own, request)
        except Exception as error:
            own.failed(request, error)
            raise
        if isinstance(reply, Response) or reply is None:
            own.answered(request, reply)
            return reply
        if isinstance(reply, Deferred):
            later = reply
            if not (is_management or own.waits):
                return later  # Produce, which decides before it waits
        else:
            later = spawn(reply)
        later.on_done(lambda settled: own.settled(request, settled))
        return later

    return handle_audited


def origin_of(
    audit: AuditLog, connection: ConnectionInfo, forwarded_by: str | None = None
) -> Origin:
    """Return who a client is and where it comes from."""
    principal, authentication = connection.principal, connection.authentication
    return audit.origin(
        str(principal),
        connection.peer_host,
        connection.peer_port,
        connection.listener,
        mechanism="" if authentication is None else authentication.mechanism,
        identifier="" if authentication is None else authentication.identifier,
        token_authenticated=principal.token_authenticated,
        forwarded_by=forwarded_by,
    )


class AuditedContext(RequestContext):
    """The envelope of a request of which something is recorded, and what was decided about it."""

    __slots__ = ("_denied", "_forwarded_by", "_noted", "_origin", "_silent", "audit")

    def __init__(self, audit: AuditLog, context: RequestContext, forwarded_by: str | None) -> None:
        super().__init__(
            context.connection,
            context.api_key,
            context.version,
            context.correlation_id,
            context.client_id,
        )
        self.audit = audit
        self._forwarded_by = forwarded_by
        self._noted: dict[_Key, Decision] = {}
        """What is recorded once the request is answered."""
        self._silent: dict[_Key, Decision] = {}
        """Denials that refuse nothing by themselves: another rule may allow it."""
        self._denied = False
        self._origin: Origin | None = None

    @property
    def waits(self) -> bool:
        """True when something is to be recorded once the request is answered."""
        return bool(self._noted) or bool(self._silent)

    def access(self, services: Services) -> Access:
        """Return what the client may do, which notes what it is asked."""
        connection = self.connection
        if services.authorizer is not None:
            from millstream.handlers.access import decisions_of

            return AuditedAccess(decisions_of(services, self), self)
        decisions = self.audit.stand_in.client(connection.principal, connection.peer_host)
        return AuditedAccess(decisions, self, NO_AUTHORIZER)

    def decided(
        self,
        key: _Key,
        decisions: ClientDecisions,
        reason: str | None,
        *,
        is_allowed: bool,
        is_told: bool,
    ) -> None:
        """Note a decision; ``reason`` is None for one that the rules explain."""
        operation, resource, name = key
        kind = kind_of(self.api_key, operation)
        outcome = Outcome.ALLOWED if is_allowed else Outcome.DENIED
        if not self.audit.records(kind, outcome):
            self._denied |= is_told and not is_allowed
            return

        def decision() -> Decision:
            if reason is not None:
                return Decision(is_allowed, reason)
            return decisions.explain(operation, resource, name)

        if not is_allowed:
            (self._noted if is_told else self._silent)[key] = decision()
            self._denied |= is_told
        elif self._forwarded_by is not None:
            return
        elif kind is EventKind.MANAGEMENT:
            self._noted[key] = decision()
        else:
            connection, client_id = self.connection, self.client_id
            # What is recorded is cut, and what is counted stays for a while.
            shown = shortened(name)
            self.audit.repeatable(
                kind,
                str(connection.principal),
                (
                    connection.peer_host,
                    connection.listener,
                    None if client_id is None else shortened(client_id),
                    self.api_key,
                    operation,
                    resource,
                    shown,
                ),
                lambda: self._event(kind, (operation, resource, shown), decision()),
            )

    def settled(self, request: Request, reply: Deferred[Answer]) -> None:
        """Record what was decided, now that the answer is there."""
        try:
            answer = reply.result()
        except Exception as error:  # dispatch answers it
            self.failed(request, error)
        else:
            self.answered(request, answer)

    def failed(self, request: Request, error: Exception) -> None:
        """Record what was decided about a request that an error refuses as a whole."""
        code = error.error if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if not isinstance(error, KafkaError) and self._denied:
            self._record(request, None, None)  # acks=0: the connection is closed
        else:
            self._record(request, None, code)

    def answered(self, request: Request, answer: Answer) -> None:
        """Record what was decided about a request that is answered."""
        self._record(request, answer, None if answer is None else top_error(answer))

    def _record(self, request: Request, answer: Answer, error: ErrorCode | None) -> None:
        if not self._denied and error in AUTHORIZATION_ERRORS and self._silent:
            key, decision = next(reversed(self._silent.items()))
            self._noted[key] = decision
        is_management = BASE_KINDS[self.api_key] is EventKind.MANAGEMENT
        if is_management and not self._denied and not self._noted:
            self._note_unasked(request, answer, error)
        for key, decision in self._noted.items():
            operation, resource, name = key
            kind = kind_of(self.api_key, operation)
            part = None if resource is AclResource.CLUSTER else name
            self.audit.authorization(
                self._event(
                    kind,
                    key,
                    decision,
                    result=_result(decision, resource, answer, error, part),
                    data=request_data(request, part) if kind is EventKind.MANAGEMENT else None,
                )
            )
        self._noted.clear()
        self._silent.clear()

    def _note_unasked(self, request: Request, answer: Answer, error: ErrorCode | None) -> None:
        """Record a management request about which no decision was recorded: that of a token's
        owner, or one that was refused before anybody asked.
        """
        is_allowed = error not in AUTHORIZATION_ERRORS
        outcome = Outcome.ALLOWED if is_allowed else Outcome.DENIED
        if (is_allowed and self._forwarded_by is not None) or not self.audit.records(
            EventKind.MANAGEMENT, outcome
        ):
            return
        resource, name = AclResource.CLUSTER, ""
        if self.api_key in _OF_TOKENS:
            resource, name = AclResource.DELEGATION_TOKEN, getattr(answer, "token_id", "")
        decision = Decision(is_allowed, NOT_ASKED)
        self.audit.authorization(
            Authorization(
                EventKind.MANAGEMENT,
                self._client(),
                self._head(),
                decision,
                None,
                resource,
                name,
                _result(decision, resource, answer, error, None),
                request_data(request, None),
            )
        )

    def _event(
        self,
        kind: EventKind,
        key: _Key,
        decision: Decision,
        *,
        result: Mapping[str, JsonValue] | None = None,
        data: JsonValue = None,
    ) -> Authorization:
        operation, resource, name = key
        return Authorization(
            kind,
            self._client(),
            self._head(),
            decision,
            operation,
            resource,
            name,
            result,
            data,
        )

    def _head(self) -> RequestHead:
        client_id = None if self.client_id is None else shortened(self.client_id)
        return RequestHead(self.api_key, self.version, self.correlation_id, client_id)

    def _client(self) -> Origin:
        if self._origin is None:
            self._origin = origin_of(self.audit, self.connection, self._forwarded_by)
        return self._origin


_OF_TOKENS: Final = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)


class AuditedAccess(Access):
    """What the client of one request may do; each decision is noted."""

    __slots__ = ("_audited", "_reason")

    def __init__(
        self, decisions: ClientDecisions, context: AuditedContext, reason: str | None = None
    ) -> None:
        super().__init__(decisions, context)
        self._audited = context
        self._reason = reason

    def allows(
        self,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        *,
        count: int = 1,
        tell_denied: bool = True,
    ) -> bool:
        """Decide about one operation on one resource, and note it."""
        is_allowed = super().allows(operation, resource, name, count=count, tell_denied=tell_denied)
        self._audited.decided(
            (operation, resource, name),
            self._decisions,
            self._reason,
            is_allowed=is_allowed,
            is_told=tell_denied,
        )
        return is_allowed

    def allows_any(self, operation: AclOperation, resource: AclResource) -> bool:
        """Decide whether there may be a resource with which the operation is allowed, and note it
        as a decision about ``*``.
        """
        is_allowed = super().allows_any(operation, resource)
        self._audited.decided(
            (operation, resource, _ANY_NAME),
            self._decisions,
            self._reason or (ANY_RESOURCE if is_allowed else None),
            is_allowed=is_allowed,
            is_told=False,
        )
        return is_allowed

    def keep_readable(self, topics: Iterable[str | TopicId]) -> None:
        """Note topics that the client may read; not while each read is recorded."""
        if not self._records(EventKind.CONSUME):
            super().keep_readable(topics)

    def keep_writable(self, topics: Iterable[str | TopicId]) -> None:
        """Note topics that the client may write; not while each write is recorded."""
        if not self._records(EventKind.PRODUCE):
            super().keep_writable(topics)

    @property
    def kept_since(self) -> object:
        """As for others; always another object while each read is recorded."""
        return object() if self._records(EventKind.CONSUME) else super().kept_since

    def _records(self, kind: EventKind) -> bool:
        return self._audited.audit.records(kind, Outcome.ALLOWED)


def _result(
    decision: Decision,
    resource: AclResource,
    answer: Answer,
    error: ErrorCode | None,
    part: str | None,
) -> Mapping[str, JsonValue]:
    """Return what became of a request, or of the part of it that a decision is about."""
    if error is not None and error is not ErrorCode.NONE:
        return failure(error)
    found = SUCCESS if answer is None else result_of(answer, part)
    if not decision.is_allowed and found is SUCCESS:
        # An answer that hides what was denied, or none at all (acks=0).
        return failure(_DENIALS[resource])
    return found
