"""An issuer of tokens for tests: keys, the set that it publishes, and tokens, good and bad."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping
from functools import cache

from joserfc import jws, jwt
from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey

NOW_S = 1_700_000_000
NOW_MS = NOW_S * 1000


@cache
def key(kind: str, key_id: str) -> Key:
    parameters = {"kid": key_id}
    if kind == "RSA":
        return RSAKey.generate_key(2048, parameters)
    if kind == "weak RSA":
        return RSAKey.generate_key(1024, parameters)
    if kind == "EC":
        return ECKey.generate_key("P-256", parameters)
    if kind == "OKP":
        return OKPKey.generate_key("Ed25519", parameters)
    return OctKey.generate_key(256, parameters)


def jwks(*keys: Key, private: bool = False) -> bytes:
    return json.dumps({"keys": [each.as_dict(private=private) for each in keys]}).encode()


def claims(**changed: object) -> dict[str, object]:
    """The claims of a token for ann that holds for five minutes; None takes a claim out."""
    found: dict[str, object] = {"sub": "ann", "iat": NOW_S - 10, "exp": NOW_S + 300, **changed}
    return {name: value for name, value in found.items() if value is not None}


def signed(
    signer: Key, algorithm: str = "RS256", header: Mapping[str, object] = {}, **changed: object
) -> str:
    full = {"alg": algorithm, "kid": signer.kid, **header}
    full = {name: value for name, value in full.items() if value is not None}
    registry = jws.JWSRegistry(algorithms=[algorithm])
    return jwt.encode(full, claims(**changed), signer, registry=registry)


def raw(header: object, payload: object, signature: str = "") -> str:
    """A token put together by hand."""
    return ".".join((part(header), part(payload), signature))


def part(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def keyed(secret: bytes, header: Mapping[str, object] = {}) -> str:
    """A token with an HMAC, whatever the secret is."""
    text = ".".join((part({"alg": "HS256", **header}), part(claims())))
    return f"{text}.{part(hmac.digest(secret, text.encode(), 'sha256'))}"
