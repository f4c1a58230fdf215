"""UpdateFeatures: finalized levels of features, and who may change them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any, Final

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Answer, Session
from tests.interop.differential.share_groups import ShareConsumer, begin_state, configure

API = "UpdateFeatures"

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
LEVELS: Final = {"group.version": 1, "share.version": 1, "transaction.version": 2}
"""What is finalized when a scenario begins, and ends."""
GROUP: Final = "group.version"


def update(feature: str, level: int, upgrade_type: int = UPGRADE) -> dict[str, Any]:
    return {
        "feature": feature,
        "max_version_level": level,
        "upgrade_type": upgrade_type,
        "allow_downgrade": upgrade_type != UPGRADE,
    }


def ask(s: Session, version: int, *updates: dict[str, Any], validate_only: bool = False) -> None:
    s.call(API, version, feature_updates=list(updates), validate_only=validate_only)


def ours(answer: Answer) -> Answer:
    """The finalized features that both brokers have."""
    found = {
        each["name"]: {"max": each["max_version_level"], "min": each["min_version_level"]}
        for each in answer["finalized_features"]
        if each["name"] in LEVELS
    }
    return {"error_code": answer["error_code"], "finalized": found}


def finalized(answer: Answer) -> dict[str, int]:
    return {
        each["name"]: each["max_version_level"]
        for each in answer["finalized_features"]
        if each["name"] in LEVELS
    }


def await_levels(s: Session, **levels: int) -> None:
    """Wait until these features (underscores stand for dots) have these levels; 0 is off."""
    wanted = {name.replace("_", "."): level for name, level in levels.items()}
    s.until(
        lambda answer: all(
            finalized(answer).get(name, 0) == level for name, level in wanted.items()
        ),
        "ApiVersions",
        4,
        client_software_name="differential",
        client_software_version="1",
    )


def show(s: Session) -> None:
    software = {"client_software_name": "differential", "client_software_version": "1"}
    s.call_for(ours, "ApiVersions", 4, **software)


@contextlib.contextmanager
def restored(s: Session) -> Iterator[None]:
    """Put every feature back at the end."""
    try:
        yield
    finally:
        s.main.close()
        s.quiet(API, 2, feature_updates=[update(name, level) for name, level in LEVELS.items()])
        await_levels(s, **{name.replace(".", "_"): level for name, level in LEVELS.items()})


@scenario(versions=[1, 2], cases={"safe": SAFE_DOWNGRADE, "unsafe": UNSAFE_DOWNGRADE})
def down_and_up(s: Session, kind: int, version: int) -> None:
    with restored(s):
        ask(s, version, update(GROUP, 0, kind))
        await_levels(s, group_version=0)
        show(s)
        ask(s, version, update(GROUP, 1))
        await_levels(s, group_version=1)
        show(s)


@scenario
def allowed_downgrade_of_version_0(s: Session) -> None:
    with restored(s):
        ask(s, 0, update(GROUP, 0, SAFE_DOWNGRADE))
        time.sleep(0.5)
        show(s)


@scenario(versions=[1, 2])
def one_level_down(s: Session, version: int) -> None:
    with restored(s):
        ask(s, version, update("transaction.version", 1, SAFE_DOWNGRADE))
        await_levels(s, transaction_version=1)
        show(s)


@scenario(versions=[1, 2])
def several_at_once(s: Session, version: int) -> None:
    with restored(s):
        lower = [update("transaction.version", 0, SAFE_DOWNGRADE), update(GROUP, 0, SAFE_DOWNGRADE)]
        ask(s, version, *lower)
        await_levels(s, transaction_version=0, group_version=0)
        show(s)


@scenario(versions=API)
def downgrade_without_permission(s: Session, version: int) -> None:
    ask(s, version, update(GROUP, 0))
    show(s)


@scenario(versions=API, cases={"upgrade": UPGRADE, "safe": SAFE_DOWNGRADE, "unsafe": 3})
def to_the_level_that_it_has(s: Session, kind: int, version: int) -> None:
    ask(s, version, update(GROUP, 1, kind))
    show(s)


@scenario(versions=[1, 2], cases={"safe": SAFE_DOWNGRADE, "unsafe": UNSAFE_DOWNGRADE})
def upgrade_called_a_downgrade(s: Session, kind: int, version: int) -> None:
    with restored(s):
        ask(s, version, update(GROUP, 0, SAFE_DOWNGRADE))
        await_levels(s, group_version=0)
        ask(s, version, update(GROUP, 1, kind))
        show(s)


@scenario(versions=[1, 2], cases={"zero": 0, "four": 4, "negative": -1})
def unknown_upgrade_type(s: Session, kind: int, version: int) -> None:
    ask(s, version, update(GROUP, 0, kind))
    ask(s, version, update(GROUP, 1, kind))


@scenario(versions=API, cases={"two": 2, "max": 32_767, "negative": -1, "min": -32_768})
def levels_that_nobody_supports(s: Session, level: int, version: int) -> None:
    ask(s, version, update(GROUP, level))
    ask(s, version, update(GROUP, level, SAFE_DOWNGRADE))
    show(s)


@scenario(versions=API, cases={"one": 1, "zero": 0, "negative": -1})
def unknown_feature(s: Session, level: int, version: int) -> None:
    ask(s, version, update("no.such.version", level))
    ask(s, version, update("no.such.version", level, SAFE_DOWNGRADE))
    ask(s, version, update("", level))


@scenario(versions=API)
def one_good_and_one_bad(s: Session, version: int) -> None:
    """All or none."""
    ask(s, version, update(GROUP, 0, SAFE_DOWNGRADE), update("no.such.version", 1))
    ask(s, version, update("transaction.version", 9), update(GROUP, 0, SAFE_DOWNGRADE))
    show(s)


@scenario(versions=API)
def two_bad_ones(s: Session, version: int) -> None:
    ask(s, version, update(GROUP, 7), update("no.such.version", 1))


@scenario(versions=API)
def a_feature_twice(s: Session, version: int) -> None:
    with restored(s):
        ask(s, version, update(GROUP, 1), update(GROUP, 0, SAFE_DOWNGRADE))
        time.sleep(0.5)
        show(s)


@scenario(versions=API)
def nothing(s: Session, version: int) -> None:
    ask(s, version)


@scenario(versions=[1, 2])
def validate_only(s: Session, version: int) -> None:
    ask(s, version, update(GROUP, 0, SAFE_DOWNGRADE), validate_only=True)
    ask(s, version, update(GROUP, 0), validate_only=True)
    ask(s, version, update("no.such.version", 1), validate_only=True)
    ask(s, version, validate_only=True)
    show(s)


@scenario(versions=API, cases={"zero": 0, "negative": -1, "one": 1})
def timeouts(s: Session, timeout_ms: int, version: int) -> None:
    s.call(API, version, feature_updates=[update(GROUP, 1)], timeout_ms=timeout_ms)


@scenario
def share_groups_that_are_switched_off(s: Session) -> None:
    topic, group = s.topic(), s.name("g")
    begin_state(s, group, topic)
    a = ShareConsumer(s, group)
    a.nothing(1, (topic, 0))
    with restored(s):
        ask(s, 2, update("share.version", 0, SAFE_DOWNGRADE))
        await_levels(s, share_version=0)
        a.nothing(1)
        a.acknowledge(1)
        heartbeat = {"group_id": group, "member_id": a.member_id, "member_epoch": 0}
        s.call("ShareGroupHeartbeat", 1, **heartbeat, rack_id=None, subscribed_topic_names=[topic])
        s.call("ShareGroupDescribe", 1, group_ids=[group], include_authorized_operations=False)
        named = {"group_id": group, "topics": [{"topic_name": topic, "partitions": [0]}]}
        s.call("DescribeShareGroupOffsets", 1, groups=[named])
        s.call("AlterShareGroupOffsets", 0, group_id=group, topics=[])
        s.call("DeleteShareGroupOffsets", 0, group_id=group, topics=[])
    a.nothing(1, share_session_epoch=1)


@scenario
def groups_of_consumers_that_are_switched_off(s: Session) -> None:
    with restored(s):
        ask(s, 2, update(GROUP, 0, SAFE_DOWNGRADE))
        await_levels(s, group_version=0)
        s.call(
            "ConsumerGroupHeartbeat",
            1,
            group_id=s.name("g"),
            member_id=s.name("m"),
            member_epoch=0,
            instance_id=None,
            rack_id=None,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            server_assignor=None,
            topic_partitions=[],
        )
        s.call(
            "ConsumerGroupDescribe", 1, group_ids=[s.name("g")], include_authorized_operations=False
        )
        configure(s, s.name("g"), consumer_session_timeout_ms=50_000)
