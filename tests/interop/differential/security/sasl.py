"""Messages of the SASL mechanisms, right and wrong, written for themselves (RFC 5802, RFC 7628)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from typing import Final

CLIENT_NONCE: Final = "fyko+d2lbbFgONRv9qkxdawL"
HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SALT: Final = b"salt of sixteen!"


def plain(user: str, password: str | None = None, authorization_id: str = "") -> bytes:
    """Return the message of PLAIN; the password is the name unless told."""
    return f"{authorization_id}\0{user}\0{user if password is None else password}".encode()


def describe_token(token: bytes) -> str:
    """Return what of a broker's message can be compared."""
    text = token.decode("latin-1")
    if text.startswith("r="):
        nonce, _, iterations = (part[2:] for part in text.split(",")[:3])
        begins = "client nonce and more" if _extends(nonce) else "another nonce"
        return f"r=<{begins}>,s=<salt>,i={iterations}"
    if text.startswith("v="):
        return f"v=<{len(base64.b64decode(text[2:]))} bytes>"
    return text


def _extends(nonce: str) -> bool:
    return nonce.startswith(CLIENT_NONCE) and len(nonce) > len(CLIENT_NONCE)


def salted_password(mechanism: str, password: str, iterations: int, salt: bytes = SALT) -> bytes:
    """Return what AlterUserScramCredentials carries."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


@dataclass
class Scram:
    """The client's side of one exchange. Fields that are changed make it a wrong one."""

    mechanism: str
    user: str
    password: str
    gs2_header: str = "n,,"
    extensions: str = ""
    first_bare: str = field(init=False, default="")
    server_first: str = field(init=False, default="")

    def first(self) -> bytes:
        """Return the first message."""
        self.first_bare = f"n={self.user},r={CLIENT_NONCE}{self.extensions}"
        return (self.gs2_header + self.first_bare).encode()

    def final(
        self,
        server_first: bytes,
        *,
        channel: bytes | None = None,
        nonce: str | None = None,
        proof: bytes | None = None,
        more: str = "",
    ) -> bytes:
        """Return the last message. ``channel``, ``nonce`` and ``proof`` replace the right ones,
        ``more`` follows the nonce.
        """
        if not server_first.startswith(b"r="):
            server_first = f"r={CLIENT_NONCE}zz,s={base64.b64encode(SALT).decode()},i=4096".encode()
        self.server_first = server_first.decode()
        fields = dict(part.split("=", 1) for part in self.server_first.split(","))
        binding = base64.b64encode(self.gs2_header.encode() if channel is None else channel)
        without = f"c={binding.decode()},r={fields['r'] if nonce is None else nonce}{more}"
        if proof is None:
            proof = self._proof(without, base64.b64decode(fields["s"]), int(fields["i"]))
        return f"{without},p={base64.b64encode(proof).decode()}".encode()

    def _proof(self, without: str, salt: bytes, iterations: int) -> bytes:
        name = HASHES[self.mechanism]
        salted = salted_password(self.mechanism, self.password, iterations, salt)
        key = hmac.digest(salted, b"Client Key", name)
        stored = hashlib.new(name, key).digest()
        signed = f"{self.first_bare},{self.server_first},{without}".encode()
        signature = hmac.digest(stored, signed, name)
        return bytes(a ^ b for a, b in zip(key, signature, strict=True))


def unsecured_token(**claims: object) -> str:
    """Return a token that nobody has signed; a claim that is None is left out."""
    now_s = int(time.time())
    wanted = {"iat": now_s, "exp": now_s + 300, "sub": "ann", **claims}
    payload = {name: value for name, value in wanted.items() if value is not None}
    return f"{_part({'alg': 'none'})}.{_part(payload)}."


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def bearer(token: str, *, gs2_header: str = "n,,", extensions: str = "") -> bytes:
    """Return the first message of OAUTHBEARER."""
    return f"{gs2_header}\x01auth=Bearer {token}\x01{extensions}\x01".encode()
