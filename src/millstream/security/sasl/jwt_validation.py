"""Whether a JSON Web Token is accepted, and for whom it stands (RFC 7519, RFC 8725; KIP-768).

Signed tokens are verified by joserfc with the keys that their issuer publishes (RFC 7517). Only
algorithms with a public key are accepted, so neither ``none`` nor a signature that was made with
the text of a public key as a secret is one. What a key says of its use and algorithm holds. Kafka:
``BrokerJwtValidator``.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from millstream.security.sasl.oauthbearer import BearerToken, InvalidTokenError

if TYPE_CHECKING:
    from joserfc.jwk import GuestProtocol, Key

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512"),
    *("PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512"),
    "Ed25519",
    "EdDSA",
)
MIN_RSA_BITS: Final = 2048
MAX_TOKEN_CHARACTERS: Final = 64 * 1024
MAX_HEADER_BYTES: Final = 16 * 1024
"""Some issuers send their certificates along."""
MAX_KEY_ID_CHARACTERS: Final = 1000
_MAX_SECONDS: Final = 1 << 40

_KEY_TYPES: Final = frozenset({"RSA", "EC", "OKP"})

JsonObject = Mapping[str, object]


class UnknownKeyError(InvalidTokenError):
    """A token names a key that is not known, perhaps not yet."""

    def __init__(self, key_id: str) -> None:
        super().__init__("the token is signed with a key that is not known")
        self.key_id = key_id


class VerificationKeys:
    """The public keys of an issuer."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = tuple(keys)

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, header: JsonObject) -> Key:
        """Return the key that a token's header names; a token without a key id is verified with the
        only key for its algorithm. UnknownKeyError when there is none.
        """
        key_id = header.get("kid")
        if key_id is not None and (
            not isinstance(key_id, str) or len(key_id) > MAX_KEY_ID_CHARACTERS
        ):
            raise InvalidTokenError("the token's key id is not one")
        algorithm = header.get("alg")
        found = [
            key
            for key in self._keys
            if (key_id is None or key.kid == key_id) and (key.alg is None or key.alg == algorithm)
        ]
        if len(found) != 1 and (key_id is None or not found):
            raise UnknownKeyError(key_id or "")
        return found[0]


NO_KEYS: Final = VerificationKeys(())


def parse_jwks(data: bytes) -> VerificationKeys:
    """Read a set of keys. Keys of other uses, symmetric keys and weak ones are left out; ValueError
    for a text that is no set of keys.
    """
    from joserfc.errors import JoseError
    from joserfc.jwk import JWKRegistry

    try:
        entries = json.loads(data)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError("it is not a set of keys (JWKS)") from None
    if not isinstance(entries, list):
        raise ValueError("it is not a set of keys (JWKS)")
    keys = []
    for entry in entries:
        if not isinstance(entry, dict) or entry.get("kty") not in _KEY_TYPES:
            continue
        if entry.get("use", "sig") != "sig" or _is_weak(entry):
            continue
        public = {name: value for name, value in entry.items() if name not in _PRIVATE_PARTS}
        try:
            key = JWKRegistry.import_key(public)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        keys.append(key)
    return VerificationKeys(keys)


_PRIVATE_PARTS: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "key_ops"})


def _is_weak(entry: JsonObject) -> bool:
    """Tell whether a key is of RSA and its modulus, in base64, too short."""
    return entry["kty"] == "RSA" and len(str(entry.get("n"))) * 6 < MIN_RSA_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """What a token has to say. ``audiences`` empty: a token that is meant for somebody is refused,
    for nobody has said that it is us. ``issuer`` empty: any.
    """

    audiences: tuple[str, ...] = ()
    issuer: str = ""
    scope_claim: str = "scope"
    sub_claim: str = "sub"
    clock_skew_ms: int = 30_000


class SignedTokens:
    """Validates signed tokens (``security.sasl.oauthbearer.Validate``)."""

    def __init__(
        self,
        rules: TokenRules,
        *,
        keys: Callable[[], VerificationKeys],
        now_ms: Callable[[], int],
        on_unknown_key: Callable[[str], None],
    ) -> None:
        """``on_unknown_key`` is called with the id of a key that a token names in vain."""
        self._rules = rules
        self._keys = keys
        self._now_ms = now_ms
        self._on_unknown_key = on_unknown_key

    def validate(self, token: str) -> BearerToken:
        """Return for whom a token stands; InvalidTokenError, which has nothing of it."""
        claims = self._verified(token)
        rules = self._rules
        if rules.issuer and claims.get("iss") != rules.issuer:
            raise InvalidTokenError("the token has another issuer")
        _check_audience(claims.get("aud"), rules.audiences)
        _seconds(claims, "iat")
        _check_scopes(claims.get(rules.scope_claim))
        return _checked(claims, rules.sub_claim, self._now_ms(), rules.clock_skew_ms)

    def _verified(self, token: str) -> JsonObject:
        """Return the claims of a token whose signature is right."""
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jws import JWSRegistry

        if len(token) > MAX_TOKEN_CHARACTERS:
            raise InvalidTokenError("the token is too large")
        keys = self._keys()

        def find(signed: GuestProtocol) -> Key:
            return keys.find(cast("JsonObject", signed.headers()))

        registry = JWSRegistry(algorithms=ALGORITHMS)
        registry.max_header_length = MAX_HEADER_BYTES
        try:
            return cast("JsonObject", jwt.decode(token, find, registry=registry).claims)
        except UnknownKeyError as error:
            self._on_unknown_key(error.key_id)
            raise
        except (JoseError, ValueError, TypeError, KeyError, RecursionError) as error:
            # The name of the error says what is wrong, its text may have parts of the token.
            raise InvalidTokenError(f"the token is not valid: {type(error).__name__}") from None


