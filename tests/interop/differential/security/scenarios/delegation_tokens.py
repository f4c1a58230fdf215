"""Delegation tokens: made, renewed, expired, described, and used (KIP-48, KIP-373)."""

from __future__ import annotations

import base64
import time
from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.sasl import Scram, bearer, unsecured_token
from tests.interop.differential.security.session import (
    ALTER,
    CREATE_TOKENS,
    DENY,
    DESCRIBE,
    DESCRIBE_TOKENS,
    PREFIXED,
    TOKEN,
    USER,
    SecuredPeer,
    SecuredSession,
    rule,
)
from tests.interop.differential.session import Answer

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def create(
    peer: SecuredPeer,
    version: int = 3,
    *,
    renewers: list[tuple[str, str]] = [],  # noqa: B006
    life_ms: int = -1,
    owner: tuple[str | None, str | None] | None = None,
) -> Answer:
    fields: dict[str, Any] = {
        "renewers": [{"principal_type": kind, "principal_name": name} for kind, name in renewers],
        "max_lifetime_ms": life_ms,
    }
    if owner is not None:
        fields |= {"owner_principal_type": owner[0], "owner_principal_name": owner[1]}
    return peer.call("CreateDelegationToken", version, **fields)


def describe(
    s: SecuredSession,
    peer: SecuredPeer,
    owners: list[tuple[str, str]] | None = None,
    version: int = 3,
) -> None:
    """Record of the answer what belongs to this scenario."""
    wanted = None
    if owners is not None:
        wanted = [{"principal_type": kind, "principal_name": name} for kind, name in owners]
    answer = peer.quiet("DescribeDelegationToken", version, owners=wanted)
    mine = [each for each in answer["tokens"] if each["token_id"] in s.token_ids]
    label = "" if peer is s.main else f" as {peer.user_name}"
    s.record(f"DescribeDelegationToken v{version}{label}", answer | {"tokens": mine})


VERSIONS = "CreateDelegationToken"


@scenario(versions=VERSIONS)
def one(s: SecuredSession, version: int) -> None:
    create(s.user(), version)
    s.catch_up()
    describe(s, s.user(), version=version)


LIVES = {
    "default": -1,
    "minus_2": -2,
    "zero": 0,
    "a_millisecond": 1,
    "an_hour": HOUR_MS,
    "two_days": 2 * DAY_MS,
    "beyond": 30 * DAY_MS,
    "huge": 2**62,
    "lowest": -(2**63),
}


@scenario(cases=LIVES)
def life(s: SecuredSession, life_ms: int) -> None:
    create(s.user(), life_ms=life_ms)
    s.catch_up()
    describe(s, s.user())


RENEWERS = {
    "one": [("User", "bob")],
    "two": [("User", "bob"), ("User", "bobby")],
    "the_same_twice": [("User", "bob"), ("User", "bob")],
    "the_owner": [("User", "ann")],
    "another_type": [("Group", "bob")],
    "empty_type": [("", "bob")],
    "empty_name": [("User", "")],
    "wildcard": [("User", "*")],
}


@scenario(cases=RENEWERS)
def renewers(s: SecuredSession, who: list[tuple[str, str]]) -> None:
    create(s.user(), renewers=who)
    s.catch_up()
    describe(s, s.user())


OWNERS: dict[str, tuple[str | None, str | None]] = {
    "another": ("User", "bob"),
    "oneself": ("User", "ann"),
    "null": (None, None),
    "empty": ("", ""),
    "null_type": (None, "bob"),
    "empty_type": ("", "bob"),
    "null_name": ("User", None),
    "empty_name": ("User", ""),
    "another_type": ("Group", "bob"),
}


@scenario(cases=OWNERS)
def owner(s: SecuredSession, who: tuple[str | None, str | None]) -> None:
    create(s.user(), owner=who)


@scenario(cases=OWNERS)
def owner_by_a_super_user(s: SecuredSession, who: tuple[str | None, str | None]) -> None:
    create(s.user("root"), owner=who)
    s.catch_up()
    describe(s, s.user("root"))


