"""Every call of ``access_calls`` × denied, one rule missing, allowed, and a resource that is not
there; and what each broker answers, as far as it is about access.

What is kept of an answer: error codes, names and ids, authorized operations. Lists are sorted, for
Kafka puts what is refused anywhere.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.interop.differential.authorization.client import Client, Rules
from tests.interop.differential.authorization.settings import ADMIN, CLIENT
from tests.interop.differential.connection import ConnectionClosedError
from tests.unit.handlers.access_calls import CALLS, Call, Need

from millstream.protocol.api import ApiKey
from millstream.protocol.message import Response
from millstream.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from millstream.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from millstream.protocol.schema import Struct

ANSWERS: Final = Path(__file__).parent / "answers.json"
UNKNOWN_ID: Final = b"\xee" * 16
READY_S: Final = 60.0
ANSWERED_S: Final = 10.0
"""How long an answer may take; Kafka gives none at all to some requests."""

KEPT: Final = frozenset(
    {
        "name",
        "topic",
        "topic_name",
        "topic_id",
        "group_id",
        "key",
        "transactional_id",
        "resource_name",
        "authorized_operations",
        "topic_authorized_operations",
        "cluster_authorized_operations",
    }
)
LEFT_OUT: Final = frozenset(
    {
        "brokers",
        "configs",
        "config_resources",
        "supported_features",
        "finalized_features",
        "members",
        "log_dir",
        "resources",
        "filter_results",
    }
)
"""Parts of answers that are not about access, where brokers differ."""

EXPLAINED: Final = {
    "metadata-that-creates/allowed": "0005-a-created-topic-is-answered-at-once.md",
    "share_fetch/allowed-missing": "0007-no-internal-error-for-a-wrong-request.md",
}
"""Answers that are meant to differ, and the decision record that says why."""

Answers = dict[str, Any]


def names() -> list[str]:
    """Return the name of every scenario, in their order."""
    return [name for name, *_ in _scenarios()]


def _scenarios() -> Iterator[tuple[str, Call, tuple[Need, ...], bool]]:
    for call in sorted(CALLS, key=_destroys):
        yield f"{call.label}/denied", call, (), False
        for index, missing in enumerate(call.needs):
            if len(call.needs) > 1:
                rest = tuple(each for each in call.needs if each is not missing)
                yield f"{call.label}/without-{index}", call, rest, False
        if _names_a_topic(call):
            yield f"{call.label}/denied-missing", call, (), True
            yield f"{call.label}/allowed-missing", call, call.needs, True
        yield f"{call.label}/allowed", call, call.needs, False


def _destroys(call: Call) -> int:
    return call.key in (ApiKey.DELETE_TOPICS, ApiKey.DELETE_GROUPS, ApiKey.UNREGISTER_BROKER)


def _names_a_topic(call: Call) -> bool:
    return "'t'" in repr(call.fields) or "'T'" in repr(call.fields)


def perform(bootstrap: str) -> Answers:
    """Run all scenarios; return what is kept of the answers."""
    rules = Rules(bootstrap)
    admin = Client(bootstrap, ADMIN)
    answers: Answers = {}
    labels = {call.label: call for call in CALLS}
    try:
        topic_id = _prepare(admin, labels)
        for name, call, needs, is_missing in _scenarios():
            if call.key is ApiKey.DELETE_TOPICS:
                topic_id = _topic(admin)
            wanted = tuple(_elsewhere(each) for each in needs) if is_missing else needs
            rules.set(f"User:{CLIENT}", wanted)
            answers[name] = _answer(bootstrap, call, topic_id, is_missing=is_missing)
    finally:
        rules.close()
        admin.close()
    return answers


def _answer(bootstrap: str, call: Call, topic_id: bytes, *, is_missing: bool) -> object:
    client = Client(bootstrap, CLIENT, ANSWERED_S)
    request = call.request(UNKNOWN_ID if is_missing else topic_id)
    if is_missing:
        _rename(request)
    try:
        return _kept(client.ask(request, call.version), {topic_id: "T", UNKNOWN_ID: "U"})
    except ConnectionClosedError:
        return "connection closed"
    except TimeoutError:
        return "no answer"
    finally:
        client.close()


def _elsewhere(need: Need) -> Need:
    name = "absent" if need.name == "t" else need.name
    return Need(need.operation, need.resource, name, need.error)


def _rename(message: Struct) -> None:
    """Let a request name a topic that is not there."""
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if value == "t":
            setattr(message, field.name, "absent")
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                _rename(each)


def _prepare(admin: Client, labels: dict[str, Call]) -> bytes:
    topic_id = _topic(admin)
    for label in (
        "find_coordinator-of-a-group",
        "find_coordinator-of-a-transaction",
        "find_coordinator-of-shares",
        "init_producer_id",
    ):
        call = labels[label]
        _until(lambda call=call: _is_fine(admin.ask(call.request(topic_id), call.version)))  # type: ignore[misc]
    commit = labels["offset_commit-by-name"]
    _until(lambda: _is_fine(admin.ask(commit.request(topic_id), commit.version)))
    return topic_id


def _topic(admin: Client) -> bytes:
    wanted = CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    admin.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=10_000), 5)
    found: list[bytes] = []

    def is_there() -> bool:
        answer = admin.ask(
            MetadataRequest(
                topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=False
            ),
            12,
        )
        assert isinstance(answer, MetadataResponse)
        (topic,) = answer.topics
        found[:] = [topic.topic_id]
        return not topic.error_code and all(each.leader_id >= 0 for each in topic.partitions)

    _until(is_there)
    return found[0]


def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError("the broker did not get ready")
        time.sleep(0.02)


def _is_fine(answer: Response) -> bool:
    return not any(_codes(answer))


def _codes(message: Struct) -> Iterator[int]:
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            yield value
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from _codes(each)


def _kept(message: Struct, ids: dict[bytes, str]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for field in message.FIELDS:
        value = getattr(message, field.name)
        if field.name in LEFT_OUT:
            continue
        if isinstance(value, list) and value and isinstance(value[0], Struct):
            kept[field.name] = sorted((_kept(each, ids) for each in value), key=json.dumps)
        elif field.name.endswith("error_code") or field.name in KEPT:
            if isinstance(value, bytes):
                value = ids.get(value, "0" if not any(value) else "another")
            kept[field.name] = value
    return kept


def differences(expected: Answers, got: Answers) -> list[str]:
    """Return a line for each scenario that was answered in another way."""
    return [
        f"{name}\n  Kafka: {json.dumps(expected[name])}\n  here:  {json.dumps(got.get(name))}"
        for name in expected
        if expected[name] != got.get(name) and name not in EXPLAINED
    ]


def load() -> Answers:
    """Read Kafka's answers."""
    kept: Answers = json.loads(ANSWERS.read_text())
    return kept


def save(answers: Answers) -> None:
    """Keep Kafka's answers, one line each."""
    lines = [f"{json.dumps(name)}: {json.dumps(answer)}" for name, answer in answers.items()]
    ANSWERS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
