"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), both sides.

::

    client                                         broker
    client-first: user, nonce ─────────────────▶   looks the credential up
                     ◀───────── server-first: nonce of both, salt, iterations
    client-final: proof of the password ───────▶   compares
                     ◀───────── server-final: signature, proof of the credential

Neither side learns the password or the keys of the other. A user that does not exist is answered
like one that does, with a salt that no password has, and refused at the end with the same words
(Kafka refuses it at its first message). The nonces are given by the caller.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from millstream.model.principal import USER, KafkaPrincipal
from millstream.security.sasl import scram_messages as messages
from millstream.security.sasl.mechanism import (
    Authenticated,
    InvalidExchangeError,
    SaslAuthenticationError,
)
from millstream.security.sasl.scram_credential import (
    MIN_ITERATIONS,
    ScramCredential,
    ScramDecoys,
    ScramMechanism,
    client_key,
    salt_password,
    server_key,
)

MAX_ASKED_ITERATIONS: Final = 1_000_000
"""A broker that asks a client for more is not obeyed: it would keep it busy for seconds."""


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """The credential of a delegation token, whom it stands for, and its end in milliseconds since
    1970.
    """

    owner: KafkaPrincipal
    expires_at_ms: int
    credential: ScramCredential = field(repr=False)


FindCredential = Callable[[str], ScramCredential | None]
"""Returns a user's credential for the mechanism of the exchange."""

FindToken = Callable[[str], TokenCredential | None]
"""Returns a delegation token that holds, by its id."""


def no_token(token_id: str) -> None:
    """Know no delegation token."""


class _Step(Enum):
    FIRST = auto()
    FINAL = auto()
    COMPLETE = auto()
    FAILED = auto()