@scenario
def owner_allowed(s: SecuredSession) -> None:
    s.allow(rule(CREATE_TOKENS, USER, "User:bob"))
    create(s.user(), owner=("User", "bob"))
    create(s.user(), owner=("User", "bobby"))
    s.catch_up()
    for name in ("ann", "bob", "bobby"):
        describe(s, s.user(name))


@scenario
def owner_allowed_by_prefix(s: SecuredSession) -> None:
    s.allow(
        rule(CREATE_TOKENS, USER, "User:bob", pattern=PREFIXED),
        rule(CREATE_TOKENS, USER, "User:bobby", permission=DENY),
    )
    create(s.user(), owner=("User", "bob"))
    create(s.user(), owner=("User", "bobby"))


@scenario(cases={"token": (DESCRIBE, TOKEN, "*"), "user": (DESCRIBE_TOKENS, USER, "User:bob")})
def described_by_another(s: SecuredSession, right: tuple[int, int, str]) -> None:
    create(s.user("bob"))
    create(s.user("bobby"))
    s.catch_up()
    describe(s, s.user())
    s.allow(rule(*right))
    describe(s, s.user())
    describe(s, s.user(), [("User", "bob")])
    describe(s, s.user(), [("User", "bobby")])


FILTERS: dict[str, list[tuple[str, str]] | None] = {
    "null": None,
    "empty": [],
    "oneself": [("User", "ann")],
    "another": [("User", "bob")],
    "several": [("User", "ann"), ("User", "bob"), ("User", "nobody")],
    "another_type": [("Group", "ann")],
    "empty_name": [("User", "")],
}


@scenario(cases=FILTERS)
def described(s: SecuredSession, owners: list[tuple[str, str]] | None) -> None:
    create(s.user("ann"))
    create(s.user("bob"), renewers=[("User", "ann")])
    s.catch_up()
    describe(s, s.user(), owners)
    describe(s, s.main, owners)


@scenario(cases=["ann", "bob", "bobby", "root"], versions=[1, 2])
def renewed(s: SecuredSession, name: str, version: int) -> None:
    token = create(s.user(), renewers=[("User", "bob")])
    s.catch_up()
    s.user(name).call(
        "RenewDelegationToken", version, hmac=token["hmac"], renew_period_ms=2 * HOUR_MS
    )
    s.catch_up()
    describe(s, s.user())


PERIODS = {
    "default": -1,
    "minus_2": -2,
    "zero": 0,
    "a_millisecond": 1,
    "an_hour": HOUR_MS,
    "two_days": 2 * DAY_MS,
    "beyond": 30 * DAY_MS,
    "huge": 2**62,
}


@scenario(cases=PERIODS)
def renewed_for(s: SecuredSession, period_ms: int) -> None:
    token = create(s.user())
    s.catch_up()
    s.user().call("RenewDelegationToken", 2, hmac=token["hmac"], renew_period_ms=period_ms)
    s.catch_up()
    describe(s, s.user())


@scenario
def renewed_beyond_its_end(s: SecuredSession) -> None:
    token = create(s.user(), life_ms=HOUR_MS)
    s.catch_up()
    s.user().call("RenewDelegationToken", 2, hmac=token["hmac"], renew_period_ms=2 * HOUR_MS)


@scenario(cases=PERIODS)
def expired_in(s: SecuredSession, period_ms: int) -> None:
    token = create(s.user())
    s.catch_up()
    s.user().call("ExpireDelegationToken", 2, hmac=token["hmac"], expiry_time_period_ms=period_ms)
    s.catch_up()
    describe(s, s.user())


@scenario(cases=["ann", "bob", "bobby", "root"], versions=[1, 2])
def expired(s: SecuredSession, name: str, version: int) -> None:
    token = create(s.user(), renewers=[("User", "bob")])
    s.catch_up()
    s.user(name).call(
        "ExpireDelegationToken", version, hmac=token["hmac"], expiry_time_period_ms=-1
    )
    s.catch_up()
    describe(s, s.user())
    s.user(name).call(
        "ExpireDelegationToken", version, hmac=token["hmac"], expiry_time_period_ms=-1
    )


