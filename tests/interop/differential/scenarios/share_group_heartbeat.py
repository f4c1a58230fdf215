"""ShareGroupHeartbeat and ShareGroupDescribe: members of share groups (KIP-932)."""

from __future__ import annotations

import uuid
from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.share_groups import ShareMember


@scenario
def joins_and_leaves(s: Session) -> None:
    topic = s.topic(partitions=2)
    a = ShareMember(s, s.name("g"))
    a.join(topic)
    a.settle()
    a.beat()
    s.call("ShareGroupDescribe", 1, group_ids=[a.group], include_authorized_operations=False)
    a.beat(member_epoch=-1)
    s.call("ShareGroupDescribe", 1, group_ids=[a.group], include_authorized_operations=False)


@scenario(
    cases={
        "no_group": {"group_id": ""},
        "no_member": {"member_id": ""},
        "negative_epoch": {"member_epoch": -5},
        "no_topics": {"subscribed_topic_names": None},
        "no_names": {"subscribed_topic_names": []},
        "empty_rack": {"rack_id": ""},
        "leaves": {"member_epoch": -1},
        "unknown_epoch": {"member_epoch": 3},
    },
)
def first_heartbeat(s: Session, more: dict[str, Any]) -> None:
    ShareMember(s, s.name("g")).join(s.topic(), **more)


@scenario
def wrong_epochs(s: Session) -> None:
    a = ShareMember(s, s.name("g"))
    a.join(s.topic())
    a.settle()
    a.beat(member_epoch=a.epoch + 1)
    a.beat(member_epoch=a.epoch - 1)
    a.beat(member_id=str(uuid.UUID(int=7)))


@scenario
def unknown_groups(s: Session) -> None:
    s.call(
        "ShareGroupDescribe", 1, group_ids=[s.name("nobody")], include_authorized_operations=False
    )
