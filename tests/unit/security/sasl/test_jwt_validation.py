from __future__ import annotations

import json
import warnings
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.security.sasl.tokens import NOW_MS, NOW_S, claims, jwks, key, keyed, raw, signed

from millstream.security.sasl.jwt_validation import (
    SignedTokens,
    TokenRules,
    UnknownKeyError,
    UnsecuredTokens,
    VerificationKeys,
    parse_jwks,
)
from millstream.security.sasl.oauthbearer import BearerToken, InvalidTokenError

RSA, EC, OKP = key("RSA", "one"), key("EC", "two"), key("OKP", "three")
KEYS = parse_jwks(jwks(RSA, EC, OKP))


class Validator:
    def __init__(self, keys: VerificationKeys = KEYS, **rules: object) -> None:
        self.missing: list[str] = []
        self.tokens = SignedTokens(
            TokenRules(**rules),  # type: ignore[arg-type]
            keys=lambda: keys,
            now_ms=lambda: NOW_MS,
            on_unknown_key=self.missing.append,
        )

    def __call__(self, token: str) -> BearerToken:
        return self.tokens.validate(token)

    def refuses(self, token: str) -> str:
        with pytest.raises(InvalidTokenError) as caught:
            self(token)
        assert caught.value.status == "invalid_token"
        for piece in token.split("."):
            assert len(piece) < 12 or piece not in str(caught.value)
        return str(caught.value)


@pytest.mark.parametrize(
    ("signer", "algorithm"),
    [(RSA, "RS256"), (RSA, "PS512"), (EC, "ES256"), (OKP, "EdDSA"), (OKP, "Ed25519")],
)
def test_tokens_of_every_kind_of_key(signer: object, algorithm: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # joserfc wants the newer name of EdDSA to be used
        token = signed(signer, algorithm)  # type: ignore[arg-type]
        assert Validator()(token) == BearerToken("ann", (NOW_S + 300) * 1000)


def test_a_token_without_a_key_id_needs_the_only_key() -> None:
    token = signed(RSA, header={"kid": None})
    assert Validator(parse_jwks(jwks(RSA)))(token).principal_name == "ann"
    assert "not known" in Validator().refuses(token)


def test_an_unknown_key_is_reported() -> None:
    validator = Validator(parse_jwks(jwks(EC)))
    with pytest.raises(UnknownKeyError):
        validator(signed(RSA))
    assert validator.missing == ["one"]


def public_pem() -> bytes:
    pem = RSA.as_pem(private=False)  # type: ignore[attr-defined]
    assert isinstance(pem, bytes)
    return pem


FORGED = {
    "no algorithm": raw({"alg": "none", "kid": "one"}, claims()),
    "None": raw({"alg": "None"}, claims()),
    "without alg": raw({"kid": "one"}, claims(), "AAAA"),
    "another key": signed(key("RSA", "else"), header={"kid": "one"}),
    "a key of one's own in the header": signed(
        key("RSA", "else"),
        header={"kid": "one", "jwk": key("RSA", "else").as_dict(private=False)},
    ),
    "the wrong key for the algorithm": signed(EC, "ES256", header={"kid": "one"}),
    "a key id that is none": raw({"alg": "RS256", "kid": {"a": 1}}, claims(), "AAAA"),
    "a key id that is a number": raw({"alg": "RS256", "kid": 1}, claims(), "AAAA"),
    "a key id that is true": raw({"alg": "RS256", "kid": True}, claims(), "AAAA"),
    "a long key id": raw({"alg": "RS256", "kid": "k" * 2000}, claims(), "AAAA"),
    "unknown critical header": raw(
        {"alg": "RS256", "kid": "one", "crit": ["x"], "x": 1}, claims(), "AAAA"
    ),
    "unencoded payload": raw(
        {"alg": "RS256", "kid": "one", "crit": ["b64"], "b64": False}, claims(), "AAAA"
    ),
    "garbage": "a.b.c",
    "two parts": "a.b",
    "encrypted": "a.b.c.d.e",
    "empty": "",
    "too large": signed(RSA, pad="x" * 70_000),
    "header without end": raw(b"[" * 20_000, claims(), "AAAA"),
    "claims without end": raw({"alg": "RS256", "kid": "one"}, b"[" * 20_000, "AAAA"),
    "claims that are none": raw({"alg": "RS256", "kid": "one"}, [1], "AAAA"),
}


@pytest.mark.parametrize("token", FORGED.values(), ids=FORGED.keys())
def test_forged_tokens(token: str) -> None:
    Validator().refuses(token)


def test_a_public_key_is_no_secret() -> None:
    """Key confusion: an HMAC with the text of a public key, in every form that is published."""
    public = RSA.as_dict(private=False)
    pem = public_pem()
    texts = [pem, pem.strip(), jwks(RSA), json.dumps(public).encode(), str(public["n"]).encode()]
    for text in [*texts, b"", b"one"]:
        for header in ({"kid": "one"}, {}):
            token = keyed(text, header)
            Validator().refuses(token)
            Validator(parse_jwks(jwks(RSA))).refuses(token)


def test_every_byte_of_a_token_counts() -> None:
    token = signed(RSA)
    validator = Validator()
    header, payload, signature = token.split(".")
    for changed in (
        f"{header}.{payload[:-1]}.{signature}",
        f"{header}.{payload}x.{signature}",
        f"{header}.{payload}.{signature[:-4]}",
        f"{header}.{payload}.",
        f"{header}..{signature}",
        f"{payload}.{header}.{signature}",
    ):
        validator.refuses(changed)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"exp": None}, "no claim exp"),
        ({"exp": "soon"}, "no claim exp"),
        ({"exp": True}, "no claim exp"),
        ({"exp": float("inf")}, "no claim exp"),
        ({"exp": float("nan")}, "no claim exp"),
        ({"exp": 1e300}, "no claim exp"),
        ({"exp": 10**400}, "no claim exp"),
        ({"exp": -1}, "no claim exp"),
        ({"exp": NOW_S - 30}, "expired"),
        ({"iat": None}, "no claim iat"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"nbf": "x"}, "no claim nbf"),
        ({"sub": None}, "no claim sub"),
        ({"sub": " "}, "no claim sub"),
        ({"sub": 7}, "no claim sub"),
        ({"aud": "kafka"}, "another audience"),
        ({"aud": ["kafka"]}, "another audience"),
        ({"scope": ["a", "a"]}, "scopes"),
        ({"scope": [1]}, "scopes"),
    ],
)
def test_claims_that_are_refused(changed: Mapping[str, object], reason: str) -> None:
    assert reason in Validator().refuses(signed(RSA, **changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": NOW_S - 29},
        {"exp": NOW_S + 0.5},
        {"nbf": NOW_S + 30},
        {"scope": "a b"},
        {"scope": ["a", "b"]},
        {"scope": None},
    ],
)
def test_claims_that_are_accepted(changed: Mapping[str, object]) -> None:
    assert Validator()(signed(RSA, **changed)).principal_name == "ann"