@scenario(cases=["ann", "bob"])
def of_another_owner(s: SecuredSession, name: str) -> None:
    """The requester has no right to a token that it has asked for."""
    s.allow(rule(CREATE_TOKENS, USER, "User:bob"))
    token = create(s.user(), owner=("User", "bob"))
    s.catch_up()
    peer = s.user(name)
    peer.call("RenewDelegationToken", 2, hmac=token["hmac"], renew_period_ms=-1)
    peer.call("ExpireDelegationToken", 2, hmac=token["hmac"], expiry_time_period_ms=-1)


HMACS = {"unknown": b"x" * 64, "empty": b"", "short": b"x"}


@scenario(cases=HMACS, versions=[1, 2])
def no_such_hmac(s: SecuredSession, hmac: bytes, version: int) -> None:
    s.user().call("RenewDelegationToken", version, hmac=hmac, renew_period_ms=-1)
    s.user().call("ExpireDelegationToken", version, hmac=hmac, expiry_time_period_ms=-1)


def log_in(s: SecuredSession, token: Answer, mechanism: str, **wrong: str) -> SecuredPeer:
    """Authenticate with a token and record that."""
    password = wrong.get("password", base64.b64encode(token["hmac"]).decode())
    extensions = wrong.get("extensions", ",tokenauth=true")
    peer = s.stranger(label=wrong.get("label", "by token"))
    scram = Scram(mechanism, token["token_id"], password, extensions=extensions)
    peer.handshake(mechanism)
    first = peer.token(scram.first())
    if first and not first["error_code"]:
        peer.token(scram.final(first["auth_bytes"]))
    return peer


@scenario(cases=["SCRAM-SHA-256", "SCRAM-SHA-512"])
def used(s: SecuredSession, mechanism: str) -> None:
    """A client that came with a token acts as its owner, but for tokens."""
    topic = s.topic()
    s.allow(rule(DESCRIBE, 2, topic), rule(ALTER, 4, "kafka-cluster"))
    token = create(s.user())
    s.catch_up()
    peer = log_in(s, token, mechanism)
    peer.call("DescribeTopicPartitions", 0, topics=[{"name": topic}], response_partition_limit=1)
    create(peer)
    peer.call("DescribeDelegationToken", 3, owners=None)
    peer.call("RenewDelegationToken", 2, hmac=token["hmac"], renew_period_ms=-1)
    peer.call("ExpireDelegationToken", 2, hmac=token["hmac"], expiry_time_period_ms=-1)


WRONG = {
    "password": {"password": "wrong"},
    "without_extension": {"extensions": ""},
    "false": {"extensions": ",tokenauth=false"},
    "upper_case": {"extensions": ",tokenauth=TRUE"},
}


@scenario(cases=WRONG)
def used_in_a_wrong_way(s: SecuredSession, wrong: dict[str, str]) -> None:
    token = create(s.user())
    s.catch_up()
    log_in(s, token, "SCRAM-SHA-256", **wrong).ending()


@scenario
def used_after_its_end(s: SecuredSession) -> None:
    token = create(s.user())
    s.catch_up()
    s.user().call("ExpireDelegationToken", 2, hmac=token["hmac"], expiry_time_period_ms=-1)
    s.catch_up()
    time.sleep(0.05)
    log_in(s, token, "SCRAM-SHA-256").ending()


@scenario
def used_on_the_listener_whose_sessions_end(s: SecuredSession) -> None:
    token = create(s.user(), life_ms=30_000)
    s.catch_up()
    password = base64.b64encode(token["hmac"]).decode()
    scram = Scram("SCRAM-SHA-256", token["token_id"], password, extensions=",tokenauth=true")
    peer = s.stranger("SHORT")
    peer.handshake("SCRAM-SHA-256")
    first = peer.token(scram.first())
    peer.token(scram.final(first["auth_bytes"]))


@scenario(versions=VERSIONS)
def made_by_a_client_of_oauthbearer(s: SecuredSession, version: int) -> None:
    peer = s.stranger()
    peer.handshake("OAUTHBEARER")
    peer.token(bearer(unsecured_token(sub="carl")))
    create(peer, version)
