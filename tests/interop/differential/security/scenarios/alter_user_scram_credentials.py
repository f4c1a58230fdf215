"""AlterUserScramCredentials: right and wrong credentials, and what is described afterwards."""

from __future__ import annotations

from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.sasl import SALT
from tests.interop.differential.security.session import (
    ALTER,
    CLUSTER,
    SecuredSession,
    rule,
)

SHA_256, SHA_512 = 1, 2
SIZES = {SHA_256: 32, SHA_512: 64}


def upsertion(
    name: str,
    mechanism: int = SHA_256,
    iterations: int = 4096,
    salt: bytes = SALT,
    salted_password: bytes | None = None,
) -> dict[str, Any]:
    salted = b"p" * SIZES.get(mechanism, 32) if salted_password is None else salted_password
    return {
        "name": name,
        "mechanism": mechanism,
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted,
    }


def alter(
    s: SecuredSession,
    upsertions: list[dict[str, Any]],
    deletions: list[tuple[str, int]] = [],  # noqa: B006
) -> None:
    """Alter, wait until the broker goes by it, and describe the users that were named."""
    gone = [{"name": name, "mechanism": mechanism} for name, mechanism in deletions]
    s.call("AlterUserScramCredentials", 0, upsertions=upsertions, deletions=gone)
    s.catch_up()
    names = dict.fromkeys(each["name"] for each in upsertions + gone)
    s.call("DescribeUserScramCredentials", 0, users=[{"name": each} for each in names])


@scenario(cases={"sha_256": SHA_256, "sha_512": SHA_512})
def one(s: SecuredSession, mechanism: int) -> None:
    alter(s, [upsertion(s.name("sam"), mechanism)])


@scenario(cases={f"mechanism_{each}": each for each in (-1, 0, 3, 127)})
def unknown_mechanism(s: SecuredSession, mechanism: int) -> None:
    alter(s, [upsertion(s.name("sam"), mechanism)])
    alter(s, [], [(s.name("sam"), mechanism)])


ITERATIONS = [-1, 0, 1, 4095, 4096, 16384, 16385, 2147483647]


@scenario(cases={f"{each}": each for each in ITERATIONS})
def iterations(s: SecuredSession, count: int) -> None:
    alter(s, [upsertion(s.name("sam"), SHA_256, count)])
    alter(s, [upsertion(s.name("max"), SHA_512, count)])


@scenario
def empty_name(s: SecuredSession) -> None:
    alter(s, [upsertion("")])
    alter(s, [], [("", SHA_256)])


NAMES = {"default": "<default>", "umlaut": "Änne", "long": "x" * 300, "odd": "a=b,c/d *"}


@scenario(cases=NAMES)
def name(s: SecuredSession, text: str) -> None:
    alter(s, [upsertion(text)])
    alter(s, [], [(text, SHA_256)])


@scenario(cases={"empty": b"", "one_byte": b"x", "long": b"x" * 500, "1024": b"x" * 1024})
def salt(s: SecuredSession, data: bytes) -> None:
    alter(s, [upsertion(s.name("sam"), salt=data)])


@scenario(cases={"empty": b"", "short": b"x", "of_512": b"x" * 64, "long": b"x" * 500})
def salted_password(s: SecuredSession, data: bytes) -> None:
    alter(s, [upsertion(s.name("sam"), salted_password=data)])


@scenario
def both_mechanisms_one_after_the_other(s: SecuredSession) -> None:
    sam = s.name("sam")
    alter(s, [upsertion(sam, SHA_256)])
    alter(s, [upsertion(sam, SHA_512, 8192)])
    alter(s, [], [(sam, SHA_256)])
    alter(s, [], [(sam, SHA_512)])


@scenario
def both_mechanisms_at_once(s: SecuredSession) -> None:
    alter(s, [upsertion(s.name("sam"), SHA_256), upsertion(s.name("sam"), SHA_512)])


@scenario
def the_same_twice(s: SecuredSession) -> None:
    alter(s, [upsertion(s.name("sam")), upsertion(s.name("sam"))])


@scenario
def set_and_deleted_at_once(s: SecuredSession) -> None:
    sam = s.name("sam")
    alter(s, [upsertion(sam)], [(sam, SHA_256)])
    alter(s, [upsertion(sam)])
    alter(s, [upsertion(sam, SHA_512)], [(sam, SHA_256)])


@scenario
def deleted_twice_at_once(s: SecuredSession) -> None:
    sam = s.name("sam")
    alter(s, [upsertion(sam)])
    alter(s, [], [(sam, SHA_256), (sam, SHA_256)])


@scenario(cases={"sha_256": SHA_256, "sha_512": SHA_512})
def deletion_of_what_is_not_there(s: SecuredSession, mechanism: int) -> None:
    sam = s.name("sam")
    alter(s, [], [(sam, mechanism)])
    alter(s, [upsertion(sam, SHA_256)])
    alter(s, [], [(sam, SHA_512)])


@scenario
def good_and_bad_together(s: SecuredSession) -> None:
    alter(
        s,
        [
            upsertion(s.name("good")),
            upsertion(s.name("few"), iterations=1),
            upsertion(s.name("many"), iterations=100_000),
            upsertion(""),
            upsertion(s.name("unknown"), 9),
        ],
        [(s.name("absent"), SHA_256)],
    )


@scenario
def a_bad_one_twice(s: SecuredSession) -> None:
    alter(s, [upsertion(s.name("few"), iterations=1), upsertion(s.name("few"))])


@scenario
def none_at_all(s: SecuredSession) -> None:
    s.call("AlterUserScramCredentials", 0, upsertions=[], deletions=[])


@scenario
def changed(s: SecuredSession) -> None:
    alter(s, [upsertion(s.name("sam"))])
    alter(s, [upsertion(s.name("sam"), iterations=8192)])


@scenario
def not_allowed(s: SecuredSession) -> None:
    gone = [{"name": "max", "mechanism": SHA_256}]
    s.user().call(
        "AlterUserScramCredentials",
        0,
        upsertions=[upsertion("sam"), upsertion("sam")],
        deletions=gone,
    )


@scenario
def allowed_by_alter_on_the_cluster(s: SecuredSession) -> None:
    s.allow(rule(ALTER, CLUSTER, "kafka-cluster"))
    sam = s.name("sam")
    s.user().call("AlterUserScramCredentials", 0, upsertions=[upsertion(sam)], deletions=[])
    s.catch_up()
    s.user().call("DescribeUserScramCredentials", 0, users=[{"name": sam}])
