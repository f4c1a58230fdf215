"""`millstream doctor connect` against brokers that cannot be connected to, each in its own way."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.broker_process import BrokerProcess
from tests.tls_broker import TlsBroker

from millstream.cli.main import main

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("plain")) as broker:
        yield broker


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    users = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="admin" password="secret" user_admin="secret" user_alice="wonder";'
        ),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "security.inter.broker.protocol": "SASL_SSL",
    }
    with TlsBroker(tmp_path_factory.mktemp("tls"), users, protocol="SASL_SSL") as broker:
        yield broker


def looked(capsys: pytest.CaptureFixture[str], address: str, *words: str) -> list[dict[str, Any]]:
    """Return the rows of the command, whose exit code says whether a step failed."""
    code = main(["doctor", "connect", "-b", address, "--json", "--timeout", "20s", *words])
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert code == int(any(row["outcome"] == "failed" for row in rows))
    return rows


def failed(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the one step that failed; those before it are ok, those after it not reached."""
    outcomes = [row["outcome"] for row in rows]
    at = outcomes.index("failed")
    assert outcomes == ["ok"] * at + ["failed"] + ["not reached"] * (len(rows) - at - 1)
    assert rows[at]["remedy"]
    return rows[at]


def test_all_is_well(capsys: pytest.CaptureFixture[str], plain: BrokerProcess) -> None:
    rows = looked(capsys, plain.bootstrap)
    assert [row["step"] for row in rows] == ["name", "port", "versions", "metadata"]
    assert plain.bootstrap in rows[-1]["finding"]


def test_no_such_name(capsys: pytest.CaptureFixture[str]) -> None:
    step = failed(looked(capsys, "nowhere.invalid:9092"))
    assert (step["step"], step["remedy"]) == ("name", "getent hosts nowhere.invalid")
    assert "Errno" not in step["finding"]


def test_nothing_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused, and nobody else's
        port = taken.getsockname()[1]
        step = failed(looked(capsys, f"127.0.0.1:{port}"))
    assert step["finding"] == f"nothing listens on port {port} of 127.0.0.1"
    assert step["remedy"] == f"millstream serve --port {port}"


def test_something_else_listens(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            for _ in range(2):
                connection, _peer = server.accept()
                with connection:
                    if connection.recv(100):
                        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        step = failed(looked(capsys, f"127.0.0.1:{server.getsockname()[1]}"))
        thread.join(30)
    assert step["step"] == "versions"


def test_an_advertised_name_that_leads_nowhere(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path, arguments=["--advertise", "broker.invalid:9092"]) as broker:
        rows = looked(capsys, broker.bootstrap)
    step = failed(rows)
    assert (step["address"], step["broker"], step["step"]) == ("broker.invalid:9092", 1, "name")
    assert step["remedy"] == "millstream serve --advertise HOST:9092"


def test_tls_where_there_is_none(
    capsys: pytest.CaptureFixture[str], plain: BrokerProcess, secured: TlsBroker
) -> None:
    words = ["-X", "security.protocol=SSL", "-X", f"ssl.ca.location={secured.trust}"]
    assert failed(looked(capsys, plain.bootstrap, *words))["step"] == "tls"


def test_no_tls_where_there_is_some(capsys: pytest.CaptureFixture[str], secured: TlsBroker) -> None:
    step = failed(looked(capsys, secured.bootstrap))
    assert step["step"] == "versions"
    assert step["remedy"].endswith("security.protocol=SSL")


def test_an_authority_that_is_not_trusted(
    capsys: pytest.CaptureFixture[str], secured: TlsBroker
) -> None:
    words = ["-X", "security.protocol=SASL_SSL", "-X", "sasl.mechanism=PLAIN"]
    words += ["-X", "sasl.username=alice", "-X", "sasl.password=wonder"]
    assert failed(looked(capsys, secured.bootstrap, *words))["step"] == "tls"


@pytest.mark.parametrize(("password", "step"), [("wonder", None), ("wrong", "authentication")])
def test_a_password(
    capsys: pytest.CaptureFixture[str], secured: TlsBroker, password: str, step: str | None
) -> None:
    words = ["-X", "security.protocol=SASL_SSL", "-X", f"ssl.ca.location={secured.trust}"]
    words += ["-X", "sasl.mechanism=PLAIN", "-X", "sasl.username=alice"]
    rows = looked(capsys, secured.bootstrap, *words, "-X", f"sasl.password={password}")
    steps = ["name", "port", "tls", "authentication", "versions", "metadata"]
    assert [row["step"] for row in rows] == steps
    assert step is None or failed(rows)["step"] == step


def test_into_a_pipe_go_rows(capsys: pytest.CaptureFixture[str], plain: BrokerProcess) -> None:
    assert main(["doctor", "connect", "-b", plain.bootstrap]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.count("\t") for line in lines} == {5}
