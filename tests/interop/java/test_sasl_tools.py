"""kafka-configs for users, kafka-delegation-tokens, and Java clients over every mechanism."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.interop.java.conftest import KafkaTools
from tests.unit.security.sasl.tokens import jwks, key

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    pytest.mark.slow,
    pytest.mark.timeout(600),
]

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp("broker")
    (directory / "keys.json").write_bytes(jwks(key("RSA", "one")))
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f'{PLAIN} required user_admin="admin-secret";'
        ),
        "listener.name.plaintext.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
            "OAuthBearerUnsecuredValidatorCallbackHandler"
        ),
        "delegation.token.secret.key": "token-secret",
    }
    with BrokerProcess(directory, settings) as broker:
        yield broker


def client(directory: Path, mechanism: str, jaas: str) -> str:
    """Write the settings of a Java client; return the path of the file."""
    file = directory / f"{mechanism}.properties"
    file.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={jaas}\n"
    )
    return str(file)


def plain(directory: Path) -> str:
    return client(directory, "PLAIN", f'{PLAIN} required username="admin" password="admin-secret";')


def scram(directory: Path, mechanism: str, name: str, password: str, more: str = "") -> str:
    jaas = f'{SCRAM} required username="{name}" password="{password}"{more};'
    return client(directory, mechanism, jaas)


def carry(tools: KafkaTools, broker: BrokerProcess, config: str, topic: str) -> None:
    """Produce a line and consume it."""
    server = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    tools.run("kafka-console-producer", *server, "--command-config", config, stdin="hello\n")
    read = tools.attempt(  # it tells on standard error how many it has read
        "kafka-console-consumer",
        *server,
        *("--command-config", config, "--from-beginning", "--max-messages", "1"),
    ).stdout
    assert "hello" in read


def test_users_and_java_clients(tools: KafkaTools, broker: BrokerProcess, tmp_path: Path) -> None:
    admin = ("--bootstrap-server", broker.bootstrap, "--command-config", plain(tmp_path))
    of_ann = ("--entity-type", "users", "--entity-name", "ann")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        tools.run(
            "kafka-configs",
            *admin,
            *("--alter", *of_ann, "--add-config"),
            f"{mechanism}=[iterations=8192,password=ann-secret]",
        )
    found = tools.run("kafka-configs", *admin, "--describe", *of_ann)
    assert "SCRAM-SHA-256=iterations=8192" in found
    assert "SCRAM-SHA-512=iterations=8192" in found

    carry(tools, broker, plain(tmp_path), "of-plain")
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        config = scram(tmp_path, mechanism, "ann", "ann-secret")
        carry(tools, broker, config, f"of-{mechanism}")
    jaas = f'{OAUTH} required unsecuredLoginStringClaim_sub="ann";'
    carry(tools, broker, client(tmp_path, "OAUTHBEARER", jaas), "of-oauth")

    tools.run("kafka-configs", *admin, "--alter", *of_ann, "--delete-config", "SCRAM-SHA-256")
    found = tools.run("kafka-configs", *admin, "--describe", *of_ann)
    assert "SCRAM-SHA-256" not in found
    wrong = scram(tmp_path, "SCRAM-SHA-256", "ann", "ann-secret")
    told = tools.refused(
        *("kafka-topics", "--bootstrap-server", broker.bootstrap, "--list"),
        *("--command-config", wrong),
    )
    assert "due to invalid credentials with SASL mechanism SCRAM-SHA-256" in told


def test_delegation_tokens(tools: KafkaTools, broker: BrokerProcess, tmp_path: Path) -> None:
    admin = ("--bootstrap-server", broker.bootstrap, "--command-config", plain(tmp_path))
    created = tools.run(
        "kafka-delegation-tokens",
        *admin,
        *("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:ann"),
    )
    match = re.search(r"^(?P<id>[0-9a-f-]{36})\s+(?P<hmac>\S+)\s+User:admin", created, re.MULTILINE)
    assert match is not None, created
    described_by = ("--describe", "--owner-principal", "User:admin")
    described = tools.run("kafka-delegation-tokens", *admin, *described_by)
    assert match["id"] in described
    assert "User:ann" in described
    renewed = tools.run(
        "kafka-delegation-tokens",
        *admin,
        *("--renew", "--renew-time-period", "-1", "--hmac", match["hmac"]),
    )
    assert "Completed renew operation" in renewed

    config = scram(tmp_path, "SCRAM-SHA-512", match["id"], match["hmac"], more=' tokenauth="true"')
    carry(tools, broker, config, "of-token")
    told = tools.refused(
        "kafka-delegation-tokens",
        *("--bootstrap-server", broker.bootstrap, "--command-config", config),
        *("--create", "--max-life-time-period", "-1"),
    )
    assert "Delegation Token requests are not allowed" in told

    tools.run(
        "kafka-delegation-tokens",
        *admin,
        *("--expire", "--expiry-time-period", "-1", "--hmac", match["hmac"]),
    )
    assert match["id"] not in tools.run("kafka-delegation-tokens", *admin, *described_by)
