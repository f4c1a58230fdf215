"""A registry over HTTP: what each of its answers means, and each fault."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.schema_registry import Fault, RegistryServer
from tests.tls_authority import Authority

from millstream.schemas import http
from millstream.schemas.complete import complete
from millstream.schemas.registry import SchemaRegistry, open_registry
from millstream.schemas.schema import (
    InvalidSchemaError,
    Reference,
    RegistryAwayError,
    RegistryRefusedError,
    Schema,
    SchemaType,
    UnknownSchemaError,
)
from millstream.schemas.settings import RegistrySettings, read_registry_settings

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    monkeypatch.setattr(http, "_PAUSES_S", (0.0, 0.0))
    with RegistryServer() as server:
        yield server


def registry(
    *addresses: str, user_info: str | None = None, timeout_ms: int = 5_000
) -> SchemaRegistry:
    settings = RegistrySettings(addresses=addresses, user_info=user_info, timeout_ms=timeout_ms)
    return SchemaRegistry(http.HttpSource(settings))


def test_a_schema_is_asked_for_once_with_its_imports(server: RegistryServer) -> None:
    inner = server.register("in ner", {"type": "enum", "name": "E", "symbols": ["A"]})
    reference = {"name": "E", "subject": "in ner", "version": 1}
    number = server.register("orders-value", ORDER, references=[reference])
    found = registry(server.url)
    with ThreadPoolExecutor(4) as pool:
        seen = set(pool.map(lambda _: found.schema(number), range(20)))
    (schema,) = seen
    assert schema.kind is SchemaType.AVRO
    assert json.loads(schema.text) == ORDER
    assert [each.name for each in schema.imports] == ["E"]
    assert server.asked == [f"/schemas/ids/{number}", "/subjects/in%20ner/versions/1"]
    assert found.schema(server.guid(inner)).imports == ()
    newest, complete = found.newest("orders-value")
    assert (newest.id, newest.version, complete.imports) == (number, 1, schema.imports)


def test_an_unknown_id_is_the_registrys_own_word_and_is_not_asked_for_again(
    server: RegistryServer,
) -> None:
    found = registry(server.url)
    for _ in range(3):
        with pytest.raises(UnknownSchemaError, match="schema id 9 is unknown"):
            found.schema(9)
    assert server.asked == ["/schemas/ids/9"]
    with pytest.raises(UnknownSchemaError, match="newest version of orders-value"):
        found.newest("orders-value")


def test_an_import_that_is_missing_makes_a_schema_invalid(server: RegistryServer) -> None:
    reference = {"name": "E", "subject": "gone", "version": 3}
    number = server.register("orders-value", ORDER, references=[reference])
    with pytest.raises(InvalidSchemaError, match="version 3 of gone is unknown"):
        registry(server.url).schema(number)


def test_imports_without_end_are_invalid() -> None:
    def deeper(reference: Reference) -> Schema:
        version = reference.version + 1
        return Schema(SchemaType.AVRO, "{}", (Reference(f"n{version}", "s", version),))

    with pytest.raises(InvalidSchemaError, match="more than 100 deep"):
        complete(deeper(Reference("n0", "s", 0)), deeper)


def test_imports_in_a_circle_are_invalid(server: RegistryServer) -> None:
    reference = {"name": "Order", "subject": "orders-value", "version": 1}
    number = server.register("orders-value", ORDER, references=[reference])
    with pytest.raises(InvalidSchemaError, match="imports itself"):
        registry(server.url).schema(number)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500, b'{"error_code": 50001, "message": "store"}'),
        Fault(503, b"<html>"),
        Fault(429),
        Fault(200, b'{"schema": "{}", "id": 1}', sent=9),
        Fault(200, b'{"schema": "{}'),
    ],
    ids=["500", "503", "429", "cut", "half"],
)
def test_a_fault_that_passes_says_nothing_of_the_schema(
    server: RegistryServer, fault: Fault
) -> None:
    number = server.register("s", ORDER)
    found = registry(server.url)
    server.fault = fault
    with pytest.raises(RegistryAwayError, match="the schema registry http://127"):
        found.schema(number)
    server.fault = None
    assert found.schema(number).kind is SchemaType.AVRO
    server.faults = [fault]
    assert found.newest("s")[0].id == number  # asked again at once


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault(401, b"{}"), "refuses us .401."),
        (Fault(403, b"{}"), "refuses us .403."),
        (Fault(404, b"<html>not here</html>"), "is not a schema registry"),
        (Fault(404, b'{"error_code": 404, "message": "HTTP 404"}'), "404.*HTTP 404"),
        (Fault(200, b"<html>Please log in</html>"), "is not a schema registry"),
        (Fault(200, b'{"hello": 1}'), "has no schema"),
    ],
    ids=["401", "403", "404", "404 of a path", "page", "other"],
)
def test_who_refuses_us_is_not_asked_again_and_rejects_nothing(
    server: RegistryServer, fault: Fault, error: str
) -> None:
    server.fault = fault
    with pytest.raises(RegistryRefusedError, match=error):
        registry(server.url, user_info="me:secret").schema(1)
    assert len(server.asked) == 1


def test_a_registry_that_is_away_or_slow_is_not_waited_for_without_end(
    server: RegistryServer,
) -> None:
    with pytest.raises(RegistryAwayError, match="cannot be reached"):
        registry("http://127.0.0.1:1").schema(1)
    ended = threading.Event()
    server.fault = Fault(200, b"{}", before=lambda: ended.wait(60))
    try:
        with pytest.raises(RegistryAwayError, match="in time"):
            registry(server.url, timeout_ms=50).schema(1)
    finally:
        ended.set()


def test_the_next_address_is_asked_where_one_is_away(server: RegistryServer) -> None:
    number = server.register("s", ORDER)
    assert registry("http://127.0.0.1:1", server.url).schema(number).kind is SchemaType.AVRO


def test_credentials_follow_a_redirect_to_the_same_server_only(server: RegistryServer) -> None:
    number = server.register("s", ORDER)
    server.authorization = f"Basic {base64.b64encode(b'me:secret').decode()}"
    server.faults = [Fault(302, headers={"Location": f"/schemas/ids/{number}"})]
    assert registry(server.url, user_info="me:secret").schema(number).kind is SchemaType.AVRO
    with RegistryServer() as other:
        other.register("s", ORDER, number=number)
        server.faults = [Fault(302, headers={"Location": f"{other.url}/schemas/ids/{number}"})]
        assert registry(server.url, user_info="me:secret").schema(number).kind is SchemaType.AVRO
        assert other.authorizations == [None]


def test_tls_trusts_whom_it_is_told_to_and_shows_its_own_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.issue("server", ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority.path)
    context.verify_mode = ssl.CERT_REQUIRED
    own, own_key = authority.issue("client")
    tls = {
        "schema.registry.ssl.truststore.location": str(authority.path),
        "schema.registry.ssl.certificate.location": str(own),
        "schema.registry.ssl.key.location": str(own_key),
    }
    with RegistryServer(context) as server:
        number = server.register("s", ORDER)
        trusting = read_registry_settings({"schema.registry.url": server.url, **tls})
        assert trusting is not None
        assert SchemaRegistry(http.HttpSource(trusting)).schema(number).kind is SchemaType.AVRO
        with pytest.raises(RegistryRefusedError, match="certificate that is not trusted"):
            registry(server.url).schema(number)
        assert server.asked == [f"/schemas/ids/{number}"]


def test_a_registry_is_opened_once_in_a_process(server: RegistryServer) -> None:
    settings = RegistrySettings(addresses=(server.url,))
    assert open_registry(settings) is open_registry(RegistrySettings(addresses=(server.url,)))
