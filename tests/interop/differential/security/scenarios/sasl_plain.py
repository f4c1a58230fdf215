"""PLAIN: right and wrong messages (RFC 4616)."""

from __future__ import annotations

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.sasl import plain
from tests.interop.differential.security.session import SecuredSession

MESSAGES = {
    "right": plain("ann"),
    "authorization_id_same": plain("ann", authorization_id="ann"),
    "authorization_id_differs": plain("ann", authorization_id="bob"),
    "wrong_password": plain("ann", "wrong"),
    "longer_password": plain("ann", "annn"),
    "shorter_password": plain("ann", "an"),
    "another_case": plain("Ann", "ann"),
    "unknown_user": plain("nobody", "nobody"),
    "empty_user": plain("", "ann"),
    "empty_password": plain("ann", ""),
    "all_empty": b"\0\0",
    "empty": b"",
    "one_separator": b"ann\0ann",
    "no_separator": b"ann",
    "three_separators": b"\0ann\0ann\0",
    "separator_in_password": b"\0ann\0an\0n",
    "no_utf_8": b"\0ann\0\xff\xfe",
    "no_utf_8_in_front": b"\xff\0ann\0ann",
    "space_in_front": b" \0ann\0ann",
    "space_behind": b"\0ann \0ann",
    "quoted": b'\0"ann"\0ann',
    "scram": b"n,,n=ann,r=abc",
}


@scenario(cases=MESSAGES)
def message(s: SecuredSession, data: bytes) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN")
    peer.token(data)
    peer.ending()


@scenario(cases={"right": plain("ann"), "wrong": plain("ann", "x")}, versions="SaslAuthenticate")
def each_version(s: SecuredSession, data: bytes, version: int) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN")
    peer.token(data, version)
    peer.ending()


@scenario(cases={name: MESSAGES[name] for name in ("right", "wrong_password", "empty")})
def over_tls(s: SecuredSession, data: bytes) -> None:
    peer = s.stranger("SECURE")
    peer.handshake("PLAIN")
    peer.token(data)
    peer.ending()


@scenario
def acts_as_its_user(s: SecuredSession) -> None:
    topic = s.topic()
    for name in ("ann", "root"):
        peer = s.stranger(label=f"as {name}")
        peer.handshake("PLAIN")
        peer.token(plain(name))
        peer.call(
            "DescribeTopicPartitions", 0, topics=[{"name": topic}], response_partition_limit=1
        )
