"""The four messages of a SCRAM exchange (RFC 5802, section 7)::

    client-first  n,,n=user,r=NONCE[,tokenauth=true]
    server-first  r=NONCE+NONCE,s=salt,i=iterations
    client-final  c=biws,r=NONCE+NONCE,p=proof
    server-final  v=signature            or  e=error

Each reader keeps the exact text that was received, for both sides sign the texts. A reader raises
InvalidExchangeError, without the text, for anything that the grammar does not allow. Extensions are
read over where the RFC says so; the mandatory one (``m=``) is refused. Channel binding is not
offered.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from millstream.security.sasl.mechanism import InvalidExchangeError

MAX_MESSAGE_BYTES: Final = 16 * 1024
"""A name, a nonce and keys fit many times over; what is larger is not read."""
_MAX_DIGITS: Final = 9

_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_ESCAPED: Final = re.compile(r"=(?!2C|3D)")
_EXTENSION: Final = re.compile(r"(?!m=)[A-Za-z]+=[^\0]+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """``gs2_header`` and ``bare`` are the two parts of the text."""

    gs2_header: str
    bare: str
    username: str
    nonce: str
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)

    @property
    def by_token(self) -> bool:
        """True when the user name is the id of a delegation token (KIP-48)."""
        return self.extensions.get("tokenauth", "").lower() == "true"


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """The whole nonce, and how the password is to be salted."""

    text: str
    nonce: str
    salt: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """``without_proof`` is the text that both sides sign."""

    without_proof: str
    channel_binding: bytes
    nonce: str
    proof: bytes = field(repr=False)


def escape_name(name: str) -> str:
    """Return a user name as an attribute's value."""
    return name.replace("=", "=3D").replace(",", "=2C")


def client_first(username: str, nonce: str, *, by_token: bool) -> ClientFirst:
    """Return the client's first message."""
    bare = f"n={escape_name(username)},r={nonce}" + (",tokenauth=true" if by_token else "")
    return ClientFirst("n,,", bare, username, nonce)


def read_client_first(message: bytes) -> ClientFirst:
    """Read the client's first message."""
    text = _text(message)
    flag, authzid, *attributes = _parts(text, 4)
    if flag not in ("n", "y"):  # "y": the client could bind the channel, and was not offered it
        raise InvalidExchangeError("channel binding is not offered")
    header = f"{flag},{authzid},"
    name, nonce = _value(attributes[0], "n"), _nonce(attributes[1])
    return ClientFirst(
        header,
        text.removeprefix(header),
        _name(name),
        nonce,
        _name(_value(authzid, "a")) if authzid else "",
        _extensions(attributes[2:]),
    )


def server_first(nonce: str, salt: bytes, iterations: int) -> ServerFirst:
    """Return the broker's first message."""
    text = f"r={nonce},s={base64.b64encode(salt).decode()},i={iterations}"
    return ServerFirst(text, nonce, salt, iterations)


def read_server_first(message: bytes) -> ServerFirst:
    """Read the broker's first message."""
    text = _text(message)
    nonce, salt, iterations, *extensions = _parts(text, 3)
    _extensions(extensions)
    digits = _value(iterations, "i")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MAX_DIGITS:
        raise InvalidExchangeError("the iterations are no number")
    return ServerFirst(text, _nonce(nonce), _base64(_value(salt, "s")), int(digits))


def client_final_without_proof(gs2_header: str, nonce: str) -> str:
    """Return the part of the client's final message that both sides sign."""
    return f"c={base64.b64encode(gs2_header.encode()).decode()},r={nonce}"


def client_final(without_proof: str, proof: bytes) -> bytes:
    """Return the client's final message."""
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


def read_client_final(message: bytes) -> ClientFinal:
    """Read the client's final message."""
    without_proof, _, proof = _text(message).rpartition(",p=")
    channel, nonce, *extensions = _parts(without_proof, 2)
    _extensions(extensions)
    return ClientFinal(without_proof, _base64(_value(channel, "c")), _nonce(nonce), _base64(proof))


def server_final(signature: bytes) -> bytes:
    """Return the broker's final message."""
    return b"v=" + base64.b64encode(signature)


def read_server_final(message: bytes) -> bytes:
    """Return the signature of the broker's final message."""
    signature, *extensions = _text(message).split(",")
    if signature.startswith("e="):
        raise InvalidExchangeError("the broker answered with an error")
    _extensions(extensions)
    return _base64(_value(signature, "v"))


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise InvalidExchangeError("the message is too large")
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise InvalidExchangeError("the message is not UTF-8") from None
    if "\0" in text:
        raise InvalidExchangeError("the message has a NUL")
    return text


def _parts(text: str, at_least: int) -> list[str]:
    parts = text.split(",")
    if len(parts) < at_least:
        raise InvalidExchangeError("the message has too few attributes")
    return parts


def _value(attribute: str, letter: str) -> str:
    name, equals, value = attribute.partition("=")
    if name != letter or not equals or not value:
        raise InvalidExchangeError(f"the message has no {letter} where it belongs")
    return value


def _name(value: str) -> str:
    if _ESCAPED.search(value):
        raise InvalidExchangeError("the name has an escape that there is not")
    return value.replace("=2C", ",").replace("=3D", "=")


def _nonce(attribute: str) -> str:
    nonce = _value(attribute, "r")
    if _NONCE.fullmatch(nonce) is None:
        raise InvalidExchangeError("the nonce is not printable")
    return nonce


def _extensions(attributes: Sequence[str]) -> Mapping[str, str]:
    for attribute in attributes:
        if _EXTENSION.fullmatch(attribute) is None:
            raise InvalidExchangeError("the message has an extension that is not known")
    return dict(attribute.partition("=")[::2] for attribute in attributes)


def _base64(value: str) -> bytes:
    """Return what a text stands for, which is written in one way only: the bits that base64 leaves
    over have to be zero.
    """
    try:
        found = base64.b64decode(value, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidExchangeError("the message has a value that is not base64") from None
    if base64.b64encode(found).decode() != value:
        raise InvalidExchangeError("the message has a value that is not base64")
    return found
