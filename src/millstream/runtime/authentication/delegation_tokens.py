"""The delegation tokens that this broker knows, and the deletion of those that have expired."""

from __future__ import annotations

import logging
from typing import Final

from millstream.config.dynamic import DynamicConfig
from millstream.model.clock import Clock, TimerHandle
from millstream.model.deferred import Deferred
from millstream.model.entities import EntitiesView, EntityKind
from millstream.model.entity_keys import name_key
from millstream.model.errors import ErrorCode, KafkaError
from millstream.runtime.controlling.controller import Controller
from millstream.security.delegation_tokens import (
    DelegationToken,
    TokenIds,
    TokenTimes,
    expired_tokens,
    read_token,
    token_hmac,
    token_password,
)
from millstream.security.sasl.scram import FindToken, TokenCredential
from millstream.security.sasl.scram_credential import (
    ScramCredential,
    ScramMechanism,
    make_credential,
)

log = logging.getLogger(__name__)

_MAX_CREDENTIALS: Final = 10_000
"""Credentials that are kept; one more takes a few milliseconds to compute."""


class DelegationTokens:
    """Tokens of the metadata store, their HMACs and credentials."""

    def __init__(self, config: DynamicConfig, entities: EntitiesView, clock: Clock) -> None:
        self._config = config
        self._entities = entities
        self._clock = clock
        self._ids: TokenIds | None = None
        self._credentials: dict[tuple[str, ScramMechanism], ScramCredential] = {}

    def check_enabled(self) -> None:
        """Raise DELEGATION_TOKEN_AUTH_DISABLED on a broker without a secret for tokens."""
        self._secret()

    def _secret(self) -> str:
        secret = self._config.current.delegation_token_secret_key
        if not secret:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
        return secret

    @property
    def ids(self) -> TokenIds:
        """Finds tokens by their HMAC."""
        if self._ids is None:
            self._ids = TokenIds(self._secret())
        return self._ids

    @property
    def times(self) -> TokenTimes:
        """How long tokens hold."""
        config = self._config.current
        return TokenTimes(
            config.delegation_token_max_lifetime_ms, config.delegation_token_expiry_time_ms
        )

    def hmac(self, token_id: str) -> bytes:
        """Return the HMAC of a token."""
        return token_hmac(self._secret(), token_id)

    def all(self) -> list[DelegationToken]:
        """Return the tokens that hold."""
        now_ms = self._clock.now_ms()
        found = []
        for value in self._entities.all(EntityKind.DELEGATION_TOKEN).values():
            try:
                token = read_token(value)
            except ValueError:
                continue
            if not token.has_expired(now_ms):
                found.append(token)
        return found

    def of(self, mechanism: ScramMechanism) -> FindToken:
        """Return what finds the credentials of tokens for a mechanism."""

        def find(token_id: str) -> TokenCredential | None:
            if not self._config.current.delegation_token_secret_key:
                return None
            tokens = self._entities.all(EntityKind.DELEGATION_TOKEN)
            value = tokens.get(name_key(token_id))
            if value is None:
                return None
            try:
                token = read_token(value)
            except ValueError:
                return None
            if token.has_expired(self._clock.now_ms()):
                return None
            expires_ms = min(token.expires_ms, token.max_ms)
            return TokenCredential(token.owner, expires_ms, self._credential(mechanism, token_id))

        return find

    def _credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        found = self._credentials.get((token_id, mechanism))
        if found is None:
            if len(self._credentials) >= _MAX_CREDENTIALS:
                self._credentials.clear()
            password = token_password(self.hmac(token_id))
            salt = token_hmac(self._secret(), f"salt {token_id}")[:16]
            found = make_credential(mechanism, password, salt=salt)
            self._credentials[token_id, mechanism] = found
        return found


class TokenExpiry:
    """Has the controller, where this broker is it, delete expired tokens from time to time."""

    def __init__(self, config: DynamicConfig, clock: Clock, controller: Controller) -> None:
        self._config = config
        self._clock = clock
        self._controller = controller
        self._timer: TimerHandle | None = None
        self._schedule()

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _schedule(self) -> None:
        interval_ms = self._config.current.delegation_token_expiry_check_interval_ms
        self._timer = self._clock.call_later(interval_ms, self._look)

    def _look(self) -> None:
        self._schedule()
        if not self._controller.is_active:
            return
        now_ms = self._clock.now_ms()
        self._controller.change_entities(
            EntityKind.DELEGATION_TOKEN, lambda present: expired_tokens(present, now_ms)
        ).on_done(_told)


def _told(outcome: Deferred[None]) -> None:
    try:
        outcome.result()
    except Exception as error:  # the next look deletes them
        log.warning("expired delegation tokens were not deleted: %s", error)
