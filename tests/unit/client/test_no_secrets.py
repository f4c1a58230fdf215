"""No secret of a client is in the text of its objects, in an error, or in a log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import fields

import pytest

from millstream.client import Admin, Consumer, Producer, ShareConsumer, aio
from millstream.client.core.admin.tokens import DelegationToken
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.settings import AdminSettings, ProducerSettings, read_settings
from millstream.client.core.share.settings import ShareConsumerSettings
from millstream.client.security import open_security
from millstream.model.errors import ConfigError
from millstream.spark.kafka_settings import parse_kafka_settings

MARKER = "marker-hunter2"
KINDS = [AdminSettings, ConsumerSettings, ProducerSettings, ShareConsumerSettings]
SECRETS = sorted(
    each.name for each in fields(AdminSettings) if each.metadata.get("is_secret", False)
)
WHERE = {"bootstrap.servers": "127.0.0.1:1", "client.id": "c"}
LOGIN = {
    **WHERE,
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "ann",
    "sasl.password": MARKER,
}


def test_what_is_secret() -> None:
    assert SECRETS == [
        "sasl_jaas_config",
        "sasl_oauthbearer_client_credentials_client_secret",
        "sasl_password",
        "ssl_key_password",
        "ssl_keystore_key",
        "ssl_keystore_password",
        "ssl_truststore_password",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_settings(kind: type[AdminSettings]) -> None:
    given: dict[str, object] = {**WHERE, **dict.fromkeys(SECRETS, MARKER)}
    if kind in (ConsumerSettings, ShareConsumerSettings):
        given["group.id"] = "g"
    settings = read_settings(kind, given)
    assert MARKER not in repr(settings)
    assert MARKER not in str(settings)
    opened = open_security(read_settings(AdminSettings, LOGIN))
    assert MARKER not in repr(opened)
    assert opened.sasl is not None
    assert MARKER not in repr(opened.sasl.client())


@pytest.mark.parametrize("kind", [Admin, Consumer, Producer, ShareConsumer])
def test_texts_of_clients(
    kind: Callable[[Mapping[str, object]], Admin], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    group = {"group.id": "g"} if kind in (Consumer, ShareConsumer) else {}
    with kind({**LOGIN, **group}) as client:
        assert MARKER not in repr(client)
        assert MARKER not in repr(vars(client))
    assert MARKER not in caplog.text


def test_texts_of_asyncio_clients() -> None:
    async def run() -> None:
        async with aio.Admin(LOGIN) as client:
            assert MARKER not in repr(client)
            assert MARKER not in repr(vars(client))

    asyncio.run(run())


BAD: list[dict[str, object]] = [
    {**LOGIN, "sasl.password": [MARKER]},
    {**LOGIN, "sasl.jaas.config": MARKER},
    {**LOGIN, "sasl.jaas.config": f"{MARKER} required password={MARKER};"},
    {**LOGIN, "sasl.jaas.config": f'a.ScramLoginModule required password="{MARKER}'},
    {**LOGIN, "security.protocol": "PLAINTEXT"},
    {
        **WHERE,
        "security.protocol": "SSL",
        "ssl.keystore.key": MARKER,
        "ssl.keystore.certificate.chain": "none",
    },
    {
        **WHERE,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"https://ann:{MARKER}@h/token",
        "sasl.oauthbearer.client.credentials.client.id": "ann",
        "sasl.oauthbearer.client.credentials.client.secret": MARKER,
    },
]


@pytest.mark.parametrize("given", BAD, ids=range(len(BAD)))
def test_errors(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        Admin(given)
    error: BaseException | None = caught.value
    while error is not None:
        assert MARKER not in str(error)
        assert MARKER not in repr(error)
        error = error.__cause__


def test_what_spark_sends_to_its_executors() -> None:
    found = parse_kafka_settings(LOGIN)
    assert found.security["sasl.password"] == MARKER
    assert MARKER not in repr(found)


def test_delegation_tokens() -> None:
    token = DelegationToken(
        token_id="t",
        hmac=MARKER.encode(),
        owner="User:ann",
        requester="User:ann",
        issued_ms=0,
        expires_ms=0,
        max_ms=0,
    )
    assert MARKER not in repr(token)
