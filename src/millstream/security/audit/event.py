"""What happened: the events that the audit log is told of, before they are records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from millstream.model.acl import AclOperation, AclResource
from millstream.security.audit.kinds import EventKind, Outcome
from millstream.security.authorizer import Decision

JsonValue: TypeAlias = "str | int | float | bool | list[JsonValue] | Mapping[str, JsonValue] | None"

NO_AUTHORIZER = "NoAuthorizer"
"""The reason of a decision on a broker without an authorizer: everybody may do everything."""
NOT_ASKED = "NotAsked"
"""The reason of an outcome that no rule decides: that of a token's owner, or of a request that was
refused before anybody asked."""
ANY_RESOURCE = "AnyResource"
"""The reason of a decision that some rule about any resource of the type is enough for."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A time on both clocks, in milliseconds."""

    wall_ms: int
    monotonic_ms: float


@dataclass(frozen=True, slots=True)
class Origin:
    """Who a client is, and where it comes from. ``mechanism`` is empty for a listener on which
    nobody authenticates; ``identifier`` is the name with which the client authenticated, or tried
    to: that of a token for one that uses a token. ``forwarded_by`` is the broker that speaks for
    the client.
    """

    principal: str
    address: str
    port: int
    listener: str
    protocol: str
    mechanism: str = ""
    identifier: str = ""
    token_authenticated: bool = False
    forwarded_by: str | None = None


@dataclass(frozen=True, slots=True)
class Authentication:
    """An authentication that ended, or the session of one."""

    origin: Origin
    outcome: Outcome
    reason: str = ""
    """Why it failed, for the operator."""
    is_again: bool = False
    """True for a client that was authenticated already (KIP-368)."""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """Which request asked."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


@dataclass(frozen=True, slots=True)
class Authorization:
    """A decision about one operation on one resource, and what became of the request."""

    kind: EventKind
    origin: Origin
    request: RequestHead
    decision: Decision
    operation: AclOperation | None
    resource: AclResource
    name: str
    result: Mapping[str, JsonValue] | None = None
    """See ``results``; None where the request was not waited for."""
    data: JsonValue = None
    """What was asked for, see ``redaction``; None where that is not recorded."""

    @property
    def outcome(self) -> Outcome:
        """Whether it was allowed."""
        return Outcome.ALLOWED if self.decision.is_allowed else Outcome.DENIED
