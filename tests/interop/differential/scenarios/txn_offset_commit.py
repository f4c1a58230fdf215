"""TxnOffsetCommit: offsets of a group that count with a transaction."""

from __future__ import annotations

from tests.interop.differential.groups import stable_group
from tests.interop.differential.scenario import scenario
from tests.interop.differential.session import Session
from tests.interop.differential.transactions import ENDS, Transactor

API = "TxnOffsetCommit"


def generation(version: int) -> int:
    return 2 if version >= 5 else 1


def ready(s: Session, version: int) -> tuple[Transactor, str, str]:
    """Return a producer whose transaction has the group, the group and a topic."""
    group, topic = s.name("g"), s.topic()
    x = Transactor(s, version=generation(version)).begin()
    x.await_group(group)
    if x.version == 1:
        s.until(
            lambda answer: answer["error_code"] == 0,
            "AddOffsetsToTxn",
            3,
            **x.identity(group_id=group),
        )
    return x, group, topic


def committed(s: Session, group: str, topic: str, *, stable: bool) -> None:
    """Ask what the group has committed."""
    wanted = [{"name": topic, "partition_indexes": [0]}]
    s.call("OffsetFetch", 7, group_id=group, topics=wanted, require_stable=stable)


@scenario(versions=API, cases=ENDS)
def counts_with_its_transaction(s: Session, commit: bool, version: int) -> None:
    x, group, topic = ready(s, version)
    s.call(API, version, **x.offset_fields(group, topic))
    committed(s, group, topic, stable=False)
    committed(s, group, topic, stable=True)
    x.end(commit=commit)
    s.until(
        lambda answer: answer["topics"][0]["partitions"][0]["error_code"] == 0,
        "OffsetFetch",
        7,
        group_id=group,
        topics=[{"name": topic, "partition_indexes": [0]}],
        require_stable=True,
    )
    committed(s, group, topic, stable=True)


@scenario(versions=API)
def without_the_group_in_the_transaction(s: Session, version: int) -> None:
    group, topic = s.name("g"), s.topic()
    x = Transactor(s).begin()
    x.await_group(group)
    s.call(API, version, **x.offset_fields(group, topic))


@scenario(versions=API)
def unknown_topic(s: Session, version: int) -> None:
    x, group, _ = ready(s, version)
    s.call(API, version, **x.offset_fields(group, s.name("absent")))


@scenario(versions=API)
def older_epoch(s: Session, version: int) -> None:
    x, group, topic = ready(s, version)
    x.begin()
    x.epoch -= 1
    s.call(API, version, **x.offset_fields(group, topic))


@scenario(versions=[3, 4, 5], cases={"generation": 1, "member": 2, "both": 3})
def of_another_member(s: Session, what: int, version: int) -> None:
    x, group, topic = ready(s, version)
    member = stable_group(s, group)
    fields = x.offset_fields(group, topic)
    fields["generation_id"] = member.generation + (what & 1)
    fields["member_id"] = "nobody" if what & 2 else member.member_id
    s.call(API, version, **fields)


@scenario(versions=[3, 4, 5])
def of_a_member(s: Session, version: int) -> None:
    x, group, topic = ready(s, version)
    member = stable_group(s, group)
    fields = x.offset_fields(group, topic)
    fields |= {"generation_id": member.generation, "member_id": member.member_id}
    s.call(API, version, **fields)


@scenario(versions=API)
def empty_group(s: Session, version: int) -> None:
    x, _, topic = ready(s, version)
    s.call(API, version, **x.offset_fields("", topic))


@scenario(versions=[3, 5])
def metadata_too_large(s: Session, version: int) -> None:
    x, group, topic = ready(s, version)
    fields = x.offset_fields(group, topic)
    fields["topics"][0]["partitions"][0]["committed_metadata"] = "n" * 5_000
    s.call(API, version, **fields)


@scenario
def group_deleted_while_it_is_open(s: Session) -> None:
    x, group, topic = ready(s, 3)
    s.quiet(API, 3, **x.offset_fields(group, topic))
    s.call("DeleteGroups", 2, groups_names=[group])
    x.end()
    committed(s, group, topic, stable=True)
