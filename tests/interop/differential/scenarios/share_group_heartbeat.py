"""ShareGroupHeartbeat and ShareGroupDescribe: members of share groups (KIP-932)."""

from __future__ import annotations

import time
import uuid
from typing import Any

from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import EVENTUALLY_S, Answer, Session

API = "ShareGroupHeartbeat"


class ShareMember:
    """One member of a share group."""

    def __init__(self, s: Session, group: str, label: str = "a") -> None:
        self.s = s
        self.group = group
        self.peer = s.peer(label, client_id=f"client-{label}")
        self.member_id = str(uuid.uuid4())
        s.normaliser.know_name(self.member_id, f"member-{label}")
        self.epoch = 0

    def fields(self, **more: Any) -> dict[str, Any]:
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rack_id": None,
            "subscribed_topic_names": None,
        } | more

    def await_coordinator(self) -> None:
        self.s.until(
            lambda answer: answer["error_code"] == 0,
            "OffsetFetch",
            5,
            group_id=self.group,
            topics=None,
        )

    def beat(self, **more: Any) -> Answer:
        return self._take(self.peer.call(API, 1, **self.fields(**more)))

    def join(self, *topics: str, **more: Any) -> Answer:
        self.await_coordinator()
        return self.beat(**({"member_epoch": 0, "subscribed_topic_names": list(topics)} | more))

    def settle(self) -> None:
        """Send heartbeats quietly until something is assigned, and nothing more comes."""
        deadline, quiet, assigned = time.monotonic() + EVENTUALLY_S, 0, None
        while quiet < 3 or not assigned:
            assert time.monotonic() < deadline, "the member does not settle"
            epoch = self.epoch
            answer = self._take(self.peer.quiet(API, 1, **self.fields()))
            assert answer["error_code"] == 0, answer
            if answer["assignment"] is not None:
                assigned = answer["assignment"]["topic_partitions"]
            quiet = quiet + 1 if self.epoch == epoch and answer["assignment"] is None else 0
            time.sleep(0.05)

    def _take(self, answer: Answer) -> Answer:
        if answer.get("error_code") == 0:
            self.epoch = max(0, answer["member_epoch"])
        return answer


@scenario
def joins_and_leaves(s: Session) -> None:
    topic = s.topic(partitions=2)
    a = ShareMember(s, s.name("g"))
    a.await_coordinator()
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
