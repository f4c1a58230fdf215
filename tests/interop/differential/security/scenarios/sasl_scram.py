"""SCRAM-SHA-256 and SCRAM-SHA-512: every message right and wrong (RFC 5802)."""

from __future__ import annotations

import time
from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.sasl import (
    CLIENT_NONCE,
    NUMBERS,
    SALT,
    Scram,
    salted_password,
)
from tests.interop.differential.security.session import SecuredPeer, SecuredSession

BOTH = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
HEADERS = {
    "n": "n,,",
    "y": "y,,",
    "p": "p=tls-unique,,",
    "p_exporter": "p=tls-exporter,,",
    "p_empty": "p=,,",
    "upper": "N,,",
    "none": "",
    "one_comma": "n,",
    "three_commas": "n,,,",
    "authzid_same": "n,a=ann,",
    "authzid_differs": "n,a=bob,",
    "authzid_empty": "n,a=,",
    "authzid_badly_escaped": "n,a=an=n,",
    "authzid_unnamed": "n,ann,",
}
FIRST = {
    "empty": b"",
    "only_header": b"n,,",
    "only_user": b"n,,n=ann",
    "no_user": f"n,,r={CLIENT_NONCE}".encode(),
    "empty_user": f"n,,n=,r={CLIENT_NONCE}".encode(),
    "no_nonce": b"n,,n=ann,r=",
    "nonce_first": f"n,,r={CLIENT_NONCE},n=ann".encode(),
    "nonce_with_space": b"n,,n=ann,r=abc def",
    "nonce_not_printable": b"n,,n=ann,r=abc\x01def",
    "mandatory_extension": f"n,,m=need,n=ann,r={CLIENT_NONCE}".encode(),
    "extension": f"n,,n=ann,r={CLIENT_NONCE},x=more".encode(),
    "tokenauth": f"n,,n=ann,r={CLIENT_NONCE},tokenauth=true".encode(),
    "extension_badly_written": f"n,,n=ann,r={CLIENT_NONCE},xmore".encode(),
    "escape_unknown": f"n,,n=a=3Xnn,r={CLIENT_NONCE}".encode(),
    "escape_cut": f"n,,n=ann=,r={CLIENT_NONCE}".encode(),
    "no_utf_8": b"n,,n=a\xffn,r=abc",
    "plain": b"\0ann\0ann",
    "nul_in_user": f"n,,n=a\0n,r={CLIENT_NONCE}".encode(),
    "final_message": f"c=biws,r={CLIENT_NONCE},p=AAAA".encode(),
}


def scram_user(s: SecuredSession, mechanism: str, name: str, iterations: int = 4096) -> str:
    """Create a user whose password is ``secret``, and wait until it is let in."""
    credential = {
        "name": name,
        "mechanism": NUMBERS[mechanism],
        "iterations": iterations,
        "salt": SALT,
        "salted_password": salted_password(mechanism, "secret", iterations),
    }
    answer = s.quiet("AlterUserScramCredentials", 0, deletions=[], upsertions=[credential])
    assert answer["results"][0]["error_code"] == 0, answer
    deadline = time.monotonic() + 20
    while not is_let_in(s, mechanism, name):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return name


def is_let_in(s: SecuredSession, mechanism: str, name: str) -> bool:
    peer = SecuredPeer(s, "quiet", "quiet", None, "PLAINTEXT")
    try:
        peer.quiet("SaslHandshake", 1, mechanism=mechanism)
        scram = Scram(mechanism, name, "secret")
        first = peer.quiet("SaslAuthenticate", 2, auth_bytes=scram.first())
        if first["error_code"]:
            return False
        final = scram.final(first["auth_bytes"])
        last = peer.quiet("SaslAuthenticate", 2, auth_bytes=final)
        return bool(last["error_code"] == 0)
    finally:
        peer.close()


def exchange(
    s: SecuredSession, scram: Scram, listener: str = "PLAINTEXT", version: int = 2, **wrong: Any
) -> SecuredPeer:
    """Run an exchange to its end, which may come early."""
    peer = s.stranger(listener)
    peer.handshake(scram.mechanism)
    first = peer.token(scram.first(), version)
    if first and not first["error_code"]:
        peer.token(scram.final(first["auth_bytes"], **wrong), version)
    return peer


@scenario(cases=BOTH, versions="SaslAuthenticate")
def right(s: SecuredSession, mechanism: str, version: int) -> None:
    name = scram_user(s, mechanism, s.name("sam"))
    peer = exchange(s, Scram(mechanism, name, "secret"), version=version)
    peer.call("ListGroups", 4, states_filter=["none"])


@scenario(cases=BOTH)
def over_tls(s: SecuredSession, mechanism: str) -> None:
    name = scram_user(s, mechanism, s.name("sam"))
    exchange(s, Scram(mechanism, name, "secret"), "SECURE").ending()


@scenario(cases=BOTH)
def wrong_password(s: SecuredSession, mechanism: str) -> None:
    name = scram_user(s, mechanism, s.name("sam"))
    exchange(s, Scram(mechanism, name, "wrong")).ending()


@scenario(cases=BOTH)
def more_iterations(s: SecuredSession, mechanism: str) -> None:
    name = scram_user(s, mechanism, s.name("sam"), 8192)
    exchange(s, Scram(mechanism, name, "secret")).ending()


@scenario(cases=BOTH)
def unknown_user(s: SecuredSession, mechanism: str) -> None:
    exchange(s, Scram(mechanism, s.name("nobody"), "secret")).ending()


