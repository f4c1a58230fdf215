"""Share groups for scenarios: members, sessions of their consumers, the state of share partitions.

A share session needs no member: brokers take whoever names a group whose share partitions have
state. So most scenarios begin that state themselves (:func:`begin_state`) and fetch from there.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.interop.differential.session import EVENTUALLY_S, Answer, Peer, Session

HEARTBEAT: Final = "ShareGroupHeartbeat"

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Types of acknowledgements."""

NOTHING_MS: Final = 300
"""How long a fetch waits that is to find nothing."""

Place = tuple[str, int]
"""A topic and a partition."""
Batch = dict[str, Any]


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
        """Return the fields of a heartbeat that changes nothing."""
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "rack_id": None,
            "subscribed_topic_names": None,
        } | more

    def beat(self, **more: Any) -> Answer:
        """Send a heartbeat and record the answer."""
        return self._take(self.peer.call(HEARTBEAT, 1, **self.fields(**more)))

    def join(self, *topics: str, **more: Any) -> Answer:
        """Join and record the answer."""
        await_group(self.s, self.group)
        return self.beat(**({"member_epoch": 0, "subscribed_topic_names": list(topics)} | more))

    def quiet_join(self, *topics: str) -> None:
        """Join without recording, and wait until everything is assigned."""
        await_group(self.s, self.group)
        fields = self.fields(member_epoch=0, subscribed_topic_names=list(topics))
        answer = self._take(self.peer.quiet(HEARTBEAT, 1, **fields))
        assert answer["error_code"] == 0, answer
        self.settle()

    def quiet_beat(self) -> None:
        """Send a heartbeat without recording."""
        answer = self._take(self.peer.quiet(HEARTBEAT, 1, **self.fields()))
        assert answer["error_code"] == 0, answer

    def leave(self) -> None:
        """Leave without recording."""
        self.peer.quiet(HEARTBEAT, 1, **self.fields(member_epoch=-1))

    def settle(self) -> None:
        """Send heartbeats quietly until something is assigned, and nothing more comes."""
        deadline, quiet, assigned = time.monotonic() + EVENTUALLY_S, 0, None
        while quiet < 3 or not assigned:
            assert time.monotonic() < deadline, "the member does not settle"
            epoch = self.epoch
            answer = self._take(self.peer.quiet(HEARTBEAT, 1, **self.fields()))
            assert answer["error_code"] == 0, answer
            if answer["assignment"] is not None:
                assigned = answer["assignment"]["topic_partitions"]
            quiet = quiet + 1 if self.epoch == epoch and answer["assignment"] is None else 0
            time.sleep(0.05)

    def _take(self, answer: Answer) -> Answer:
        if answer.get("error_code") == 0:
            self.epoch = max(0, answer["member_epoch"])
        return answer


def await_stable(s: Session, *members: ShareMember) -> None:
    """Send heartbeats quietly until every member of the group is at its newest assignment."""
    deadline = time.monotonic() + EVENTUALLY_S
    while True:
        for each in members:
            each.quiet_beat()
        (group,) = s.quiet(
            "ShareGroupDescribe",
            1,
            group_ids=[members[0].group],
            include_authorized_operations=False,
        )["groups"]
        epochs = {each["member_epoch"] for each in group["members"]} | {group["assignment_epoch"]}
        if len(group["members"]) == len(members) and epochs == {group["group_epoch"]}:
            return
        assert time.monotonic() < deadline, f"the group does not settle: {group}"
        time.sleep(0.05)


