"""Tokens without a header, after a handshake of version 0 (KIP-43)."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.sasl import Scram, bearer, plain, unsecured_token
from tests.interop.differential.security.scenarios.sasl_scram import scram_user
from tests.interop.differential.security.session import SecuredSession


@scenario(
    cases={
        "right": plain("ann"),
        "wrong": plain("ann", "wrong"),
        "empty": b"",
        "garbage": b"abc",
        "a_request": b"\0\x24\0\0\0\0\0\7\0\1x\0\0\0\x08\0ann\0ann",
    }
)
def of_plain(s: SecuredSession, data: bytes) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN", 0)
    peer.raw_token(data)
    peer.ending()


@scenario
def requests_follow(s: SecuredSession) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN", 0)
    peer.raw_token(plain("ann"))
    peer.call("ListGroups", 4, states_filter=["none"])
    peer.call("SaslHandshake", 0, mechanism="PLAIN")
    peer.call("SaslAuthenticate", 0, auth_bytes=plain("ann"))
    peer.call("ListGroups", 4, states_filter=["none"])


@scenario(cases=["secret", "wrong"])
def of_scram(s: SecuredSession, password: str) -> None:
    name = scram_user(s, "SCRAM-SHA-512", s.name("sam"))
    scram = Scram("SCRAM-SHA-512", name, password)
    peer = s.stranger()
    peer.handshake("SCRAM-SHA-512", 0)
    peer.raw_token(scram.final(peer.raw_token(scram.first())))
    peer.ending()


@scenario
def of_oauthbearer(s: SecuredSession) -> None:
    peer = s.stranger()
    peer.handshake("OAUTHBEARER", 0)
    peer.raw_token(bearer(unsecured_token()))
    peer.ending()


@scenario
def of_oauthbearer_refused(s: SecuredSession) -> None:
    peer = s.stranger()
    peer.handshake("OAUTHBEARER", 0)
    peer.raw_token(bearer(unsecured_token(sub=None)))
    peer.raw_token(b"\x01")
    peer.ending()


@scenario(cases={"right": plain("ann"), "wrong": plain("ann", "wrong")})
def without_any_handshake(s: SecuredSession, data: bytes) -> None:
    peer = s.stranger()
    peer.raw_token(data)
    peer.ending()


@scenario
def after_versions_and_handshake(s: SecuredSession) -> None:
    peer = s.stranger()
    peer.quiet("ApiVersions", 0)
    peer.handshake("PLAIN", 0)
    peer.raw_token(plain("ann"))
    peer.ending()


@scenario
def a_large_one(s: SecuredSession) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN", 0)
    peer.raw_token(b"\0ann\0" + b"x" * 600_000)
    peer.ending()