@scenario(cases=BOTH)
def user_of_the_other_mechanism(s: SecuredSession, mechanism: str) -> None:
    other = next(each for each in BOTH if each != mechanism)
    name = scram_user(s, other, s.name("sam"))
    exchange(s, Scram(mechanism, name, "secret")).ending()


@scenario(cases=BOTH)
def user_that_was_deleted(s: SecuredSession, mechanism: str) -> None:
    name = scram_user(s, mechanism, s.name("sam"))
    deletion = {"name": name, "mechanism": NUMBERS[mechanism]}
    s.call("AlterUserScramCredentials", 0, deletions=[deletion], upsertions=[])
    while is_let_in(s, mechanism, name):
        time.sleep(0.01)
    exchange(s, Scram(mechanism, name, "secret")).ending()


@scenario(cases=HEADERS)
def header(s: SecuredSession, gs2_header: str) -> None:
    name = scram_user(s, "SCRAM-SHA-256", s.name("sam"))
    scram = Scram("SCRAM-SHA-256", name, "secret", gs2_header.replace("ann", name))
    exchange(s, scram).ending()


WRONG: dict[str, dict[str, Any]] = {
    "nonce_of_another": {"nonce": CLIENT_NONCE + "other"},
    "nonce_of_the_client": {"nonce": CLIENT_NONCE},
    "nonce_empty": {"nonce": ""},
    "proof_zero": {"proof": bytes(32)},
    "proof_short": {"proof": b"short"},
    "proof_long": {"proof": bytes(64)},
    "proof_empty": {"proof": b""},
    "channel_of_another": {"channel": b"y,,"},
    "channel_empty": {"channel": b""},
    "channel_with_data": {"channel": b"n,,data"},
    "extension": {"more": ",x=more"},
    "mandatory_extension": {"more": ",m=need"},
}


@scenario(cases=WRONG)
def final_message(s: SecuredSession, wrong: dict[str, Any]) -> None:
    name = scram_user(s, "SCRAM-SHA-256", s.name("sam"))
    exchange(s, Scram("SCRAM-SHA-256", name, "secret"), **wrong).ending()


@scenario(cases=FIRST)
def first_message(s: SecuredSession, data: bytes) -> None:
    name = scram_user(s, "SCRAM-SHA-256", s.name("sam"))
    peer = s.stranger()
    peer.handshake("SCRAM-SHA-256")
    peer.token(data.replace(b"n=ann", b"n=" + name.encode()))
    peer.ending()


FINAL = {
    "empty": b"",
    "no_proof": b"c=biws,r=abc",
    "no_base64": b"c=biws,r=abc,p=***",
    "first_again": f"n,,n=ann,r={CLIENT_NONCE}".encode(),
    "server_error": b"e=other-error",
    "no_utf_8": b"\xff\xfe",
}


@scenario(cases=FINAL)
def garbage_as_final_message(s: SecuredSession, data: bytes) -> None:
    name = scram_user(s, "SCRAM-SHA-256", s.name("sam"))
    peer = s.stranger()
    peer.handshake("SCRAM-SHA-256")
    peer.token(Scram("SCRAM-SHA-256", name, "secret").first())
    peer.token(data)
    peer.ending()


@scenario
def final_message_of_another_exchange(s: SecuredSession) -> None:
    name = scram_user(s, "SCRAM-SHA-256", s.name("sam"))
    scram = Scram("SCRAM-SHA-256", name, "secret")
    once = s.stranger(label="once")
    once.handshake("SCRAM-SHA-256")
    final = scram.final(once.token(scram.first())["auth_bytes"])
    again = s.stranger(label="again")
    again.handshake("SCRAM-SHA-256")
    again.token(scram.first())
    again.token(final)
    again.ending()


@scenario
def a_message_after_the_last(s: SecuredSession) -> None:
    name = scram_user(s, "SCRAM-SHA-256", s.name("sam"))
    peer = exchange(s, Scram("SCRAM-SHA-256", name, "secret"))
    peer.token(b"")
    peer.call("ListGroups", 4, states_filter=["none"])


@scenario(cases={"comma": "sam,x", "equals": "sam=x", "umlaut": "säm", "space": "sam x"})
def unusual_name(s: SecuredSession, label: str) -> None:
    name = s.name(label)
    credential = {
        "name": name,
        "mechanism": 1,
        "iterations": 4096,
        "salt": SALT,
        "salted_password": salted_password("SCRAM-SHA-256", "secret", 4096),
    }
    s.call("AlterUserScramCredentials", 0, deletions=[], upsertions=[credential])
    escaped = name.replace("=", "=3D").replace(",", "=2C")
    deadline = time.monotonic() + 5
    while not is_let_in(s, "SCRAM-SHA-256", escaped) and time.monotonic() < deadline:
        time.sleep(0.01)
    exchange(s, Scram("SCRAM-SHA-256", escaped, "secret")).ending()
    s.call("DescribeUserScramCredentials", 0, users=[{"name": name}])


@scenario(cases=BOTH)
def a_password_that_is_changed(s: SecuredSession, mechanism: str) -> None:
    name = scram_user(s, mechanism, s.name("sam"))
    credential = {
        "name": name,
        "mechanism": NUMBERS[mechanism],
        "iterations": 4096,
        "salt": SALT,
        "salted_password": salted_password(mechanism, "another", 4096),
    }
    s.call("AlterUserScramCredentials", 0, deletions=[], upsertions=[credential])
    while is_let_in(s, mechanism, name):
        time.sleep(0.01)
    exchange(s, Scram(mechanism, name, "secret")).ending()