class UnsecuredTokens:
    """Accepts tokens that nobody has signed, as Kafka's
    ``OAuthBearerUnsecuredValidatorCallbackHandler``: for trying things out, never for production.
    ``options`` are those of the login module.
    """

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        prefix = "unsecuredValidator"
        self._sub_claim = options.get(prefix + "PrincipalClaimName", "").strip() or "sub"
        self._scope_claim = options.get(prefix + "ScopeClaimName", "").strip() or "scope"
        self._required = options.get(prefix + "RequiredScope", "").split()
        self._skew_ms = int(options.get(prefix + "AllowableClockSkewMs", "").strip() or 0)
        self._now_ms = now_ms

    def validate(self, token: str) -> BearerToken:
        """Return for whom a token says that it stands."""
        parts = token.split(".")
        if len(token) > MAX_TOKEN_CHARACTERS or len(parts) != 3 or parts[2]:
            raise InvalidTokenError("the token is none without a signature")
        if _object(parts[0]).get("alg") != "none":
            raise InvalidTokenError("the token names an algorithm and has no signature")
        claims = _object(parts[1])
        now_ms = self._now_ms()
        expires_ms = _seconds(claims, "exp") * 1000
        issued_ms = _seconds(claims, "iat") * 1000 if "iat" in claims else 0.0
        if issued_ms > now_ms + self._skew_ms or issued_ms >= expires_ms:
            raise InvalidTokenError("the token is issued in the future")
        scopes = claims.get(self._scope_claim)
        if not isinstance(scopes, str | list | None):
            raise InvalidTokenError("the token's scopes are no text and no list")
        missing = set(self._required) - _scopes(scopes)
        checked = _checked(claims, self._sub_claim, now_ms, self._skew_ms)
        if missing:
            wanted = " ".join(self._required)
            raise InvalidTokenError(
                "the token lacks a scope", status="insufficient_scope", scope=wanted
            )
        return checked


def _checked(claims: JsonObject, sub_claim: str, now_ms: int, skew_ms: int) -> BearerToken:
    """Return for whom claims stand that hold now."""
    expires_ms = _seconds(claims, "exp") * 1000
    if now_ms - skew_ms >= expires_ms:
        raise InvalidTokenError("the token has expired")
    if "nbf" in claims and now_ms + skew_ms < _seconds(claims, "nbf") * 1000:
        raise InvalidTokenError("the token is not valid yet")
    name = claims.get(sub_claim)
    if not isinstance(name, str) or not name.strip():
        raise InvalidTokenError(f"the token has no claim {sub_claim}")
    return BearerToken(name.strip(), int(expires_ms))


def _check_audience(claim: object, expected: tuple[str, ...]) -> None:
    found = [claim] if isinstance(claim, str) else claim
    if found is None and not expected:
        return
    if not isinstance(found, list) or not any(each in expected for each in found):
        raise InvalidTokenError("the token is meant for another audience")


def _check_scopes(claim: object) -> None:
    scopes = [claim] if isinstance(claim, str) else claim
    if isinstance(scopes, list) and (
        not all(isinstance(each, str) and each.strip() for each in scopes)
        or len(set(scopes)) != len(scopes)
    ):
        raise InvalidTokenError("the token's scopes are not texts, or one is there twice")


def _scopes(claim: object) -> set[str]:
    texts: Iterable[object] = claim.split() if isinstance(claim, str) else ()
    if isinstance(claim, list):
        texts = claim
    return {each for each in texts if isinstance(each, str)}


def _seconds(claims: JsonObject, name: str) -> float:
    """Return a claim that is a time in seconds since 1970."""
    value = claims.get(name)
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value < _MAX_SECONDS  # also false for NaN
    ):
        raise InvalidTokenError(f"the token has no claim {name} that is a time")
    return value


def _object(part: str) -> JsonObject:
    try:
        decoded = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
        value = json.loads(decoded)
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidTokenError("the token is malformed") from None
    if not isinstance(value, dict):
        raise InvalidTokenError("the token is malformed")
    return value