class ShareConsumer:
    """The share session of one consumer, on a connection of its own.

    ``epoch`` is the one of the next request; requests that are answered without an error move it.
    """

    def __init__(self, s: Session, group: str, label: str = "a") -> None:
        self.s = s
        self.group = group
        self.peer: Peer = s.peer(label, client_id=f"client-{label}")
        self.member_id = str(uuid.uuid4())
        s.normaliser.know_name(self.member_id, f"member-{label}")
        self.epoch = 0

    def fetch_fields(
        self, *places: Place, acks: Mapping[Place, Sequence[Batch]] | None = None, **more: Any
    ) -> dict[str, Any]:
        """Return the fields of a ShareFetch that names ``places`` and acknowledges ``acks``."""
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 10_000,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": self.topics(dict.fromkeys(places, ()) | dict(acks or {})),
        } | more

    def topics(self, batches: Mapping[Place, Sequence[Batch]]) -> list[dict[str, Any]]:
        """Return the topics of a request: which partitions, and what is acknowledged of each."""
        topics: dict[str, dict[str, Any]] = {}
        for (name, index), of_partition in batches.items():
            named = self.s.topic_ref(name, by_id=True) | {"partitions": []}
            topics.setdefault(name, named)["partitions"].append(
                {"partition_index": index, "acknowledgement_batches": list(of_partition)}
            )
        return list(topics.values())

    def fetch(
        self,
        version: int,
        *places: Place,
        acks: Mapping[Place, Sequence[Batch]] | None = None,
        **more: Any,
    ) -> Answer:
        """Fetch and record the answer."""
        fields = self.fetch_fields(*places, acks=acks, **more)
        return self._take(self.peer.call("ShareFetch", version, **fields), fields)

    def nothing(self, version: int, *places: Place, **more: Any) -> Answer:
        """Fetch where there is nothing to be had, and record the answer."""
        return self.fetch(version, *places, **({"max_wait_ms": NOTHING_MS} | more))

    def quiet_fetch(self, *places: Place, **more: Any) -> Answer:
        """Fetch without recording."""
        fields = self.fetch_fields(*places, **more)
        answer = self._take(self.peer.quiet("ShareFetch", 1, **fields), fields)
        assert answer["error_code"] == 0, answer
        return answer

    def await_records(self, *places: Place, count: int = 1) -> None:
        """Fetch quietly until so many records are acquired."""
        deadline, got = time.monotonic() + EVENTUALLY_S, 0
        while got < count:
            assert time.monotonic() < deadline, f"{got} of {count} records were acquired"
            for topic in self.quiet_fetch(*places)["responses"]:
                for part in topic["partitions"]:
                    got += sum(
                        each["last_offset"] - each["first_offset"] + 1
                        for each in part["acquired_records"]
                    )

    def acknowledge_fields(
        self, acks: Mapping[Place, Sequence[Batch]], **more: Any
    ) -> dict[str, Any]:
        """Return the fields of a ShareAcknowledge."""
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "share_session_epoch": self.epoch,
            "topics": self.topics(acks),
        } | more

    def acknowledge(
        self, version: int, acks: Mapping[Place, Sequence[Batch]] | None = None, **more: Any
    ) -> Answer:
        """Acknowledge and record the answer."""
        fields = self.acknowledge_fields(acks or {}, **more)
        return self._take(self.peer.call("ShareAcknowledge", version, **fields), fields)

    def quiet_acknowledge(self, acks: Mapping[Place, Sequence[Batch]]) -> None:
        """Acknowledge without recording; it must succeed."""
        fields = self.acknowledge_fields(acks)
        answer = self._take(self.peer.quiet("ShareAcknowledge", 1, **fields), fields)
        codes = {
            part["error_code"] for topic in answer["responses"] for part in topic["partitions"]
        }
        assert {answer["error_code"]} | codes == {0}, answer

    def _take(self, answer: Answer, fields: Mapping[str, Any]) -> Answer:
        if answer.get("error_code") == 0:
            self.epoch = int(fields["share_session_epoch"]) + 1
        return answer


def ack(first: int, last: int, *types: int) -> Batch:
    """Return one batch of acknowledgements."""
    return {"first_offset": first, "last_offset": last, "acknowledge_types": list(types)}


def await_group(s: Session, group: str) -> None:
    """Wait until the group's coordinator answers."""
    s.until(lambda answer: answer["error_code"] == 0, "OffsetFetch", 5, group_id=group, topics=None)


def configure(s: Session, group: str, **settings: object) -> None:
    """Change settings of a group (underscores stand for dots), and wait until they are in force."""
    wanted = {name.replace("_", "."): str(value) for name, value in settings.items()}
    resource = {"resource_type": 32, "resource_name": group}
    changes = [
        {"name": name, "config_operation": 0, "value": value} for name, value in wanted.items()
    ]
    answer = s.quiet(
        "IncrementalAlterConfigs",
        1,
        resources=[resource | {"configs": changes}],
        validate_only=False,
    )
    assert answer["responses"][0]["error_code"] == 0, answer

    def in_force(described: Answer) -> bool:
        configs = described["results"][0]["configs"]
        return wanted.items() <= {each["name"]: each["value"] for each in configs}.items()

    s.until(
        in_force,
        "DescribeConfigs",
        4,
        resources=[resource | {"configuration_keys": None}],
        include_synonyms=False,
        include_documentation=False,
    )
    # Kafka shows a setting a moment before its share partitions go by it.
    time.sleep(0.2)


