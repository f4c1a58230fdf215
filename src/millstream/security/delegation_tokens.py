"""Delegation tokens (KIP-48, KIP-373): who may create, renew and end them, and what is stored.

A token is an id and ``HMAC-SHA-512(delegation.token.secret.key, id)``. Its holder authenticates
with SCRAM, the id as the user name and the HMAC in base64 as the password, and is the token's
owner. The HMAC is stored nowhere. An entity of kind DELEGATION_TOKEN has the fields of Kafka's JSON
in ZooKeeper. Kafka: ``DelegationTokenControlManager``.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from millstream.model.entities import EntityValue
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.principal import ANONYMOUS, USER, KafkaPrincipal, parse_principal

NO_TIME_MS: Final = -1
"""The time in an answer that refuses."""

MAX_RENEWERS: Final = 1000

MAX_TOKENS: Final = 1000
"""Tokens that one principal owns, and that one asks for. Every broker keeps all tokens in memory,
some 2 KiB for one with few renewers, and they are made without any right.
"""
MAX_RENEWERS_SIZE: Final = 1 << 20
"""Characters of the renewers of all these tokens together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token; times in milliseconds since 1970."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def has_expired(self, now_ms: int) -> bool:
        """Tell whether the token holds no longer."""
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def is_of(self, principal: KafkaPrincipal) -> bool:
        """Tell whether a principal owns the token or may renew it."""
        return principal == self.owner or principal in self.renewers

    def may_be_seen_by(self, principal: KafkaPrincipal) -> bool:
        """Tell whether a principal owns the token, may renew it, or has asked for it (Kafka:
        ``TokenInformation.ownerOrRenewer``).
        """
        return principal == self.requester or self.is_of(principal)


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """`delegation.token.max.lifetime.ms` and `delegation.token.expiry.time.ms`."""

    max_lifetime_ms: int
    renewal_ms: int


def token_hmac(secret: str, token_id: str) -> bytes:
    """Return the HMAC of a token."""
    return hmac.digest(secret.encode(), token_id.encode(), "sha512")


def token_password(token: bytes) -> str:
    """Return the password that a token's HMAC is for SCRAM."""
    return base64.b64encode(token).decode()


def write_token(token: DelegationToken) -> EntityValue:
    """Return the entity of a token."""
    return {
        "owner": str(token.owner),
        "tokenRequester": str(token.requester),
        "renewers": json.dumps([str(each) for each in token.renewers], separators=(",", ":")),
        "issueTimestamp": str(token.issued_ms),
        "maxTimestamp": str(token.max_ms),
        "expiryTimestamp": str(token.expires_ms),
        "tokenId": token.token_id,
    }


def read_token(value: EntityValue) -> DelegationToken:
    """Read an entity; ValueError for one that is no token."""
    try:
        owner = parse_principal(value["owner"])
        return DelegationToken(
            token_id=value["tokenId"],
            owner=owner,
            requester=parse_principal(value.get("tokenRequester", value["owner"])),
            renewers=tuple(parse_principal(each) for each in json.loads(value["renewers"])),
            issued_ms=int(value["issueTimestamp"]),
            expires_ms=int(value["expiryTimestamp"]),
            max_ms=int(value["maxTimestamp"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("not a delegation token") from error


def check_may_ask(principal: KafkaPrincipal) -> None:
    """Raise DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for one who has not authenticated, or with a token
    (Kafka: ``KafkaApis.allowTokenRequests``).
    """
    if principal.token_authenticated or principal == ANONYMOUS:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)


def new_token(
    token_id: str,
    *,
    owner: KafkaPrincipal,
    requester: KafkaPrincipal,
    renewers: Iterable[KafkaPrincipal],
    max_lifetime_ms: int,
    times: TokenTimes,
    now_ms: int,
) -> DelegationToken:
    """Return a new token; ``max_lifetime_ms`` is what the client wants, 0 or less what the broker
    gives. INVALID_PRINCIPAL_TYPE for a renewer who is no user.
    """
    renewers = tuple(renewers)
    if any(each.type != USER for each in renewers):
        raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    if len(renewers) > MAX_RENEWERS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"a token has no more than {MAX_RENEWERS} renewers"
        )
    lifetime_ms = times.max_lifetime_ms
    if max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, max_lifetime_ms)
    max_ms = now_ms + lifetime_ms
    return DelegationToken(
        token_id=token_id,
        owner=owner,
        requester=requester,
        renewers=renewers,
        issued_ms=now_ms,
        expires_ms=min(max_ms, now_ms + times.renewal_ms),
        max_ms=max_ms,
    )