class ScramServer:
    """The broker's side."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        *,
        find: FindCredential,
        find_token: FindToken = no_token,
        decoys: ScramDecoys,
        nonce: str,
    ) -> None:
        self._mechanism = mechanism
        self._find = find
        self._find_token = find_token
        self._decoys = decoys
        self._nonce = nonce
        self._step = _Step.FIRST
        self._signed = ""
        self._gs2_header = ""
        self._credential: ScramCredential | None = None
        self._outcome: Authenticated | None = None
        """Who it will be, if the proof is right; None where nobody can be."""
        self.claimed_name = ""
        self.authenticated: Authenticated | None = None

    def evaluate(self, response: bytes) -> bytes:
        """Take a message of the client and return the broker's next one."""
        step, self._step = self._step, _Step.FAILED
        if step is _Step.FIRST:
            challenge = self._first(messages.read_client_first(response))
            self._step = _Step.FINAL
        elif step is _Step.FINAL:
            challenge = self._final(messages.read_client_final(response))
            self._step = _Step.COMPLETE
        else:
            raise InvalidExchangeError("a message came after the last one")
        return challenge

    def _first(self, first: messages.ClientFirst) -> bytes:
        self.claimed_name = first.username
        if first.authorization_id not in ("", first.username):
            raise SaslAuthenticationError(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        credential = self._look_up(first)
        if credential is None or credential.iterations < MIN_ITERATIONS:
            self._outcome = None
            credential = self._decoys.credential(self._mechanism, first.username)
        self._credential = credential
        self._nonce = first.nonce + self._nonce
        answer = messages.server_first(self._nonce, credential.salt, credential.iterations)
        self._gs2_header = first.gs2_header
        self._signed = f"{first.bare},{answer.text},"
        return answer.text.encode()

    def _look_up(self, first: messages.ClientFirst) -> ScramCredential | None:
        if not first.by_token:
            self._outcome = Authenticated(KafkaPrincipal(USER, first.username))
            return self._find(first.username)
        token = self._find_token(first.username)
        if token is None:
            return None
        owner = KafkaPrincipal(token.owner.type, token.owner.name, token_authenticated=True)
        self._outcome = Authenticated(owner, token.expires_at_ms)
        return token.credential

    def _final(self, final: messages.ClientFinal) -> bytes:
        credential = self._credential
        assert credential is not None
        mechanism = self._mechanism
        signed = (self._signed + final.without_proof).encode()
        expected = messages.client_final_without_proof(self._gs2_header, self._nonce)
        if not _starts_with(final.without_proof, expected):
            raise InvalidExchangeError("the nonce or the channel binding is another one")
        if len(final.proof) != mechanism.hash_size:
            raise InvalidExchangeError("the proof has the wrong length")
        signature = mechanism.hmac(credential.stored_key, signed)
        key = bytes(a ^ b for a, b in zip(final.proof, signature, strict=True))
        is_right = hmac.compare_digest(mechanism.hash(key), credential.stored_key)
        proof = messages.server_final(mechanism.hmac(credential.server_key, signed))
        self._credential = None
        if not is_right or self._outcome is None:
            raise InvalidExchangeError("Invalid client credentials")
        self.authenticated = self._outcome
        return proof


class ScramClient:
    """The client's side. With ``by_token`` the user name is the id of a delegation token, and the
    password its HMAC as base64.
    """

    def __init__(
        self,
        mechanism: ScramMechanism,
        *,
        username: str,
        password: str,
        nonce: str,
        by_token: bool = False,
    ) -> None:
        if not username or "\0" in username:
            raise SaslAuthenticationError("SCRAM needs a user name")
        self._mechanism = mechanism
        self._password = password
        self._first = messages.client_first(username, nonce, by_token=by_token)
        self._server_signature = b""
        self._step: Callable[[bytes], bytes] = self._final
        self._started = False
        self.is_complete = False

    @property
    def mechanism(self) -> str:
        """The name for SaslHandshake."""
        return self._mechanism.mechanism

    def evaluate(self, challenge: bytes | None) -> bytes:
        """Take a message of the broker and return the client's next one; the broker's last message
        makes the exchange complete and is answered with nothing.
        """
        if challenge is None:
            if self._started:
                raise SaslAuthenticationError("the exchange has begun already")
            self._started = True
            return (self._first.gs2_header + self._first.bare).encode()
        step, self._step = self._step, _refuse
        return step(challenge)

    def _final(self, challenge: bytes) -> bytes:
        mechanism = self._mechanism
        answer = messages.read_server_first(challenge)
        if not answer.nonce.startswith(self._first.nonce) or answer.nonce == self._first.nonce:
            raise SaslAuthenticationError("Invalid server nonce: does not start with client nonce")
        if not MIN_ITERATIONS <= answer.iterations <= MAX_ASKED_ITERATIONS:
            raise SaslAuthenticationError(
                f"Requested iterations {answer.iterations} is not between {MIN_ITERATIONS} and "
                f"{MAX_ASKED_ITERATIONS} for {mechanism.mechanism}"
            )
        salted = salt_password(mechanism, self._password, answer.salt, answer.iterations)
        self._password = ""
        without_proof = messages.client_final_without_proof(self._first.gs2_header, answer.nonce)
        signed = f"{self._first.bare},{answer.text},{without_proof}".encode()
        key = client_key(mechanism, salted)
        signature = mechanism.hmac(mechanism.hash(key), signed)
        self._server_signature = mechanism.hmac(server_key(mechanism, salted), signed)
        self._step = self._verify
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return messages.client_final(without_proof, proof)

    def _verify(self, challenge: bytes) -> bytes:
        signature = messages.read_server_final(challenge)
        if not hmac.compare_digest(signature, self._server_signature):
            raise SaslAuthenticationError("Invalid server signature in server final message")
        self.is_complete = True
        return b""


def _refuse(challenge: bytes) -> bytes:
    raise SaslAuthenticationError("a message came after the last one")


def _starts_with(text: str, expected: str) -> bool:
    """Tell whether a text is the expected one, with or without extensions behind it."""
    return text == expected or text.startswith(expected + ",")
