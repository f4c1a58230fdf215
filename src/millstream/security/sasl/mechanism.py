"""The two sides of a SASL exchange, as every mechanism implements them.

A machine gets what the other side said and returns what to say. It does no input or output: time,
random bytes and credentials are given to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from millstream.model.errors import MillstreamError
from millstream.model.principal import KafkaPrincipal


class SaslAuthenticationError(MillstreamError):
    """The exchange has failed. The text may be shown to the other side: it names no secret, and
    does not tell an unknown user from a wrong password.
    """


class InvalidExchangeError(SaslAuthenticationError):
    """The exchange has failed for a reason that is for the log alone: the other side is told that
    the credentials are invalid, and nothing more (Kafka: ``SaslException``).
    """


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The result of an exchange on the broker's side. ``expires_at_ms`` is when the credential
    ends, in milliseconds since 1970; None for one that does not (KIP-368).
    """

    principal: KafkaPrincipal
    expires_at_ms: int | None = None


class SaslServer(Protocol):
    """The broker's side of one exchange."""

    @property
    def authenticated(self) -> Authenticated | None:
        """The result, once the exchange is complete."""

    @property
    def claimed_name(self) -> str:
        """The name that the client gave, its own or a token's id, whether or not it was proved;
        empty where a mechanism has none.
        """

    def evaluate(self, response: bytes) -> bytes:
        """Return the next challenge, perhaps empty; SaslAuthenticationError ends the exchange."""


class SaslClient(Protocol):
    """The client's side of one exchange.

    The caller sends ``evaluate(None)``, then, until ``is_complete``, evaluates what the broker
    answers and sends the response. A mechanism whose broker proves nothing is complete once its
    last response is made: the broker's answer to it says whether it was accepted.
    """

    @property
    def mechanism(self) -> str:
        """The name for SaslHandshake, as ``SCRAM-SHA-256``."""

    @property
    def is_complete(self) -> bool:
        """True once the broker has proved, where the mechanism has it do so, who it is."""

    def evaluate(self, challenge: bytes | None) -> bytes:
        """Return the next response; ``challenge`` is None for the first one. Nothing is left to
        send once ``is_complete`` was made true by a challenge.

        SaslAuthenticationError where the broker does not know what it should.
        """
