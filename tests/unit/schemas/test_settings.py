"""The settings of a registry, the names of subjects, and what is kept of answers."""

from __future__ import annotations

import pytest

from millstream.model.errors import ConfigError, MillstreamError
from millstream.schemas.known import Known
from millstream.schemas.settings import RegistrySettings, read_registry_settings
from millstream.schemas.subjects import SubjectStrategy, parse_strategy, subject_name

URL = "schema.registry.url"


def read(**given: str) -> RegistrySettings:
    found = read_registry_settings({name.replace("_", "."): text for name, text in given.items()})
    assert found is not None
    return found


def test_addresses_credentials_and_tls_are_read_and_not_shown() -> None:
    found = read(
        schema_registry_url="https://a:8081/, https://u%40x:se%3Acret@b:8081/path",
        schema_registry_ssl_truststore_location="/ca.pem",
        schema_registry_request_timeout_ms="500",
    )
    assert found.addresses == ("https://a:8081", "https://b:8081/path")
    assert found.user_info == "u@x:se:cret"
    assert found.tls == (("ssl.truststore.location", "/ca.pem"),)
    assert found.timeout_ms == 500
    assert "cret" not in repr(found)
    assert "cret" not in repr(read(schema_registry_url="http://a", bearer_auth_token="secret"))
    assert read_registry_settings({}) is None
    assert read(schema_registry_url="schemas.json").is_file


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"schema.registry.basic.auth.user.info": "u:p"}, "schema.registry.url is missing"),
        ({URL: "http://a", "schema.registry.basic.auth.userinfo": "u:p"}, "nearest is"),
        ({URL: "http://a", "basic.auth.user.info": "secret"}, "takes USER:PASSWORD"),
        ({URL: "http://a", "bearer.auth.token": "secret\r\nX: y"}, "line break"),
        ({URL: "http://u:secret@a", "bearer.auth.token": "secret"}, "only one of"),
        ({URL: "http://a", "basic.auth.credentials.source": "SASL_INHERIT"}, "takes URL or"),
        ({URL: "http://a", "schema.registry.ssl.truststore.location": "x"}, "https://"),
        ({URL: "ftp://a"}, "takes http://"),
        ({URL: "http://"}, "an address is"),
        ({URL: "http://a", "schema.registry.request.timeout.ms": "soon"}, "takes milliseconds"),
    ],
)
def test_a_wrong_setting_is_named_without_a_secret(given: dict[str, str], error: str) -> None:
    with pytest.raises(ConfigError, match=error) as caught:
        read_registry_settings(given)
    assert "secret" not in str(caught.value)


def test_subjects_are_named_as_confluents_strategies_do() -> None:
    names = [
        subject_name(each, topic="orders", record="acme.Order", is_key=is_key)
        for each in SubjectStrategy
        for is_key in (False, True)
    ]
    assert names[:2] == ["orders-value", "orders-key"]
    assert names[2:] == ["acme.Order"] * 2 + ["orders-acme.Order"] * 2
    assert parse_strategy("io.confluent.kafka.serializers.subject.TopicRecordNameStrategy") is (
        SubjectStrategy.TOPIC_RECORD
    )
    assert parse_strategy("record") is SubjectStrategy.RECORD
    with pytest.raises(ConfigError, match="topic, record, topic-record"):
        parse_strategy("mine")
    with pytest.raises(ConfigError, match="full name of the record"):
        subject_name(SubjectStrategy.RECORD, topic="orders")


def test_answers_are_kept_and_refusals_for_a_while() -> None:
    known: Known[str, MillstreamError] = Known(most=2, unknown_s=60)
    error = MillstreamError("no")
    known.add_refusal(1, error, now=0)
    assert known.refusal(1, 59.9) is error
    assert known.refusal(1, 60.0) is None
    known.add(1, "one")
    assert known.refusal(1, 1.0) is None
    known.add(2, "two")
    assert known.get(1) == "one"
    known.add(3, "three")
    assert (known.get(1), known.get(2), known.get(3)) == ("one", None, "three")