def check_room(token: DelegationToken, present: Iterable[EntityValue]) -> None:
    """Raise POLICY_VIOLATION where the owner of a new token, or who asks for it, has as many tokens
    as one may have. Kafka has no such limit.
    """
    owner, requester = str(token.owner), str(token.requester)
    new = len(write_token(token)["renewers"])
    owned = asked = 0
    size_owned = size_asked = new
    for value in present:
        size = len(value.get("renewers", ""))
        if value.get("owner") == owner:
            owned += 1
            size_owned += size
        if value.get("tokenRequester") == requester:
            asked += 1
            size_asked += size
    if max(owned, asked) >= MAX_TOKENS or max(size_owned, size_asked) > MAX_RENEWERS_SIZE:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"nobody has more than {MAX_TOKENS} delegation tokens, nor renewers of more than "
            f"{MAX_RENEWERS_SIZE} characters",
        )


def renewed(
    token: DelegationToken,
    principal: KafkaPrincipal,
    *,
    period_ms: int,
    times: TokenTimes,
    now_ms: int,
) -> DelegationToken:
    """Return a token that holds longer, by ``period_ms`` or, at 0 or less, what the broker gives.

    KafkaError: DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH.
    """
    _check_changeable(token, principal, now_ms)
    if period_ms <= 0:
        period_ms = times.renewal_ms
    expires_ms = now_ms + min(times.renewal_ms, period_ms)
    return replace(token, expires_ms=min(token.max_ms, expires_ms))


def ended(
    token: DelegationToken, principal: KafkaPrincipal, *, period_ms: int, now_ms: int
) -> DelegationToken | None:
    """Return a token that ends in ``period_ms``; None where it ends now, below 0.

    KafkaError: DELEGATION_TOKEN_EXPIRED, DELEGATION_TOKEN_OWNER_MISMATCH.
    """
    _check_changeable(token, principal, now_ms)
    if period_ms < 0:
        return None
    return replace(token, expires_ms=min(token.max_ms, now_ms + period_ms))


def _check_changeable(token: DelegationToken, principal: KafkaPrincipal, now_ms: int) -> None:
    if token.has_expired(now_ms):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    if not token.is_of(principal):
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


class TokenIds:
    """Finds tokens by their HMAC, which is computed once for each."""

    __slots__ = ("_ids", "_known", "_secret")

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._known: dict[str, bytes] = {}
        self._ids: dict[bytes, str] = {}

    def find(self, wanted: bytes, present: Mapping[str, EntityValue]) -> str:
        """Return the key of the token that an HMAC is of; DELEGATION_TOKEN_NOT_FOUND for none."""
        for key in self._known.keys() - present.keys():
            del self._ids[self._known.pop(key)]
        for key in present.keys() - self._known.keys():
            computed = token_hmac(self._secret, present[key].get("tokenId", ""))
            self._known[key] = computed
            self._ids[computed] = key
        found = self._ids.get(wanted)
        if found is None or not hmac.compare_digest(self._known[found], wanted):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return found


def expired_tokens(present: Mapping[str, EntityValue], now_ms: int) -> dict[str, None]:
    """Return the changes that delete the tokens that hold no longer, and what is no token."""
    return {key: None for key, value in present.items() if _is_over(value, now_ms)}


def _is_over(value: EntityValue, now_ms: int) -> bool:
    try:
        return read_token(value).has_expired(now_ms)
    except ValueError:
        return True
