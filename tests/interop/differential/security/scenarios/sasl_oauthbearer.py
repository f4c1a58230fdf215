"""OAUTHBEARER: unsecured tokens on two listeners, signed ones on the third (RFC 7628)."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.sasl import bearer, unsecured_token
from tests.interop.differential.security.session import SecuredSession
from tests.interop.differential.security.site import signed_token


def now_s() -> int:
    return int(time.time())


UNSECURED: dict[str, Callable[[], str]] = {
    "right": unsecured_token,
    "expired": lambda: unsecured_token(iat=now_s() - 900, exp=now_s() - 600),
    "issued_later": lambda: unsecured_token(iat=now_s() + 300, exp=now_s() + 600),
    "ends_before_it_begins": lambda: unsecured_token(iat=now_s() + 60, exp=now_s() + 30),
    "without_end": lambda: unsecured_token(exp=None),
    "without_beginning": lambda: unsecured_token(iat=None),
    "without_subject": lambda: unsecured_token(sub=None),
    "empty_subject": lambda: unsecured_token(sub=""),
    "blank_subject": lambda: unsecured_token(sub="  "),
    "subject_is_a_number": lambda: unsecured_token(sub=7),
    "end_is_text": lambda: unsecured_token(exp="soon"),
    "end_is_a_fraction": lambda: unsecured_token(exp=now_s() + 300.5),
    "with_scope": lambda: unsecured_token(scope=["a", "b"]),
    "scope_is_text": lambda: unsecured_token(scope="a b"),
    "scope_is_a_number": lambda: unsecured_token(scope=5),
    "signed": signed_token,
    "empty": lambda: "",
    "one_part": lambda: "abc",
    "two_parts": lambda: unsecured_token().rsplit(".", 1)[0],
    "four_parts": lambda: unsecured_token() + ".x",
    "no_json": lambda: "YWJj.YWJj.",
    "with_a_signature": lambda: unsecured_token() + "YWJj",
}
SIGNED: dict[str, Callable[[], str]] = {
    "right": signed_token,
    "elliptic": lambda: signed_token("two"),
    "another_key": lambda: signed_token("three"),
    "expired": lambda: signed_token(iat=now_s() - 900, exp=now_s() - 600),
    "without_end": lambda: signed_token(exp=None),
    "another_audience": lambda: signed_token(aud="elsewhere"),
    "one_of_two_audiences": lambda: signed_token(aud=["elsewhere", "differential"]),
    "without_audience": lambda: signed_token(aud=None),
    "without_subject": lambda: signed_token(sub=None),
    "empty_subject": lambda: signed_token(sub=""),
    "without_beginning": lambda: signed_token(iat=None),
    "not_before": lambda: signed_token(nbf=now_s() + 300),
    "unsecured": unsecured_token,
    "signature_changed": lambda: signed_token()[:-8] + "AAAAAAAA",
    "signature_missing": lambda: signed_token().rsplit(".", 1)[0] + ".",
    "scope": lambda: signed_token(scope="a b"),
    "scope_is_a_list": lambda: signed_token(scope=["a", "b"]),
    "empty": lambda: "",
    "garbage": lambda: "a.b.c",
}


@scenario(cases=UNSECURED)
def unsecured(s: SecuredSession, token: Callable[[], str]) -> None:
    peer = s.stranger()
    peer.handshake("OAUTHBEARER")
    answer = peer.token(bearer(token()))
    if answer and not answer["error_code"] and answer["auth_bytes"]:
        peer.token(b"\x01")
    peer.ending()


@scenario(cases=SIGNED)
def signed(s: SecuredSession, token: Callable[[], str]) -> None:
    peer = s.stranger("SECURE")
    peer.handshake("OAUTHBEARER")
    answer = peer.token(bearer(token()))
    if answer and not answer["error_code"] and answer["auth_bytes"]:
        peer.token(b"\x01")
    peer.ending()


@scenario(versions="SaslAuthenticate")
def each_version(s: SecuredSession, version: int) -> None:
    peer = s.stranger("SHORT")
    peer.handshake("OAUTHBEARER")
    peer.token(bearer(unsecured_token()), version)
    peer.ending()


@scenario(cases={"x01": b"\x01", "empty": b"", "other": b"abc"}, versions="SaslAuthenticate")
def after_a_refusal(s: SecuredSession, data: bytes, version: int) -> None:
    peer = s.stranger()
    peer.handshake("OAUTHBEARER")
    peer.token(bearer(unsecured_token(exp=now_s() - 600, iat=now_s() - 900)), version)
    peer.token(data, version)
    peer.ending()


MESSAGES: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "only_separator": lambda: b"\x01",
    "no_token": lambda: b"n,,\x01\x01",
    "basic": lambda: b"n,,\x01auth=Basic abc\x01\x01",
    "lower_case": lambda: b"n,,\x01auth=bearer " + unsecured_token().encode() + b"\x01\x01",
    "authzid_same": lambda: bearer(unsecured_token(), gs2_header="n,a=ann,"),
    "authzid_differs": lambda: bearer(unsecured_token(), gs2_header="n,a=bob,"),
    "channel_y": lambda: bearer(unsecured_token(), gs2_header="y,,"),
    "channel_p": lambda: bearer(unsecured_token(), gs2_header="p=tls-unique,,"),
    "no_header": lambda: bearer(unsecured_token(), gs2_header=""),
    "extension": lambda: bearer(unsecured_token(), extensions="trace=on\x01"),
    "extension_upper": lambda: bearer(unsecured_token(), extensions="TRACE=on\x01"),
    "extension_digits": lambda: bearer(unsecured_token(), extensions="trace1=on\x01"),
    "extension_named_auth": lambda: bearer(unsecured_token(), extensions="auth=Bearer x\x01"),
    "extension_empty": lambda: bearer(unsecured_token(), extensions="trace=\x01"),
    "extension_without_value": lambda: bearer(unsecured_token(), extensions="trace\x01"),
    "not_ended": lambda: bearer(unsecured_token())[:-1],
    "more_behind": lambda: bearer(unsecured_token()) + b"more",
    "spaces": lambda: b"n,,\x01auth=Bearer   " + unsecured_token().encode() + b"  \x01\x01",
    "no_utf_8": lambda: b"n,,\x01auth=Bearer \xff\xfe\x01\x01",
    "plain": lambda: b"\0ann\0ann",
}


@scenario(cases=MESSAGES)
def message(s: SecuredSession, data: Callable[[], bytes]) -> None:
    peer = s.stranger()
    peer.handshake("OAUTHBEARER")
    answer = peer.token(data())
    if answer and not answer["error_code"] and answer["auth_bytes"]:
        peer.token(b"\x01")
    peer.ending()
