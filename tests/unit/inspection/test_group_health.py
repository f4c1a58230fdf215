"""What the doctor says of a group, finding by finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from tests.unit.inspection.sayings import the_one, typeable

from millstream.client.core.admin.group_descriptions import GroupDescription, GroupMember
from millstream.client.core.admin.producers import ActiveProducer
from millstream.client.doctor import Severity
from millstream.inspection.group_changes import judge_changes
from millstream.inspection.group_health import GroupSight, PendingCommits, judge_group
from millstream.model.topic import TopicPartition
from millstream.spark.lakehouse.settings import LoadSettings
from millstream.spark.lakehouse.table import TableName
from millstream.spark.locations.location import as_location

P0: Final = TopicPartition("t", 0)
P1: Final = TopicPartition("t", 1)


def member(name: str, *partitions: TopicPartition, **changed: Any) -> GroupMember:
    return GroupMember(
        **{
            "member_id": name,
            "instance_id": None,
            "client_id": name.partition("-")[0],
            "host": "h",
            "partitions": partitions,
            "target": partitions,
            "protocol": "classic",
            **changed,
        }
    )


def described(*members: GroupMember, **changed: Any) -> GroupDescription:
    return GroupDescription(
        **{
            "group": "g",
            "type": "classic",
            "state": "Stable",
            "protocol_type": "consumer",
            "assignor": "range",
            "coordinator": "b:1",
            "members": members,
            **changed,
        }
    )


WELL: Final = GroupSight(
    at_ms=0,
    description=described(member("a", P0), member("b", P1)),
    committed={P0: 10, P1: 10},
    starts={P0: 0, P1: 0},
    ends={P0: 10, P1: 10},
    stable={P0: 10, P1: 10},
    partitions={"t": 2},
    max_size=100,
    session_ms=(6_000, 1_800_000),
)
OPEN: Final = ActiveProducer(
    producer_id=7,
    producer_epoch=0,
    last_sequence=0,
    last_timestamp_ms=0,
    coordinator_epoch=0,
    transaction_start_offset=4,
)


def test_a_group_that_is_well() -> None:
    assert judge_group(WELL) == []
    assert judge_changes([WELL]) == []
    assert judge_changes([WELL, replace(WELL, at_ms=5_000)]) == []


@pytest.mark.parametrize(
    ("changed", "severity", "says", "mends"),
    [
        (
            {"description": described(state="Empty"), "committed": {P0: 3, P1: 10}},
            Severity.RISK,
            "no members (Empty), and 7 records wait",
            "consume t --group g",
        ),
        (
            {"description": described(state="Empty")},
            Severity.NOTE,
            "0 records wait",
            "consume t --group g",
        ),
        (
            {"description": described(member("a"), state="PreparingRebalance")},
            Severity.RISK,
            "rebalances (PreparingRebalance)",
            "doctor group g --watch",
        ),
        (
            {
                "description": described(
                    member("a", P0, P1, protocol="consumer"),
                    type="consumer",
                    assignor="uniform",
                    group_epoch=5,
                    assignment_epoch=4,
                )
            },
            Severity.RISK,
            "The assignment is of epoch 4, and the group is at epoch 5",
            "doctor group g --watch",
        ),
        (
            {
                "description": described(
                    member("a", P0, P1, target=(P0,), protocol="consumer"),
                    type="consumer",
                    state="Reconciling",
                    assignor="uniform",
                )
            },
            Severity.RISK,
            "Member a (a) at h has yet to give up t-1",
            "doctor group g --watch",
        ),
        (
            {"committed": {P0: 12, P1: 10}},
            Severity.BROKEN,
            "committed offset 12 is beyond the end 10",
            "reset-offsets g --topic t:0 --to latest --execute",
        ),
        (
            {"starts": {P0: 0, P1: 14}, "ends": {P0: 10, P1: 20}, "stable": {P0: 10, P1: 20}},
            Severity.RISK,
            "before the start 14: 4 records were deleted",
            "reset-offsets g --topic t:1 --to earliest --execute",
        ),
        (
            {
                "partitions": {"t": 2, "gone": None},
                "committed": {P0: 10, P1: 10, TopicPartition("gone", 0): 3},
            },
            Severity.NOTE,
            "of a topic that no longer exists",
            "delete-offsets g --topic gone",
        ),
        (
            {
                "partitions": {"t": 2, "gone": None},
                "description": described(member("a", P0, P1, topics=("t", "gone"))),
            },
            Severity.BROKEN,
            "it does not exist",
            "topic create gone",
        ),
        ({"leaderless": (P1,)}, Severity.BROKEN, "t-1: without a leader", "doctor cluster"),
        (
            {"description": described(member("a", P0))},
            Severity.BROKEN,
            "t-1: no member has it",
            "doctor group g",
        ),
        (
            {
                "partitions": {"t": 2, "old": 1},
                "committed": {P0: 10, P1: 10, TopicPartition("old", 0): 3},
                "ends": {P0: 10, P1: 10, TopicPartition("old", 0): 8},
            },
            Severity.NOTE,
            "no member reads it now",
            "delete-offsets g --topic old",
        ),
        (
            {"description": described(member("a", P0), member("b", P1), member("c"))},
            Severity.NOTE,
            "3 members share 2 partitions: 1 of them",
            "topic alter t --partitions 3",
        ),
        (
            {
                "description": described(
                    member("a", P0),
                    member("b", P1, protocol="consumer"),
                    type="consumer",
                    assignor="uniform",
                )
            },
            Severity.NOTE,
            "both protocols: a the classic one",
            "group describe g",
        ),
        (
            {"description": described(member("a", P0, P1), assignor="mine")},
            Severity.NOTE,
            "The assignor mine",
            "group describe g",
        ),
        (
            {"description": described(member("a"), protocol_type="connect", assignor="x")},
            Severity.NOTE,
            "no consumers (connect)",
            "group describe g",
        ),
        (
            {
                "pending": PendingCommits(
                    topic_partition=TopicPartition("__consumer_offsets", 3),
                    producers=(OPEN,),
                    holds_back=True,
                )
            },
            Severity.BROKEN,
            "An open transaction (producer 7) holds committed offsets",
            "doctor transactions __consumer_offsets",
        ),
        (
            {"ends": {P0: 10, P1: 30}},
            Severity.RISK,
            "t-1: the group has read up to the last stable offset",
            "doctor transactions t",
        ),
        ({"max_size": 2}, Severity.BROKEN, "group.max.size is 2", "group.max.size=4"),
        (
            {"session_ms": (6_000, 10_000)},
            Severity.RISK,
            "group.max.session.timeout.ms is 10000",
            "group.max.session.timeout.ms=1800000",
        ),
        (
            {"untold": {"limits of the coordinator": "not served"}},
            Severity.NOTE,
            "limits of the coordinator could not be found out: not served",
            "cluster api-versions",
        ),
    ],
)
def test_each_finding(changed: dict[str, Any], severity: Severity, says: str, mends: str) -> None:
    the_one(judge_group(replace(WELL, **changed)), severity, says, mends)


def of_a_load(**changed: Any) -> GroupSight:
    settings = LoadSettings(
        source={"subscribe": "t"}, table=TableName("delta", as_location("/data/my table"))
    )
    group = described(group=settings.group, state="Empty", protocol_type="", assignor="")
    return replace(WELL, description=group, **changed)


def test_the_group_of_a_load_needs_no_member() -> None:
    assert judge_group(of_a_load()) == []


def test_the_group_of_a_load_that_is_behind() -> None:
    sight = of_a_load(committed={P0: 3, P1: 10})
    says = "how far a load is: 7 records wait"
    found = the_one(judge_group(sight), Severity.NOTE, says, "group describe 'millstream-my table-")
    assert "consume" not in found.remedy
    assert "no members" not in found.sentence


@pytest.mark.parametrize(
    ("changed", "severity", "says", "mends"),
    [
        (
            {"committed": {P0: 12, P1: 10}},
            Severity.BROKEN,
            "A load is at offset 12, beyond the end 10",
            "load t --to NEW_TABLE",
        ),
        (
            {"starts": {P0: 0, P1: 14}, "ends": {P0: 10, P1: 14}, "stable": {P0: 10, P1: 14}},
            Severity.RISK,
            "A load is at offset 10, before the start 14: 4 records were deleted",
            "load t --to TABLE --option failOnDataLoss=false",
        ),
    ],
)
def test_resetting_the_group_of_a_load_is_not_advised(
    changed: dict[str, Any], severity: Severity, says: str, mends: str
) -> None:
    found = judge_group(of_a_load(**changed))
    the_one(found, severity, says, mends)
    assert not [each for each in found if "reset-offsets" in each.remedy]


def test_a_group_of_consumers_with_the_name_of_a_load_is_one_of_consumers() -> None:
    group = described(group="millstream-t-0123abcd", state="Empty")
    sight = replace(WELL, description=group, committed={P0: 3, P1: 10})
    the_one(judge_group(sight), Severity.RISK, "no members", "consume t")


def test_a_transaction_that_concerns_other_groups_is_not_told_of() -> None:
    place = TopicPartition("__consumer_offsets", 3)
    sight = replace(WELL, pending=PendingCommits(topic_partition=place, producers=(OPEN,)))
    assert judge_group(sight) == []


LATER: Final = replace(WELL, at_ms=10_000)


@pytest.mark.parametrize(
    ("sights", "severity", "says", "mends"),
    [
        (
            [WELL, replace(LATER, description=described(member("a", P0, P1)))],
            Severity.RISK,
            "b at h left: it was closed",
            "group describe g",
        ),
        (
            [WELL, replace(LATER, description=described(member("a", P0), member("b-2", P1)))],
            Severity.RISK,
            "b at h left and came back (1 times)",
            "group describe g",
        ),
        (
            [replace(WELL, description=described(member("a", P0, P1))), LATER],
            Severity.NOTE,
            "b at h joined",
            "group describe g",
        ),
        (
            [
                WELL,
                replace(WELL, description=described(*WELL.description.members, state="Preparing")),
                LATER,
            ],
            Severity.RISK,
            "within 10.0 s: Stable, then Preparing, then Stable",
            "group describe g",
        ),
        (
            [WELL, replace(LATER, description=replace(WELL.description, group_epoch=3))],
            Severity.RISK,
            "The group's epoch grew by 4",
            "group describe g",
        ),
        (
            [WELL, replace(LATER, description=replace(WELL.description, coordinator="c:2"))],
            Severity.RISK,
            "The coordinator moved to c:2",
            "doctor cluster",
        ),
        (
            [WELL, replace(LATER, description=described(member("a", P1), member("b", P0)))],
            Severity.NOTE,
            "t-0, t-1: moved from one member to another (2 moves)",
            "group describe g",
        ),
        (
            [WELL, replace(LATER, committed={P0: 60, P1: 60}, ends={P0: 110, P1: 110})],
            Severity.RISK,
            "from 0 to 100 records: 20 a second are written, and 10 committed by 2 members. More",
            "topic alter t --partitions 4",
        ),
        (
            [
                replace(WELL, ends={P0: 20, P1: 10}),
                replace(LATER, ends={P0: 20, P1: 10}),
            ],
            Severity.BROKEN,
            "t-0: nothing was committed within 10.0 s, although records wait and a at h",
            "group describe g",
        ),
    ],
)
def test_each_change(
    sights: Sequence[GroupSight], severity: Severity, says: str, mends: str
) -> None:
    the_one(judge_changes(sights), severity, says, mends)


def test_a_lag_that_only_trembles_is_none() -> None:
    first = replace(WELL, committed={P0: 0, P1: 10}, ends={P0: 1_000, P1: 10})
    later = replace(LATER, committed={P0: 100, P1: 10}, ends={P0: 1_110, P1: 10})
    found = judge_changes([first, later])
    for each in found:
        typeable(each)
    assert not [each for each in found if "lag" in each.sentence]