def lasting_topic(s: Session, label: str = "t", *, partitions: int = 1) -> str:
    """Create a topic whose records stay: those of scenarios are of a time long past."""
    return s.topic(label, partitions, {"retention.ms": "-1"})


def share_topic(s: Session, group: str, label: str = "t", *, partitions: int = 1) -> str:
    """Create a topic, and wait until the share coordinators know it."""
    topic = lasting_topic(s, label, partitions=partitions)
    data = [{"partition": index, "leader_epoch": -1} for index in range(partitions)]
    fields = state_fields(s, group, (topic, data))
    s.until(no_state_error, "ReadShareGroupStateSummary", 1, **fields)
    return topic


def group_topic(s: Session, group: str, label: str = "t", *, partitions: int = 1) -> str:
    """Create a topic, and wait until group and share coordinators know it."""
    topic = share_topic(s, group, label, partitions=partitions)
    named = [{"topic_name": topic, "partitions": list(range(partitions))}]
    s.until(
        lambda answer: answer["groups"][0]["topics"][0]["topic_id"] != "0" * 32,
        "DescribeShareGroupOffsets",
        1,
        groups=[{"group_id": group, "topics": named}],
    )
    # Kafka's shards hear of it a moment after their coordinator.
    time.sleep(0.1)
    return topic


def state_fields(
    s: Session, group: str, *parts: tuple[str, Sequence[Mapping[str, Any]]]
) -> dict[str, Any]:
    """Return the fields of a request for the state of share partitions."""
    return {
        "group_id": group,
        "topics": [
            s.topic_ref(topic, by_id=True) | {"partitions": list(partitions)}
            for topic, partitions in parts
        ],
    }


def begin_state(
    s: Session,
    group: str,
    topic: str,
    partitions: Sequence[int] = (0,),
    *,
    start_offset: int = 0,
    state_epoch: int = 0,
) -> None:
    """Begin the state of share partitions, as the group's coordinator does, quietly."""
    data = [
        {"partition": index, "state_epoch": state_epoch, "start_offset": start_offset}
        for index in partitions
    ]
    s.until(no_state_error, "InitializeShareGroupState", 0, **state_fields(s, group, (topic, data)))


def write_state(s: Session, group: str, topic: str, **more: Any) -> None:
    """Write to the state of partition 0, quietly; it must succeed."""
    data = write_data(**more)
    fields = state_fields(s, group, (topic, [data]))
    answer = s.quiet("WriteShareGroupState", 1, **fields)
    assert no_state_error(answer), answer


def write_data(**more: Any) -> dict[str, Any]:
    """Return a partition of WriteShareGroupState that changes nothing, but for what is given."""
    return {
        "partition": 0,
        "state_epoch": 0,
        "leader_epoch": 0,
        "start_offset": -1,
        "delivery_complete_count": 0,
        "state_batches": [],
    } | more


def state_batch(first: int, last: int, state: int, count: int = 1) -> dict[str, int]:
    """Return one batch of a share partition's state; 0 available, 2 acknowledged, 4 archived."""
    return {
        "first_offset": first,
        "last_offset": last,
        "delivery_state": state,
        "delivery_count": count,
    }


def no_state_error(answer: Answer) -> bool:
    """Return whether a request for state succeeded for every partition."""
    return all(
        each["error_code"] == 0 for result in answer["results"] for each in result["partitions"]
    )


def show_state(s: Session, group: str, topic: str, *, partition: int = 0) -> None:
    """Record what the share coordinator knows of a share partition."""
    read = state_fields(s, group, (topic, [{"partition": partition, "leader_epoch": 0}]))
    s.call("ReadShareGroupState", 0, **read)
    summary = state_fields(s, group, (topic, [{"partition": partition, "leader_epoch": -1}]))
    s.call("ReadShareGroupStateSummary", 1, **summary)
