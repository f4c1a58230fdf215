"""The console's answers about a real broker: schemas, groups of every kind, and who logs in."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pytest
from starlette.testclient import TestClient
from tests.waiting import wait_until

from millstream.client import Admin, Consumer, Producer, ShareConsumer
from millstream.client.core.admin.configs import Change, Resource, ResourceType
from millstream.client.core.admin.topics import NewTopic
from millstream.console.app import create_app
from millstream.console.options import ConsoleOptions
from millstream.console.schema_values import open_schema_values
from millstream.model.acl import Acl, AclOperation, AclResource
from millstream.schemas.framing import frame
from millstream.schemas.settings import RegistrySettings
from millstream.testing import Kafka, start_kafka

pytestmark = pytest.mark.system

PAGE = {"x-millstream-console": "1"}
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "int"}]}
PROTO = 'syntax = "proto3"; message Order { string article = 1; }'


@pytest.fixture(scope="module")
def kafka() -> Iterator[Kafka]:
    with start_kafka() as kafka:
        kafka.admin.create_topics([NewTopic("orders", 2, 1), NewTopic("typed", 1, 1)]).get_all()
        earliest = Change("share.auto.offset.reset", "earliest")
        sharers = Resource(ResourceType.GROUP, "sharers")
        kafka.admin.incremental_alter_configs({sharers: [earliest]}).get_all()
        with kafka.producer() as producer:
            for number in range(20):
                producer.send("orders", str(number), partition=number % 2).result(30)
        yield kafka


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> RegistrySettings:
    file: Path = tmp_path_factory.mktemp("schemas") / "schemas.json"
    entries = [
        {"id": 1, "schema": AVRO},
        {"id": 2, "type": "PROTOBUF", "schema": PROTO},
        {"id": 3, "type": "JSON", "schema": {"type": "object"}},
    ]
    file.write_text(json.dumps({"schemas": entries}))
    return RegistrySettings(addresses=(str(file),))


@pytest.fixture(scope="module")
def console(kafka: Kafka, registry: RegistrySettings) -> Iterator[TestClient]:
    options = ConsoleOptions(
        client=kafka.client_settings("millstream"),
        allows_writes=True,
        schemas=open_schema_values(registry),
    )
    with TestClient(create_app(options), base_url="http://127.0.0.1") as client:
        yield client


def avro(total: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(AVRO), {"total": total})
    return frame(1, out.getvalue())


def test_records_are_decoded_and_filtered_by_their_schemas(
    console: TestClient, kafka: Kafka
) -> None:
    with kafka.producer() as producer:
        for total in (5, 50):
            producer.send("typed", avro(total), frame(3, b'{"by": "ann"}')).result(30)
        producer.send("typed", frame(2, b"\x0a\x03ink", (0,))).result(30)
    assert console.get("/api/session").json()["schemas"] is True
    answer = console.get("/api/topics/typed/records?from=oldest").json()["records"]
    assert [each["value"]["kind"] for each in answer] == ["Avro", "Avro", "Protobuf"]
    assert answer[2]["value"]["json"] == {"article": "ink"}
    assert answer[0]["key"]["json"] == {"by": "ann"}
    where = "value.total > 10 and key.by == 'ann'"
    found = console.get("/api/topics/typed/records", params={"from": "oldest", "filter": where})
    assert [each["value"]["json"] for each in found.json()["records"]] == [{"total": 50}]


def test_a_share_group_is_shown_and_reset_after_its_plan(console: TestClient, kafka: Kafka) -> None:
    client = kafka.client_settings("millstream")
    settings = {**client, "group.id": "sharers", "client.id": "worker"}
    with ShareConsumer[bytes, bytes](settings) as consumer:
        consumer.subscribe(["orders"])
        seen = 0

        def read_all() -> bool:
            nonlocal seen
            seen += len(consumer.poll(1.0))
            return seen >= 20

        wait_until(read_all, "the share group reads all records")
        consumer.commit()
        shown = console.get("/api/groups/sharers").json()
        assert (shown["type"], shown["state"]) == ("share", "Stable")
        assert [each["client"] for each in shown["members"]] == ["worker"]
        assert {each["member"] for each in shown["offsets"]} == {"worker"}
        assert len(shown["members"][0]["assignment"]) == 2
        refused = console.post(
            "/api/groups/sharers/reset",
            json={"topic": "orders", "to": "earliest", "execute": True},
            headers=PAGE,
        )
        assert refused.status_code == 409
        assert refused.json()["error"]["what"] == "The group has members."

    def is_empty() -> bool:
        return bool(console.get("/api/groups/sharers").json()["state"] == "Empty")

    wait_until(is_empty, "the share group is empty")
    shown = console.get("/api/groups/sharers").json()
    assert [each["lag"] for each in shown["offsets"]] == [0, 0]
    plan = {"topic": "orders", "to": "offset", "value": 4}
    planned = console.post("/api/groups/sharers/reset", json=plan, headers=PAGE).json()
    assert [each["current"] for each in planned["plan"]] == [
        each["committed"] for each in shown["offsets"]
    ]
    assert [each["new"] for each in planned["plan"]] == [4, 4]
    assert console.get("/api/groups/sharers").json()["offsets"] == shown["offsets"]
    done = console.post("/api/groups/sharers/reset", json={**plan, "execute": True}, headers=PAGE)
    assert done.json()["executed"] is True
    after = console.get("/api/groups/sharers").json()["offsets"]
    assert [(each["committed"], each["lag"]) for each in after] == [(4, 6)] * 2
    listed = {each["group"]: each for each in console.get("/api/groups").json()["groups"]}
    assert (listed["sharers"]["type"], listed["sharers"]["lag"]) == ("share", 12)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_of_consumers_is_shown_with_its_lag_in_time(
    console: TestClient, kafka: Kafka, protocol: str
) -> None:
    name = f"{protocol}-readers"
    given = {"group.id": name, "group.protocol": protocol, "auto.offset.reset": "earliest"}
    settings = {**kafka.client_settings("millstream"), **given, "max.poll.records": 1}
    with Consumer[bytes, bytes](settings) as consumer:
        consumer.subscribe(["orders"])
        wait_until(lambda: bool(consumer.poll(1.0)), "a first record")
        consumer.commit()
        shown = console.get(f"/api/groups/{name}").json()
    assert (shown["type"], len(shown["members"])) == (protocol, 1)
    behind = [each for each in shown["offsets"] if each["lag"]]
    assert sum(each["lag"] for each in behind) >= 9
    assert all(each["lag_seconds"] >= 0 for each in behind)
    listed = {each["group"]: each for each in console.get("/api/groups").json()["groups"]}
    assert listed[name]["type"] == protocol


def test_what_is_changed_leaves_a_line(
    console: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    sent = console.post("/api/topics/orders/records", json={"value": "secret"}, headers=PAGE)
    assert sent.status_code == 200
    console.post("/api/topics/absent/records", json={"value": 1}, headers=PAGE)
    lines = [json.loads(each.partition(" ")[2]) for each in caplog.messages if "audit" in each]
    assert [each["topic"] for each in lines] == ["orders", "absent"]
    assert lines[0]["action"] == "produce"
    assert lines[0]["outcome"] == "done" != lines[1]["outcome"]
    assert "secret" not in caplog.text


# --- log-in --------------------------------------------------------------------------------------

ADMIN, ANN = "admin-secret", "ann-secret"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Kafka]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    users = {"admin": ADMIN, "ann": ANN}
    with start_kafka(settings=settings, security="SASL_PLAINTEXT", users=users) as kafka:
        with Admin(kafka.client_settings("millstream", user="admin")) as admin:
            admin.create_topics([NewTopic("open", 1, 1), NewTopic("closed", 1, 1)]).get_all()
            for operation in (AclOperation.DESCRIBE, AclOperation.READ):
                rule = Acl(
                    resource=AclResource.TOPIC,
                    name="open",
                    principal="User:ann",
                    operation=operation,
                )
                admin.create_acls([rule]).get_all()
            with Producer(kafka.client_settings("millstream", user="admin")) as producer:
                producer.send("open", "hello").result(30)
        yield kafka


@pytest.fixture
def doors(guarded: Kafka) -> Iterator[TestClient]:
    client = {
        "bootstrap.servers": guarded.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
    }
    options = ConsoleOptions(client=client, login=True, allows_writes=True)
    with TestClient(create_app(options), base_url="http://127.0.0.1") as found:
        yield found


def log_in(doors: TestClient, user: str, password: str) -> dict[str, str]:
    """Log in; return the headers of changes."""
    answer = doors.post("/api/session", json={"user": user, "password": password}, headers=PAGE)
    assert answer.status_code == 200, answer.text
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    return {"x-millstream-console": doors.get("/api/session").json()["guard"]}


def test_who_logs_in_sees_what_the_rules_of_the_cluster_allow(doors: TestClient) -> None:
    log_in(doors, "ann", ANN)
    assert doors.get("/api/session").json()["user"] == "ann"
    assert [each["name"] for each in doors.get("/api/topics").json()["topics"]] == ["open"]
    assert len(doors.get("/api/topics/open/records").json()["records"]) == 1
    for path in ("/api/topics/closed/records", "/api/acls"):
        assert doors.get(path).status_code == 403, path
    log_in(doors, "admin", ADMIN)
    assert len(doors.get("/api/topics").json()["topics"]) == 2


def test_a_change_is_made_as_the_user_and_needs_the_guard_of_the_session(
    doors: TestClient,
) -> None:
    guard = log_in(doors, "ann", ANN)
    record = {"value": "x"}
    assert doors.post("/api/topics/open/records", json=record, headers=PAGE).status_code == 403
    refused = doors.post("/api/topics/open/records", json=record, headers=guard)
    assert refused.status_code == 403  # ann may not write
    assert "not allowed" in refused.json()["error"]["what"]
    mine = log_in(doors, "admin", ADMIN)
    assert doors.post("/api/topics/open/records", json=record, headers=guard).status_code == 403
    assert doors.post("/api/topics/open/records", json=record, headers=mine).status_code == 200


def test_a_wrong_password_opens_nothing(doors: TestClient) -> None:
    for user, password in (("ann", ADMIN), ("nobody", "x"), ("ann", ""), ("a\0b", "x")):
        asked = {"user": user, "password": password}
        answer = doors.post("/api/session", json=asked, headers=PAGE)
        assert answer.status_code == 401, user
        assert "set-cookie" not in answer.headers
    assert doors.get("/api/topics").status_code == 401


def test_who_logs_out_is_out_and_others_are_not(doors: TestClient) -> None:
    guard = log_in(doors, "ann", ANN)
    old = doors.cookies.get("millstream-console")
    assert doors.delete("/api/session").status_code == 403
    assert doors.delete("/api/session", headers=guard).status_code == 200
    assert doors.get("/api/topics").status_code == 401
    doors.cookies.set("millstream-console", old or "")
    assert doors.get("/api/topics").status_code == 401
