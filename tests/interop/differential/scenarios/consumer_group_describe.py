"""ConsumerGroupDescribe: the state of consumer groups."""

from __future__ import annotations

from tests.interop.differential.consumer_groups import ConsumerMember
from tests.interop.differential.groups import stable_group
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session

API = "ConsumerGroupDescribe"


def ask(s: Session, version: int, *groups: str) -> None:
    s.call(API, version, group_ids=list(groups), include_authorized_operations=False)


@scenario(versions=API)
def stable_and_empty(s: Session, version: int) -> None:
    topic = s.topic(partitions=2)
    a = ConsumerMember(s, s.name("g"))
    a.quiet_join(1, topic)
    a.settle(1)
    ask(s, version, a.group)
    a.peer.quiet("ConsumerGroupHeartbeat", 1, **a.fields(member_epoch=-1))
    ask(s, version, a.group)


@scenario(versions=API)
def unknown_and_classic(s: Session, version: int) -> None:
    classic = stable_group(s, s.name("classic"))
    ask(s, version, s.name("nobody"))
    ask(s, version, classic.group)
    ask(s, version, "")
    ask(s, version)


@scenario(versions=[5, 6])
def in_the_apis_of_classic_groups(s: Session, version: int) -> None:
    topic = s.topic()
    a = ConsumerMember(s, s.name("g"))
    a.quiet_join(1, topic)
    a.settle(1)
    s.call("DescribeGroups", version, groups=[a.group])
    s.call("DeleteGroups", 2, groups_names=[a.group])
    s.call("Heartbeat", 3, group_id=a.group, generation_id=a.epoch, member_id=a.member_id)
