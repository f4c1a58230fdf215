"""Delegation tokens (KIP-48)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.client.core.admin.outcome import refusal
from millstream.client.core.admin.routing import Routing
from millstream.model.errors import ErrorCode
from millstream.model.principal import KafkaPrincipal, parse_principal
from millstream.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from millstream.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from millstream.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from millstream.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token; times in milliseconds since 1970. ``hmac`` is its secret: in base64 it is the
    password of SCRAM, and ``token_id`` the user name.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...] = ()
    issued_ms: int
    expires_ms: int
    """Until when it holds, unless it is renewed."""
    max_ms: int
    """Until when it may be renewed."""


class DelegationTokens(Routing):
    """Operations on delegation tokens; principals are texts such as ``User:ann``."""

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int | None = None,
    ) -> DelegationToken:
        """Create a token of this client's user, or of another one, which needs CreateTokens.

        ``max_lifetime_ms`` may make its time shorter than the broker's. BrokerError where it is
        refused, ValueError for a text that is no principal.
        """
        of = None if owner is None else parse_principal(owner)
        renewing = [parse_principal(each) for each in renewers]
        request = CreateDelegationTokenRequest(
            owner_principal_type=None if of is None else of.type,
            owner_principal_name=None if of is None else of.name,
            renewers=[
                CreatableRenewers(principal_type=each.type, principal_name=each.name)
                for each in renewing
            ],
            max_lifetime_ms=-1 if max_lifetime_ms is None else max_lifetime_ms,
        )
        answer = await self.ask_any(request, CreateDelegationTokenResponse)
        _raise(answer.error_code)
        made_for = str(KafkaPrincipal(answer.principal_type, answer.principal_name))
        asked_by = answer.token_requester_principal_name
        return DelegationToken(
            token_id=answer.token_id,
            hmac=bytes(answer.hmac),
            owner=made_for,
            requester=f"{answer.token_requester_principal_type}:{asked_by}"
            if asked_by
            else made_for,
            renewers=tuple(map(str, renewing)),
            issued_ms=answer.issue_timestamp_ms,
            expires_ms=answer.expiry_timestamp_ms,
            max_ms=answer.max_timestamp_ms,
        )

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """Let a token hold longer; return until when, in milliseconds since 1970. BrokerError where
        it is refused.
        """
        request = RenewDelegationTokenRequest(
            hmac=hmac, renew_period_ms=-1 if period_ms is None else period_ms
        )
        answer = await self.ask_any(request, RenewDelegationTokenResponse)
        _raise(answer.error_code)
        return answer.expiry_timestamp_ms

    async def expire_delegation_token(self, hmac: bytes, *, period_ms: int | None = None) -> int:
        """End a token, now or in ``period_ms``; return when it ends, below 0 for at once.
        BrokerError where it is refused.
        """
        request = ExpireDelegationTokenRequest(
            hmac=hmac, expiry_time_period_ms=-1 if period_ms is None else period_ms
        )
        answer = await self.ask_any(request, ExpireDelegationTokenResponse)
        _raise(answer.error_code)
        return answer.expiry_timestamp_ms

    async def describe_delegation_tokens(
        self, owners: Sequence[str] | None = None
    ) -> list[DelegationToken]:
        """Return the tokens that this client may see, or of these those that somebody of ``owners``
        owns or may renew.
        """
        named = None if owners is None else [parse_principal(each) for each in owners]
        request = DescribeDelegationTokenRequest(
            owners=None
            if named is None
            else [
                DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name)
                for each in named
            ]
        )
        answer = await self.ask_any(request, DescribeDelegationTokenResponse)
        _raise(answer.error_code)
        return [
            DelegationToken(
                token_id=each.token_id,
                hmac=bytes(each.hmac),
                owner=f"{each.principal_type}:{each.principal_name}",
                requester=f"{each.token_requester_principal_type or each.principal_type}:"
                f"{each.token_requester_principal_name or each.principal_name}",
                renewers=tuple(
                    f"{renewer.principal_type}:{renewer.principal_name}"
                    for renewer in each.renewers
                ),
                issued_ms=each.issue_timestamp,
                expires_ms=each.expiry_timestamp,
                max_ms=each.max_timestamp,
            )
            for each in answer.tokens
        ]


_WHY: Final = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers have no delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "the user must be authenticated, but not with a token"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "a token for another user needs CreateTokens on that user"
    ),
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only its owner and its renewers may do that",
    ErrorCode.POLICY_VIOLATION: "this user has as many tokens as the brokers allow",
}
"""What the answers leave out, which have a code and no words."""


def _raise(code: int) -> None:
    error = refusal(code, _WHY.get(ErrorCode.of(code)), "a delegation token")
    if error is not None:
        raise error
