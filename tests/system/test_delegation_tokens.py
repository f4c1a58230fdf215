"""`millstream token`: made, used, renewed and ended; what is told when a token has ended."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.broker_process import BrokerProcess
from tests.waiting import wait_until

from millstream.client import Admin, Producer
from millstream.client.errors import AuthenticationError
from millstream.config.properties import parse_properties

pytestmark = pytest.mark.system

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_ann="ann-hunter2" user_bob="bob-hunter2";'
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
        "delegation.token.secret.key": "key-hunter2",
    }
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker
    assert "hunter2" not in broker.log


class Commands:
    """The command line as one user."""

    def __init__(self, broker: BrokerProcess, directory: Path, name: str) -> None:
        self.broker = broker
        self.file = directory / f"{name}.properties"
        self.file.write_text(
            f"bootstrap.servers={broker.bootstrap}\nsecurity.protocol=SASL_PLAINTEXT\n"
            f"sasl.mechanism=PLAIN\nsasl.username={name}\nsasl.password={name}-hunter2\n"
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        words = ("token", *words, "--command-config", str(self.file))
        return subprocess.run(
            [sys.executable, "-m", "millstream.cli.main", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def __call__(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout


def settings_of(broker: BrokerProcess, file: Path) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        **parse_properties(file.read_text()),
    }


def test_a_token_from_its_beginning_to_its_end(broker: BrokerProcess, tmp_path: Path) -> None:
    ann, bob = (Commands(broker, tmp_path, name) for name in ("ann", "bob"))
    file = tmp_path / "token.properties"
    said = ann("create", "--renewer", "User:bob", "--lifetime", "1h", "-o", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    (shown,) = json.loads(ann("list", "--json"))
    assert shown["token_id"] in said
    assert (shown["owner"], shown["renewers"]) == ("User:ann", "User:bob")
    assert "hmac" not in shown
    again = ann.run("create", "-o", str(file))
    assert again.returncode == 1
    assert "already exists" in again.stderr

    settings = settings_of(broker, file)
    with Producer({**settings, "client.id": "first"}) as producer:
        producer.send("t", b"one").result(30)
        assert bob("renew", shown["token_id"], "--period", "30m").startswith("renewed\t")
        assert ann("expire", shown["token_id"]).startswith("expired\t")
        # Who is connected stays until the end that it was told.
        producer.send("t", b"two").result(30)
        with pytest.raises(AuthenticationError), Admin(settings) as admin:
            admin.list_topics()
    assert ann("list") == ""
    missing = ann.run("renew", shown["token_id"])
    assert missing.returncode == 1
    assert "there is no token" in missing.stderr


def test_a_program_whose_token_has_ended_is_told(broker: BrokerProcess, tmp_path: Path) -> None:
    ann = Commands(broker, tmp_path, "ann")
    made = json.loads(ann("create", "--lifetime", "4s", "--json"))
    assert made["owner"] == "User:ann"
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{made["token_id"]}" password="{made["hmac"]}" tokenauth="true";',
        "default.api.timeout.ms": 2_000,
    }
    with Admin(settings) as admin:
        admin.list_topics()

        def is_refused() -> bool:
            try:
                admin.list_topics()
            except AuthenticationError:
                return True
            return False

        wait_until(is_refused, "the end of a session")


def test_another_user_sees_nothing_of_a_token(broker: BrokerProcess, tmp_path: Path) -> None:
    ann, bob = (Commands(broker, tmp_path, name) for name in ("ann", "bob"))
    token = json.loads(ann("create", "--json"))["token_id"]
    assert token in ann("list", "--owner", "User:ann")
    assert token not in ann("list", "--owner", "User:eve")
    assert bob.run("list", "--owner", "ann").returncode == 2
    refused = bob.run("expire", token)
    # Without an authorizer everybody may see a token; only who may renew it may end it.
    assert refused.returncode == 1
    assert "only its owner and its renewers" in refused.stderr
    ann("expire", token)