def test_what_the_settings_ask_for() -> None:
    validator = Validator(
        audiences=("kafka", "other"), issuer="https://issuer", sub_claim="client", clock_skew_ms=0
    )
    good = {"aud": ["x", "kafka"], "iss": "https://issuer", "client": " bob "}
    assert validator(signed(RSA, **good)).principal_name == "bob"
    assert "audience" in validator.refuses(signed(RSA, **{**good, "aud": "x"}))
    assert "audience" in validator.refuses(signed(RSA, **{**good, "aud": None}))
    assert "issuer" in validator.refuses(signed(RSA, **{**good, "iss": "https://issuer/"}))
    assert "issuer" in validator.refuses(signed(RSA, **{**good, "iss": None}))
    assert "expired" in validator.refuses(signed(RSA, **{**good, "exp": NOW_S}))


def test_which_keys_are_taken() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        secret, weak = key("oct", "secret"), key("weak RSA", "weak")
        entries = json.loads(jwks(RSA, secret, weak, private=True))["keys"]
    encryption = {**RSA.as_dict(private=False), "use": "enc", "kid": "enc"}
    strange = [{"kty": "PQC"}, {}, 7, None, {"kty": "RSA", "n": "!", "e": "AQAB"}, {"kty": "EC"}]
    found = parse_jwks(json.dumps({"keys": [*entries, encryption, *strange]}).encode())
    assert len(found) == 1
    assert Validator(found)(signed(RSA)).principal_name == "ann"


def test_a_key_is_for_its_algorithm() -> None:
    only = {**RSA.as_dict(private=False), "alg": "PS256"}
    validator = Validator(parse_jwks(json.dumps({"keys": [only]}).encode()))
    assert validator(signed(RSA, "PS256")).principal_name == "ann"
    validator.refuses(signed(RSA, "RS256"))


@pytest.mark.parametrize("data", [b"", b"x", b"[]", b"{}", b'{"keys":1}', b"[" * 100_000, b"\xff"])
def test_what_is_no_set_of_keys(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a set of keys"):
        parse_jwks(data)


class TestUnsecured:
    def unsecured(self, **options: str) -> UnsecuredTokens:
        return UnsecuredTokens(options, lambda: NOW_MS)

    def test_a_token_without_a_signature(self) -> None:
        token = raw({"alg": "none"}, claims())
        assert self.unsecured().validate(token) == BearerToken("ann", (NOW_S + 300) * 1000)

    @pytest.mark.parametrize(
        "token",
        [
            "",
            "..",
            "a.b.c",
            "!.!.",
            raw({"alg": "none"}, claims(), "AAAA"),
            raw({"alg": "RS256"}, claims()),
            raw({"alg": "none"}, claims(exp=NOW_S)),
            raw({"alg": "none"}, claims(exp=None)),
            raw({"alg": "none"}, claims(iat=NOW_S + 1)),
            raw({"alg": "none"}, claims(sub=None)),
            raw({"alg": "none"}, [1]),
            signed(RSA),
        ],
    )
    def test_what_is_refused(self, token: str) -> None:
        with pytest.raises(InvalidTokenError):
            self.unsecured().validate(token)

    def test_options(self) -> None:
        tokens = self.unsecured(
            unsecuredValidatorPrincipalClaimName="name",
            unsecuredValidatorRequiredScope="a b",
            unsecuredValidatorAllowableClockSkewMs="3000",
        )
        token = raw({"alg": "none"}, claims(name="bob", scope="b a c", iat=NOW_S + 3))
        assert tokens.validate(token).principal_name == "bob"
        with pytest.raises(InvalidTokenError) as caught:
            tokens.validate(raw({"alg": "none"}, claims(name="bob", scope=["a"])))
        assert (caught.value.status, caught.value.scope) == ("insufficient_scope", "a b")
        with pytest.raises(ValueError, match="invalid literal"):
            self.unsecured(unsecuredValidatorAllowableClockSkewMs="x")


@given(st.text("abcABC012-_.=", max_size=200))
def test_garbage(token: str) -> None:
    Validator().refuses(token)
