"""Quotas: which answers say that the client is throttled, and what waits then (KIP-219)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.interop.differential.batches import batch
from tests.interop.differential.scenario import scenario
from tests.interop.differential.security.session import SecuredPeer, SecuredSession
from tests.interop.differential.session import Answer

SMALL = 1.0
"""Bytes a second: any record is more than the windows of eleven seconds hold."""
NOT_MUTED_S = 2.0
MUTED_S = 0.3
"""A connection that says nothing for so long is muted; one that is not answers in milliseconds."""
NOBODY_KNOWS_MS = 3_600_000
"""How long a client has to wait that gets no answer, or one without a field for it."""
CLIENT = "throttled"


def produce(s: SecuredSession, peer: SecuredPeer, topic: str, acks: int = -1) -> Answer:
    fields = s.produce_fields([(topic, 0, batch("x" * 5000))], version=9, acks=acks)
    return peer.call("Produce", 9, **fields)


def is_muted(s: SecuredSession, peer: SecuredPeer) -> None:
    """Record whether the connection takes no further request for as long as its last answer said.
    A machine with much to do answers late as well: who is told nothing has more time.
    """
    told_s = peer.told_ms / 1000
    peer.post("ApiVersions", 0)
    try:
        peer.connection.receive_frame(within_s=NOT_MUTED_S if told_s == 0 else MUTED_S)
    except TimeoutError:
        s.record("muted", "yes")
    else:
        has_waited = told_s > 0 and time.monotonic() - peer.asked_at_s >= 0.9 * told_s
        s.record("muted", "yes" if has_waited else "no")
    peer.close()


ENTITIES: dict[str, dict[str, str | None]] = {
    "user": {"user": "bob"},
    "user_default": {"user": None},
    "client": {"client-id": CLIENT},
    "client_default": {"client-id": None},
    "both": {"user": "bob", "client-id": CLIENT},
    "user_client_default": {"user": "bob", "client-id": None},
    "default_client": {"user": None, "client-id": CLIENT},
    "both_default": {"user": None, "client-id": None},
    "another_user": {"user": "bobby"},
    "another_client": {"client-id": "other"},
}


def bob(s: SecuredSession) -> SecuredPeer:
    """A super user would be throttled too; a user of his own is not confused with the others."""
    s.allow_all("bob")
    return s.user("bob", CLIENT)


@scenario(cases=ENTITIES)
def of_a_producer(s: SecuredSession, entity: dict[str, str | None]) -> None:
    topic = s.topic()
    peer = bob(s)
    s.quota(entity, producer_byte_rate=SMALL)
    produce(s, peer, topic)
    is_muted(s, peer)


@scenario(cases=["user", "client", "both", "another_user"])
def of_a_consumer(s: SecuredSession, name: str) -> None:
    topic = s.topic()
    peer = bob(s)
    s.fill(topic, batch("x" * 5000))
    s.quota(ENTITIES[name], consumer_byte_rate=SMALL)
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100_000}
    for _ in range(2):
        peer.call_for(
            without_records,
            "Fetch",
            11,
            replica_id=-1,
            max_wait_ms=0,
            max_bytes=100_000,
            topics=[{"topic": topic, "partitions": [part]}],
        )
        is_muted(s, peer)


def without_records(answer: Answer) -> Answer:
    """Whether records came is told by their number; an answer may be cut short by the quota."""
    for topic in answer["responses"]:
        for part in topic["partitions"]:
            part["records"] = b"" if not part["records"] else b"some"
    return {"throttle_time_ms": answer["throttle_time_ms"], "error_code": answer["error_code"]}


@scenario(cases={"acks_all": -1, "acks_1": 1})
def of_a_producer_with(s: SecuredSession, acks: int) -> None:
    topic = s.topic()
    peer = bob(s)
    s.quota({"user": "bob"}, producer_byte_rate=SMALL)
    produce(s, peer, topic, acks)
    is_muted(s, peer)


@scenario
def of_a_producer_that_wants_no_answer(s: SecuredSession) -> None:
    topic = s.topic()
    peer = bob(s)
    s.quota({"user": "bob"}, producer_byte_rate=SMALL)
    fields = s.produce_fields([(topic, 0, batch("x" * 5000))], version=9, acks=0)
    peer.post("Produce", 9, **fields)
    peer.forget_waiting()
    peer.told_ms = NOBODY_KNOWS_MS
    is_muted(s, peer)


REQUESTS: dict[str, tuple[int, dict[str, Any]]] = {
    "ApiVersions": (3, {"client_software_name": "a", "client_software_version": "1"}),
    "Metadata": (9, {"topics": []}),
    "ListGroups": (4, {"states_filter": ["none"]}),
    "FindCoordinator": (3, {"key": "g", "key_type": 0}),
    "DescribeCluster": (1, {}),
    "InitProducerId": (4, {"transactional_id": None, "transaction_timeout_ms": 1}),
    "SaslHandshake": (1, {"mechanism": "PLAIN"}),
    "DescribeClientQuotas": (1, {"components": [], "strict": False}),
    "Heartbeat": (4, {"group_id": "g", "member_id": "m"}),
}


@scenario(cases=REQUESTS)
def of_requests(s: SecuredSession, case: tuple[int, dict[str, Any]]) -> None:
    """The share of time: asked often enough, every answer that can say it says it."""
    api = next(name for name, each in REQUESTS.items() if each is case)
    s.quota({"user": "bob"}, request_percentage=0.001)
    peer = bob(s)
    deadline = time.monotonic() + 20
    throttled = False
    while not throttled and time.monotonic() < deadline:
        answer = peer.quiet("Metadata", 9, topics=[])
        throttled = answer["throttle_time_ms"] > 0
    s.record("throttled in the end", "yes" if throttled else "no")
    is_muted(s, peer)
    peer.call_for(throttle_only, api, case[0], **case[1])
    if api == "SaslHandshake":
        peer.told_ms = NOBODY_KNOWS_MS
    is_muted(s, peer)


def throttle_only(answer: Answer) -> Answer:
    return {key: answer[key] for key in ("throttle_time_ms", "error_code") if key in answer}


CHANGES: dict[str, Callable[[SecuredSession, str], tuple[str, int, dict[str, Any]]]] = {
    "CreateTopics_v7": lambda s, topic: ("CreateTopics", 7, creation(s)),
    "CreateTopics_v5": lambda s, topic: ("CreateTopics", 5, creation(s)),
    "CreatePartitions_v3": lambda s, topic: ("CreatePartitions", 3, more_partitions(topic)),
    "CreatePartitions_v2": lambda s, topic: ("CreatePartitions", 2, more_partitions(topic)),
    "DeleteTopics_v5": lambda s, topic: ("DeleteTopics", 5, {"topic_names": [topic]}),
    "DeleteTopics_v4": lambda s, topic: ("DeleteTopics", 4, {"topic_names": [topic]}),
}


def creation(s: SecuredSession) -> dict[str, Any]:
    topics = [
        {
            "name": s.name(label),
            "num_partitions": 20,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for label in ("new-1", "new-2")
    ]
    return {"topics": topics, "timeout_ms": 5000}


def more_partitions(topic: str) -> dict[str, Any]:
    wanted = [{"name": topic, "count": 40, "assignments": None}]
    return {"topics": wanted, "timeout_ms": 5000}


@scenario(cases=CHANGES)
def of_changes_of_the_controller(
    s: SecuredSession, change: Callable[[SecuredSession, str], tuple[str, int, dict[str, Any]]]
) -> None:
    """The quota is used up by one change: versions that know the error are refused the next,
    older ones are only told to wait.
    """
    topic = s.topic()
    peer = bob(s)
    s.quota({"user": "bob"}, controller_mutation_rate=0.1)
    first = creation(s)
    first["topics"] = [first["topics"][0] | {"name": s.name("first")}]
    peer.call("CreateTopics", 7, **first)
    is_muted(s, peer)
    api, version, fields = change(s, topic)
    peer.call(api, version, **{"timeout_ms": 5000, **fields})
    is_muted(s, peer)


@scenario
def of_changes_that_are_only_checked(s: SecuredSession) -> None:
    peer = bob(s)
    s.quota({"user": "bob"}, controller_mutation_rate=0.1)
    for _ in range(2):
        peer.call("CreateTopics", 7, **creation(s), validate_only=True)
        is_muted(s, peer)


@scenario
def of_a_super_user(s: SecuredSession) -> None:
    topic = s.topic()
    s.quota({"user": "root"}, producer_byte_rate=SMALL)
    peer = s.user("root", CLIENT)
    produce(s, peer, topic)
    is_muted(s, peer)


PRECEDENCE: dict[str, list[tuple[str, float]]] = {
    "client_of_user_before_user": [("both", 1e9), ("user", SMALL)],
    "user_before_client": [("user", 1e9), ("client", SMALL)],
    "user_before_defaults": [("user", 1e9), ("both_default", SMALL), ("user_default", SMALL)],
    "default_of_user_before_client": [("user_default", 1e9), ("client", SMALL)],
    "client_default_of_user_before_user": [("user_client_default", 1e9), ("user", SMALL)],
    "default_client_before_default": [("default_client", 1e9), ("user_default", SMALL)],
    "client_before_default": [("client", 1e9), ("client_default", SMALL)],
    "user_after_default_client": [("user", SMALL), ("default_client", 1e9)],
    "small_client_of_user": [("both", SMALL), ("user", 1e9), ("client", 1e9)],
}


@scenario(cases=PRECEDENCE)
def which_quota_holds(s: SecuredSession, quotas: list[tuple[str, float]]) -> None:
    topic = s.topic()
    peer = bob(s)
    for name, rate in quotas:
        s.quota(ENTITIES[name], producer_byte_rate=rate)
    produce(s, peer, topic)
    is_muted(s, peer)


@scenario
def a_quota_that_is_taken_away(s: SecuredSession) -> None:
    topic = s.topic()
    peer = bob(s)
    s.quota({"user": "bob"}, producer_byte_rate=SMALL)
    produce(s, peer, topic)
    is_muted(s, peer)
    s.forget_quotas()
    produce(s, peer, topic)
    is_muted(s, peer)


@scenario
def refused_records_count(s: SecuredSession) -> None:
    """Records for a topic that the client may not write to."""
    topic = s.topic()
    s.quota({"user": "bob"}, producer_byte_rate=SMALL)
    peer = s.user("bob", CLIENT)
    produce(s, peer, topic)
    is_muted(s, peer)
