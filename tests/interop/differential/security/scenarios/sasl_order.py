"""What may be asked before, during and after authentication, and which connections are closed."""

from __future__ import annotations

from collections.abc import Callable

from tests.interop.differential import codec
from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.sasl import Scram, bearer, plain, unsecured_token
from tests.interop.differential.security.scenarios.sasl_scram import scram_user
from tests.interop.differential.security.session import SecuredSession
from tests.interop.differential.security.settings import MECHANISMS
from tests.interop.differential.session import CLIENT_ID

SOFTWARE = {"client_software_name": "differential", "client_software_version": "1.0"}
FIRST: dict[str, Callable[[], bytes]] = {
    "PLAIN": lambda: plain("ann"),
    "SCRAM-SHA-256": lambda: Scram("SCRAM-SHA-256", "nobody-here", "ann").first(),
    "OAUTHBEARER": lambda: bearer(unsecured_token()),
}


def keys(answer: dict[str, object]) -> dict[str, object]:
    """Keep of ApiVersions what SASL depends on."""
    rows = answer.get("api_keys", [])
    assert isinstance(rows, list)
    kept = [row for row in rows if row["api_key"] in (17, 18, 36)]
    return {"error_code": answer.get("error_code"), "api_keys": kept}


def ask_versions(s: SecuredSession, version: int) -> None:
    peer = s.stranger()
    fields = SOFTWARE if version >= 3 else {}
    s.record(f"ApiVersions v{version}", keys(peer.quiet("ApiVersions", version, **fields)))


@scenario(versions="ApiVersions")
def versions_first(s: SecuredSession, version: int) -> None:
    ask_versions(s, version)
    peer = s.stranger()
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    peer.call("ListGroups", 4, states_filter=["none"])


@scenario
def versions_twice(s: SecuredSession) -> None:
    ask_versions(s, 3)
    s.stranger().post("ApiVersions", 3, **SOFTWARE)
    s.stranger().receive()


@scenario
def versions_after_the_handshake(s: SecuredSession) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN")
    peer.call("ApiVersions", 3, **SOFTWARE)


@scenario
def versions_between_tokens(s: SecuredSession) -> None:
    name = scram_user(s, "SCRAM-SHA-256", s.name("sam"))
    peer = s.stranger()
    peer.handshake("SCRAM-SHA-256")
    peer.token(Scram("SCRAM-SHA-256", name, "secret").first())
    peer.call("ApiVersions", 3, **SOFTWARE)


@scenario
def versions_after_all(s: SecuredSession) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    ask_versions(s, 3)
    ask_versions(s, 0)


@scenario(cases={"five": 5, "far": 99})
def versions_in_no_such_version(s: SecuredSession, version: int) -> None:
    peer = s.stranger()
    number = version.to_bytes(2, "big")
    peer.post_raw("ApiVersions", 0, b"\0\x12" + number + b"\0\0\0\7\0\1x\0\2a\2b\0")
    s.record("ApiVersions", keys(peer.quiet_receive()))
    ask_versions(s, 3)
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    peer.call("ListGroups", 4, states_filter=["none"])


@scenario
def versions_without_a_name(s: SecuredSession) -> None:
    peer = s.stranger()
    answer = peer.quiet("ApiVersions", 3, client_software_name="", client_software_version="")
    s.record("ApiVersions v3", keys(answer))
    peer.handshake("PLAIN")
    peer.token(plain("ann"))


@scenario(versions="SaslAuthenticate")
def authenticate_first(s: SecuredSession, version: int) -> None:
    s.stranger().token(plain("ann"), version)


@scenario
def authenticate_after_versions(s: SecuredSession) -> None:
    ask_versions(s, 3)
    s.stranger().token(plain("ann"))


@scenario(cases=["PLAIN", "SCRAM-SHA-256", "no-such"], versions="SaslHandshake")
def second_handshake(s: SecuredSession, mechanism: str, version: int) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN")
    peer.handshake(mechanism, version)


@scenario
def handshake_between_tokens(s: SecuredSession) -> None:
    name = scram_user(s, "SCRAM-SHA-512", s.name("sam"))
    peer = s.stranger()
    peer.handshake("SCRAM-SHA-512")
    peer.token(Scram("SCRAM-SHA-512", name, "secret").first())
    peer.handshake("PLAIN")


@scenario(cases=["PLAIN", "SCRAM-SHA-256", "no-such"], versions="SaslHandshake")
def handshake_after_all(s: SecuredSession, mechanism: str, version: int) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    peer.handshake(mechanism, version)
    peer.call("ListGroups", 4, states_filter=["none"])


@scenario(versions="SaslAuthenticate")
def authenticate_after_all(s: SecuredSession, version: int) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    peer.token(plain("bob"), version)
    peer.call("ListGroups", 4, states_filter=["none"])


OTHERS = {
    "Metadata": (9, {"topics": []}),
    "ListGroups": (4, {}),
    "Produce": (9, {"acks": 1, "timeout_ms": 1, "topic_data": []}),
    "Fetch": (12, {"replica_id": -1, "topics": []}),
    "CreateAcls": (3, {"creations": []}),
    "DescribeUserScramCredentials": (0, {"users": None}),
    "CreateDelegationToken": (3, {"renewers": []}),
}


@scenario(cases=OTHERS)
def another_request_first(s: SecuredSession, case: tuple[int, dict[str, object]]) -> None:
    api = next(name for name, each in OTHERS.items() if each is case)
    s.stranger().call(api, case[0], **case[1])


@scenario(cases=OTHERS)
def another_request_after_versions(s: SecuredSession, case: tuple[int, dict[str, object]]) -> None:
    api = next(name for name, each in OTHERS.items() if each is case)
    ask_versions(s, 3)
    s.stranger().call(api, case[0], **case[1])


