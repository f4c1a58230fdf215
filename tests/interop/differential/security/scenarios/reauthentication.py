"""Sessions that end, and clients that authenticate again (KIP-368)."""

from __future__ import annotations

import time
from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.sasl import Scram, bearer, plain, unsecured_token
from tests.interop.differential.security.scenarios.sasl_scram import scram_user
from tests.interop.differential.security.session import SecuredPeer, SecuredSession
from tests.interop.differential.security.settings import PLAIN_SESSION_MS

PAST_ITS_END_S = PLAIN_SESSION_MS / 1000 + 0.2
MECHANISM = "SCRAM-SHA-256"


def serves(peer: SecuredPeer) -> None:
    peer.call("ListGroups", 4, states_filter=["none"])


def exchange(
    peer: SecuredPeer, name: str, password: str = "secret", version: int = 2, handshake: int = 1
) -> None:
    scram = Scram(MECHANISM, name, password)
    peer.handshake(MECHANISM, handshake)
    first = peer.token(scram.first(), version)
    if first and not first["error_code"]:
        peer.token(scram.final(first["auth_bytes"]), version)


@scenario(versions="SaslAuthenticate")
def lifetime_of_plain(s: SecuredSession, version: int) -> None:
    peer = s.stranger("SHORT")
    peer.handshake("PLAIN")
    peer.token(plain("ann"), version)


@scenario(versions="SaslAuthenticate")
def lifetime_of_scram(s: SecuredSession, version: int) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    exchange(s.stranger("SHORT"), name, version=version)


@scenario(cases={"300_s": 300, "45_s": 45, "a_week": 604_800})
def lifetime_of_a_token(s: SecuredSession, life_s: int) -> None:
    peer = s.stranger("SHORT")
    peer.handshake("OAUTHBEARER")
    peer.token(bearer(unsecured_token(exp=int(time.time()) + life_s)))


@scenario(versions="SaslAuthenticate")
def use_after_the_end(s: SecuredSession, version: int) -> None:
    """A client that cannot say so (version 0 tells no lifetime) is closed all the same."""
    peer = s.stranger("SHORT")
    peer.handshake("PLAIN")
    peer.token(plain("ann"), version)
    serves(peer)
    time.sleep(PAST_ITS_END_S)
    serves(peer)


@scenario
def use_after_the_end_with_raw_tokens(s: SecuredSession) -> None:
    peer = s.stranger("SHORT")
    peer.handshake("PLAIN", 0)
    peer.raw_token(plain("ann"))
    serves(peer)
    time.sleep(PAST_ITS_END_S)
    serves(peer)


@scenario
def versions_after_the_end(s: SecuredSession) -> None:
    peer = s.stranger("SHORT")
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    time.sleep(PAST_ITS_END_S)
    peer.call("ApiVersions", 0)


@scenario
def an_idle_connection_is_kept_after_the_end(s: SecuredSession) -> None:
    peer = s.stranger("SHORT")
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    time.sleep(PAST_ITS_END_S)
    peer.ending(idle=True)


@scenario
def again_after_the_end(s: SecuredSession) -> None:
    peer = s.stranger("SHORT")
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    time.sleep(PAST_ITS_END_S)
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    serves(peer)


@scenario(versions="SaslAuthenticate")
def the_same_user_again(s: SecuredSession, version: int) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger("SHORT")
    exchange(peer, name, version=version)
    serves(peer)
    exchange(peer, name, version=version)
    serves(peer)


@scenario
def the_same_user_again_by_handshake_0(s: SecuredSession) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger("SHORT")
    exchange(peer, name)
    exchange(peer, name, handshake=0)
    serves(peer)


@scenario
def another_user(s: SecuredSession) -> None:
    one, other = (scram_user(s, MECHANISM, s.name(each)) for each in ("one", "other"))
    peer = s.stranger("SHORT")
    exchange(peer, one)
    exchange(peer, other)
    peer.ending()


@scenario
def another_user_of_plain(s: SecuredSession) -> None:
    peer = s.stranger("SHORT")
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    peer.handshake("PLAIN")
    peer.token(plain("bob"))
    peer.ending()


@scenario(cases=["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def another_mechanism(s: SecuredSession, mechanism: str) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger("SHORT")
    exchange(peer, name)
    peer.handshake(mechanism)
    peer.token(plain("ann"))
    peer.ending()


@scenario
def unknown_mechanism(s: SecuredSession) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger("SHORT")
    exchange(peer, name)
    peer.handshake("no-such")
    peer.ending()


@scenario
def wrong_password(s: SecuredSession) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger("SHORT")
    exchange(peer, name)
    exchange(peer, name, "wrong")
    peer.ending()


@scenario
def wrong_password_of_plain(s: SecuredSession) -> None:
    peer = s.stranger("SHORT")
    peer.handshake("PLAIN")
    peer.token(plain("ann"))
    peer.handshake("PLAIN")
    peer.token(plain("ann", "wrong"))
    peer.ending()


@scenario
def too_soon_the_second_time(s: SecuredSession) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger("SHORT")
    exchange(peer, name)
    exchange(peer, name)
    peer.handshake(MECHANISM)
    serves(peer)


@scenario
def a_second_later(s: SecuredSession) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger("SHORT")
    exchange(peer, name)
    exchange(peer, name)
    time.sleep(1.1)
    exchange(peer, name)
    serves(peer)


OTHERS: dict[str, tuple[int, dict[str, Any]]] = {
    "ListGroups": (4, {"states_filter": ["none"]}),
    "ApiVersions": (0, {}),
    "SaslHandshake": (1, {"mechanism": MECHANISM}),
}


@scenario(cases=OTHERS)
def another_request_during_it(s: SecuredSession, case: tuple[int, dict[str, Any]]) -> None:
    api = next(name for name, each in OTHERS.items() if each is case)
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger("SHORT")
    exchange(peer, name)
    peer.handshake(MECHANISM)
    peer.call(api, case[0], **case[1])
    peer.ending()


@scenario
def authenticate_without_handshake(s: SecuredSession) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger("SHORT")
    exchange(peer, name)
    peer.token(Scram(MECHANISM, name, "secret").first())
    serves(peer)


@scenario
def where_sessions_do_not_end(s: SecuredSession) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger()
    exchange(peer, name)
    peer.handshake(MECHANISM)
    peer.token(Scram(MECHANISM, name, "secret").first())
    serves(peer)


@scenario(cases={"same": "ann", "another": "bob"})
def again_by_token(s: SecuredSession, subject: str) -> None:
    peer = s.stranger()
    for name in ("ann", subject):
        peer.handshake("OAUTHBEARER")
        peer.token(bearer(unsecured_token(sub=name)))
    peer.ending()


@scenario
def a_session_is_not_made_longer_by_a_failure(s: SecuredSession) -> None:
    name = scram_user(s, MECHANISM, s.name("sam"))
    peer = s.stranger("SHORT")
    exchange(peer, name)
    exchange(peer, s.name("nobody"))
    peer.ending()
