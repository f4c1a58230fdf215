"""What the doctor says of a cluster, sentence by sentence."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millstream.client.doctor import Severity, diagnose
from millstream.client.metadata import Broker
from millstream.client.replicas import ClusterView, Replicas
from millstream.client.settings import Address
from millstream.model.topic import TopicPartition


def brokers(*ids: int, racks: str = "") -> dict[int, Broker]:
    return {
        each: Broker(each, Address("h", each), racks[i] if racks else None)
        for i, each in enumerate(ids)
    }


WELL = Replicas(
    topic_partition=TopicPartition("t", 0),
    leader=1,
    replicas=(1, 2, 3),
    isr=(1, 2, 3),
    elr=(),
    last_known_elr=(),
    min_insync_replicas=2,
    lag={},
    size_bytes=0,
)


def view(*partitions: Replicas, live: tuple[int, ...] = (1, 2, 3), racks: str = "") -> ClusterView:
    return ClusterView(
        cluster_id="c",
        controller_id=live[0],
        brokers=brokers(*live, racks=racks),
        partitions=partitions or (WELL,),
    )


def test_a_healthy_cluster_needs_no_doctor() -> None:
    assert diagnose(view()) == []


@pytest.mark.parametrize(
    ("changed", "severity", "says"),
    [
        ({"isr": (1, 2)}, Severity.RISK, "t-0: the loss of one more broker stops writes"),
        ({"isr": (1,), "elr": (2,)}, Severity.BROKEN, "t-0: writes with acks=all are refused"),
        (
            {"isr": (1, 2), "min_insync_replicas": 1},
            Severity.RISK,
            "not all replicas are in sync",
        ),
        (
            {"leader": -1, "isr": (), "elr": (2, 3)},
            Severity.BROKEN,
            "all of its records are with brokers 2 and 3. Start one of them.",
        ),
        (
            {"leader": -1, "isr": (), "last_known_elr": (2,)},
            Severity.BROKEN,
            "Start broker 2: then the longest log will lead.",
        ),
        ({"leader": 2}, Severity.NOTE, "not led by the preferred replica"),
        ({"min_insync_replicas": 3}, Severity.RISK, "every stop of a broker stops writes"),
        ({"replicas": (1,), "isr": (1,), "min_insync_replicas": 1}, Severity.RISK, "one replica"),
    ],
)
def test_each_risk_has_its_sentence(
    changed: dict[str, object], severity: Severity, says: str
) -> None:
    (found,) = diagnose(view(replace(WELL, **changed)))  # type: ignore[arg-type]
    assert found.severity is severity
    assert says in found.sentence


def test_a_broker_that_is_down_is_named_with_what_it_keeps() -> None:
    found = diagnose(view(replace(WELL, isr=(1, 2)), live=(1, 2)))
    assert any("Broker 3 is down; 1 partition has a replica on it." in e.sentence for e in found)


def test_what_moves_off_a_broker_that_is_down_fits_on_the_others() -> None:
    wide = replace(WELL, isr=(1, 2))
    narrow = replace(
        WELL, topic_partition=TopicPartition("n", 0), replicas=(2, 3), isr=(2,), leader=2
    )

    def advice(*partitions: Replicas) -> str:
        found = diagnose(view(*partitions, live=(1, 2)))
        return next(each.sentence for each in found if "is down" in each.sentence)

    assert advice(narrow).endswith("or move the replicas: millstream cluster reassign --execute.")
    assert "reassign" not in advice(wide), "three replicas do not fit on two brokers"
    assert "--replication-factor 2" in advice(wide)
    assert "reassign --execute. t-0 would need 3, and 2 are alive." in advice(wide, narrow)


def test_the_worst_comes_first_and_long_lists_are_cut() -> None:
    many = [
        replace(WELL, topic_partition=TopicPartition("t", index), isr=(1,), elr=(2, 3))
        for index in range(9)
    ]
    found = diagnose(view(*many, replace(WELL, leader=2)), [])
    assert [each.severity for each in found] == [Severity.BROKEN, Severity.NOTE]
    assert "t-4 and 4 more partitions:" in found[0].sentence


def test_racks_and_moves_and_a_missing_controller() -> None:
    (found,) = diagnose(
        view(replace(WELL, replicas=(1, 2), isr=(1, 2), min_insync_replicas=1), racks="aab")
    )
    assert "all replicas stand in one rack" in found.sentence
    moving = TopicPartition("t", 0)
    (note,) = diagnose(view(), [moving])
    assert note.sentence == "t-0: on the way to other brokers."
    (none,) = diagnose(replace(view(), controller_id=-1))
    assert "There is no controller" in none.sentence


def test_a_controller_that_does_not_answer_is_none() -> None:
    findings = diagnose(view(), None)
    assert [each.severity for each in findings] == [Severity.BROKEN]
    assert "no controller" in findings[0].sentence


def test_limits_on_replication_are_told() -> None:
    findings = diagnose(view(), limited=[3, 1])
    assert [each.severity for each in findings] == [Severity.NOTE]
    assert "limited on brokers 1 and 3" in findings[0].sentence
