"""What a broker keeps of a password for SCRAM (RFC 5802, section 3).

::

    SaltedPassword = PBKDF2(password, salt, iterations)
    ClientKey      = HMAC(SaltedPassword, "Client Key")      StoredKey = H(ClientKey)
    ServerKey      = HMAC(SaltedPassword, "Server Key")

A password is taken as its UTF-8 bytes, as Kafka takes it (``ScramFormatter.normalize``).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384
"""Bounds of the iterations of a credential that a broker stores (Kafka: ``ScramMechanism``)."""


class ScramMechanism(Enum):
    """The mechanisms; the number is that of the API of credentials and of metadata records."""

    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @property
    def mechanism(self) -> str:
        """The name for SaslHandshake."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash as hashlib names it."""
        return self.name.removeprefix("SCRAM_").replace("_", "").lower()

    @property
    def hash_size(self) -> int:
        """Bytes of a key."""
        return hashlib.new(self.hash_name).digest_size

    def hmac(self, key: bytes, text: bytes) -> bytes:
        """Return the HMAC of the mechanism's hash."""
        return hmac.digest(key, text, self.hash_name)

    def hash(self, text: bytes) -> bytes:
        """Return the mechanism's hash."""
        return hashlib.new(self.hash_name, text).digest()


SCRAM_MECHANISMS: Final[Mapping[str, ScramMechanism]] = {
    each.mechanism: each for each in ScramMechanism
}
"""The mechanisms by name."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A stored credential; its keys are not part of its text."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salt_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password; a few milliseconds of computation."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def client_key(mechanism: ScramMechanism, salted_password: bytes) -> bytes:
    """Return ClientKey, with which a client proves that it knows the password."""
    return mechanism.hmac(salted_password, b"Client Key")


def server_key(mechanism: ScramMechanism, salted_password: bytes) -> bytes:
    """Return ServerKey, with which a broker proves that it has the credential."""
    return mechanism.hmac(salted_password, b"Server Key")


def credential_of(
    mechanism: ScramMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Return what is stored of a salted password."""
    return ScramCredential(
        salt=salt,
        stored_key=mechanism.hash(client_key(mechanism, salted_password)),
        server_key=server_key(mechanism, salted_password),
        iterations=iterations,
    )


def make_credential(
    mechanism: ScramMechanism, password: str, *, salt: bytes, iterations: int = MIN_ITERATIONS
) -> ScramCredential:
    """Return what is stored of a password."""
    salted = salt_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def format_credential(credential: ScramCredential) -> str:
    """Return a credential as Kafka keeps it in ZooKeeper
    (``ScramCredentialUtils.credentialToString``).
    """
    return ",".join(
        (
            f"salt={base64.b64encode(credential.salt).decode()}",
            f"stored_key={base64.b64encode(credential.stored_key).decode()}",
            f"server_key={base64.b64encode(credential.server_key).decode()}",
            f"iterations={credential.iterations}",
        )
    )


def parse_credential(text: str) -> ScramCredential:
    """Read what ``format_credential`` wrote; ValueError for anything else, without its text."""
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        return ScramCredential(
            salt=base64.b64decode(parts["salt"], validate=True),
            stored_key=base64.b64decode(parts["stored_key"], validate=True),
            server_key=base64.b64decode(parts["server_key"], validate=True),
            iterations=int(parts["iterations"]),
        )
    except (KeyError, ValueError, binascii.Error):
        raise ValueError("not a SCRAM credential") from None


@dataclass(frozen=True, slots=True)
class CredentialShape:
    """What a client sees of a credential before it has proved anything, but for the salt itself."""

    salt_size: int = 16
    iterations: int = MIN_ITERATIONS


def _usual_shape(mechanism: ScramMechanism) -> CredentialShape:
    return CredentialShape()


class ScramDecoys:
    """Credentials for users that do not exist, so that an exchange about one of them goes on like
    any other, with the same salt each time, and fails at its end. ``shape_of`` says how those that
    do exist look.
    """

    __slots__ = ("_secret", "_shape_of")

    def __init__(
        self,
        secret: bytes,
        shape_of: Callable[[ScramMechanism], CredentialShape] = _usual_shape,
    ) -> None:
        self._secret = secret
        self._shape_of = shape_of

    def credential(self, mechanism: ScramMechanism, username: str) -> ScramCredential:
        """Return a credential that no password has."""
        shape = self._shape_of(mechanism)
        name = f"{mechanism.name} {username}".encode()
        stored, server = (mechanism.hmac(self._secret, part + name) for part in (b"2", b"3"))
        salt = b"".join(
            mechanism.hmac(self._secret, b"1 %d " % at + name)
            for at in range(shape.salt_size // mechanism.hash_size + 1)
        )
        return ScramCredential(salt[: shape.salt_size], stored, server, shape.iterations)
