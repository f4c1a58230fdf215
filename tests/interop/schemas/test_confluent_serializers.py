"""Records of Confluent's own serializers, through registries, into a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.schemas.apicurio import Apicurio, ApicurioUnavailableError
from tests.monitoring import free_port
from tests.schema_registry import RegistryServer
from tests.system.lakehouse.topic_site import TopicSite

pytestmark = [pytest.mark.interop, pytest.mark.system]

registries = pytest.importorskip(
    "confluent_kafka.schema_registry",
    reason="needs confluent-kafka[avro,json,protobuf,schemaregistry]",
    exc_type=ImportError,
)

MONEY = {
    "type": "record",
    "name": "Money",
    "namespace": "acme",
    "fields": [{"name": "units", "type": "long"}],
}
V1 = {
    "type": "record",
    "name": "Order",
    "namespace": "acme",
    "fields": [{"name": "id", "type": "int"}, {"name": "price", "type": "acme.Money"}],
}
V2 = {
    **V1,
    "fields": [*V1["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
}
PROTO = """syntax = "proto3";
package acme;
import "google/protobuf/timestamp.proto";
message Other { string x = 1; }
message Order {
  int64 id = 1;
  google.protobuf.Timestamp at = 2;
  repeated Line lines = 3;
  message Line { string article = 1; }
}
"""
JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


@pytest.fixture(scope="module")
def apicurio(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if not request.config.getoption("--java", default=False):
        pytest.skip("needs Apicurio Registry: pytest tests/interop --java")
    try:
        with Apicurio(tmp_path_factory.mktemp("apicurio"), free_port()) as registry:
            yield registry.url
    except ApicurioUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(params=["memory", "apicurio"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "apicurio":
        yield request.getfixturevalue("apicurio")
        return
    with RegistryServer() as server:
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with registries.SchemaRegistryClient({"url": url}) as client:
        yield client


@pytest.fixture
def site(
    broker: BrokerProcess, new_topic: Callable[[], str], tmp_path: Path, url: str
) -> TopicSite:
    site = TopicSite(broker.bootstrap, f"{new_topic()}-s", tmp_path)
    site.create(1)
    return site.using(registry={"schema.registry.url": url})


def produce(site: TopicSite, records: list[tuple[Any, Any, list[tuple[str, bytes]]]]) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": site.bootstrap})
    for key, value, headers in records:
        producer.produce(site.topic, value, key, headers=headers, partition=0)
    assert producer.flush(30) == 0


def context(site: TopicSite, field: str, headers: list[tuple[str, bytes]] | None = None) -> Any:
    from confluent_kafka.serialization import SerializationContext

    return SerializationContext(site.topic, field, headers)


def test_avro_of_two_versions_with_a_reference_and_framed_keys(
    site: TopicSite, url: str, client: Any
) -> None:
    from confluent_kafka.schema_registry.avro import AvroSerializer

    client.register_schema(f"{site.topic}-money", registries.Schema(json.dumps(MONEY), "AVRO"))
    money = registries.SchemaReference("acme.Money", f"{site.topic}-money", 1)
    first, second = (
        AvroSerializer(client, registries.Schema(json.dumps(each), "AVRO", [money]))
        for each in (V1, V2)
    )
    keys = AvroSerializer(client, json.dumps("string"))
    price = {"units": 5}
    records = []
    for serializer, value in [
        (first, {"id": 1, "price": price}),
        (second, {"id": 2, "price": price, "note": "x"}),
        (first, {"id": 3, "price": price}),
    ]:
        key = keys(f"k{value['id']}", context(site, "key"))
        records.append((key, serializer(value, context(site, "value")), []))
    produce(site, records)
    loaded = site.using(
        format="avro", format_options={"key": "avro"}, registry=site.settings.registry
    )
    loaded.load()
    assert loaded.rows("_offset", "_key", "id", "price", "note") == [
        (0, "k1", 1, price, None),
        (1, "k2", 2, price, "x"),
        (2, "k3", 3, price, None),
    ]
    assert loaded.audit().is_clean


def test_protobuf_of_a_message_that_is_not_the_first(site: TopicSite, client: Any) -> None:
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from google.protobuf import timestamp_pb2
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import Default
    from google.protobuf.message_factory import GetMessageClass

    from millstream.schemas.complete import CompleteSchema
    from millstream.schemas.protoc import descriptor_set
    from millstream.schemas.schema import SchemaType

    assert timestamp_pb2.DESCRIPTOR  # in the pool, which the new file refers to
    content, name = descriptor_set(CompleteSchema(SchemaType.PROTOBUF, PROTO))
    file = next(each for each in FileDescriptorSet.FromString(content).file if each.name == name)
    file.name = f"acme/{site.topic}.proto"
    file.package = f"acme{abs(hash(site.topic))}"
    for field in file.message_type[1].field:
        if field.type_name.startswith(".acme."):
            field.type_name = field.type_name.replace(".acme.", f".{file.package}.")
    Default().Add(file)
    kind = GetMessageClass(Default().FindMessageTypeByName(f"{file.package}.Order"))
    serializer = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
    message = kind(id=7, lines=[{"article": "a"}])
    message.at.FromJsonString("2024-01-31T10:00:00Z")
    produce(site, [(None, serializer(message, context(site, "value")), [])])
    loaded = site.using(format="protobuf")
    loaded.load()
    (row,) = loaded.rows("id", "at", "lines")
    assert (row[0], row[1].isoformat(), row[2]) == (
        7,
        "2024-01-31T10:00:00+00:00",
        [{"article": "a"}],
    )


def test_json_schema_and_the_schemas_guid_in_a_header(
    site: TopicSite, url: str, client: Any
) -> None:
    from confluent_kafka.schema_registry import header_schema_id_serializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer

    text = json.dumps(JSON)
    plain = JSONSerializer(text, client)({"id": 1, "tags": ["a"]}, context(site, "value"))
    records: list[tuple[Any, Any, list[tuple[str, bytes]]]] = [(None, plain, [])]
    if "apicurio" not in url and "ccompat" not in url:  # which gives no GUIDs
        headers: list[tuple[str, bytes]] = []
        settings = {"schema.id.serializer": header_schema_id_serializer}
        serializer = JSONSerializer(text, client, conf=settings)
        value = serializer({"id": 2, "tags": []}, context(site, "value", headers))
        assert headers
        assert value.startswith(b"{")
        records.append((None, value, headers))
    produce(site, records)
    loaded = site.using(format="json")
    loaded.load()
    expected = [(0, 1, ["a"]), (1, 2, [])][: len(records)]
    assert loaded.rows("_offset", "id", "tags") == expected
    assert loaded.audit().is_clean