@scenario(cases=OTHERS)
def another_request_after_the_handshake(
    s: SecuredSession, case: tuple[int, dict[str, object]]
) -> None:
    api = next(name for name, each in OTHERS.items() if each is case)
    s.stranger().handshake("PLAIN")
    s.stranger().call(api, case[0], **case[1])


@scenario(cases=OTHERS)
def another_request_after_a_refusal(s: SecuredSession, case: tuple[int, dict[str, object]]) -> None:
    api = next(name for name, each in OTHERS.items() if each is case)
    peer = s.stranger()
    peer.handshake("PLAIN")
    peer.post("SaslAuthenticate", 2, auth_bytes=plain("ann", "wrong"))
    peer.post(api, case[0], **case[1])
    peer.receive()
    peer.ending()


@scenario(
    cases=["no-such", "", "plain", "GSSAPI", "PLAIN ", "SCRAM-SHA-1"], versions="SaslHandshake"
)
def unknown_mechanism(s: SecuredSession, mechanism: str, version: int) -> None:
    peer = s.stranger()
    peer.handshake(mechanism, version)
    peer.ending()


@scenario(cases=MECHANISMS, versions="SaslHandshake")
def known_mechanism(s: SecuredSession, mechanism: str, version: int) -> None:
    peer = s.stranger()
    peer.handshake(mechanism, version)
    peer.ending()


@scenario(cases={"two": 2, "far": 300, "minus": -1})
def handshake_in_no_such_version(s: SecuredSession, version: int) -> None:
    peer = s.stranger()
    number = version.to_bytes(2, "big", signed=True)
    peer.frame(b"\0\x11" + number + b"\0\0\0\7\0\1x\0\5PLAIN")
    peer.ending()


@scenario(cases={"three": 3, "minus": -1})
def authenticate_in_no_such_version(s: SecuredSession, version: int) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN")
    number = version.to_bytes(2, "big", signed=True)
    peer.frame(b"\0\x24" + number + b"\0\0\0\7\0\1x\0\x09\0ann\0ann\0")
    peer.ending()


GARBAGE = {
    "empty": b"",
    "one_byte": b"\0",
    "a_header_cut": b"\0\x11\0\1\0\0",
    "unknown_api": b"\x7f\x7f\0\1\0\0\0\7\0\1x",
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "tls": bytes.fromhex("160301020001000100"),
    "handshake_without_body": b"\0\x11\0\1\0\0\0\7\0\1x",
    "handshake_and_more": b"\0\x11\0\1\0\0\0\7\0\1x\0\5PLAIN\0\0\0",
    "handshake_of_null": b"\0\x11\0\1\0\0\0\7\0\1x\xff\xff",
    "handshake_cut": b"\0\x11\0\1\0\0\0\7\0\1x\0\x09PLAIN",
    "gssapi": bytes.fromhex("6082") + b"\0" * 40,
}


@scenario(cases=GARBAGE)
def garbage_first(s: SecuredSession, frame: bytes) -> None:
    peer = s.stranger()
    peer.frame(frame)
    peer.ending()


AFTER_HANDSHAKE = {
    "empty": b"",
    "one_byte": b"\0",
    "unknown_api": b"\x7f\x7f\0\1\0\0\0\7\0\1x",
    "body_cut": b"\0\x24\0\0\0\0\0\7\0\1x\0\0\0\x20\0ann",
    "null_token": b"\0\x24\0\0\0\0\0\7\0\1x\xff\xff\xff\xff",
    "negative_length": b"\0\x24\0\0\0\0\0\7\0\1x\xff\xff\xff\xfe",
    "a_token_without_header": plain("ann"),
}


@scenario(cases=AFTER_HANDSHAKE)
def garbage_after_the_handshake(s: SecuredSession, frame: bytes) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN")
    peer.frame(frame)
    peer.ending()


SIZES = {"524000": 524_000, "600000": 600_000}


@scenario(cases=SIZES)
def large_frame_first(s: SecuredSession, size: int) -> None:
    peer = s.stranger()
    peer.frame(b"\0\x11\0\1\0\0\0\7\0\1x\0\5PLAIN" + bytes(size))
    peer.ending()


@scenario(cases={"60000": 60_000, "100000": 100_000, **SIZES})
def large_token(s: SecuredSession, size: int) -> None:
    peer = s.stranger()
    peer.handshake("PLAIN")
    frame = codec.encode_request(
        "SaslAuthenticate", 2, {"auth_bytes": b"\0ann\0" + b"x" * size}, 9, CLIENT_ID
    )
    peer.post_raw("SaslAuthenticate", 2, frame)
    peer.receive()
    peer.ending()


@scenario(cases={"announced": b"\x7f\xff\xff\xff", "negative": b"\xff\xff\xff\xff"})
def length_of_a_frame(s: SecuredSession, length: bytes) -> None:
    peer = s.stranger()
    peer.connection.send_bytes(length + b"\0\x11\0\1")
    peer.ending()


@scenario(cases=FIRST)
def pipelined(s: SecuredSession, token: Callable[[], bytes]) -> None:
    """All requests are sent before the first answer is read."""
    mechanism = next(name for name, each in FIRST.items() if each is token)
    peer = s.stranger()
    peer.post("SaslHandshake", 1, mechanism=mechanism)
    peer.post("SaslAuthenticate", 2, auth_bytes=token())
    peer.receive()
    peer.receive()


@scenario
def pipelined_with_what_follows(s: SecuredSession) -> None:
    peer = s.stranger()
    peer.post("SaslHandshake", 1, mechanism="PLAIN")
    peer.post("SaslAuthenticate", 2, auth_bytes=plain("ann"))
    peer.post("ListGroups", 4, states_filter=["none"])
    for _ in range(3):
        peer.receive()
