"""Where a password comes from, and a user that is added to a store that nobody uses."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.tls_authority import Authority

from millstream.cli.failures import CommandFailedError
from millstream.cli.main import main
from millstream.cli.user import read_password
from millstream.cli.user_store import _security_of_file
from millstream.controller.entity_nodes import read_value
from millstream.model.entities import EntityKind
from millstream.security.sasl.scram_credential import (
    SCRAM_MECHANISMS,
    make_credential,
    parse_credential,
)
from millstream.sqlite.database import Database
from millstream.storage.record_lock import LocalLock


def test_a_password_comes_from_a_file_the_environment_or_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    file.write_bytes("p ässword \r\nmore".encode())
    assert read_password(file, {"MILLSTREAM_USER_PASSWORD": "x"}) == "p ässword "
    assert read_password(None, {"MILLSTREAM_USER_PASSWORD": "x"}) == "x"
    monkeypatch.setattr("sys.stdin", io.StringIO("typed\n"))
    assert read_password(None, {}) == "typed"
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(CommandFailedError, match="empty"):
        read_password(None, {})


@pytest.fixture
def password(tmp_path: Path) -> str:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    return str(file)


def stored(directory: Path, path: str) -> dict[str, str]:
    database = Database(directory)
    try:
        return dict(read_value(EntityKind.USER, path, database.get(path).data))
    finally:
        database.close()


def test_the_first_user_of_a_broker(
    tmp_path: Path, password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "data"
    words = ["user", "add", "a/b ann", "--data-dir", str(directory), "--password-file", password]
    assert main(words) == 0
    assert capsys.readouterr().out == "added\tuser\ta/b ann\n"
    value = stored(directory, "/config/users/a%2Fb%20ann")
    assert set(value) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    for name, text in value.items():
        found = parse_credential(text)
        assert found.iterations == 8192
        mechanism = SCRAM_MECHANISMS[name]
        assert found == make_credential(mechanism, "s3cret", salt=found.salt, iterations=8192)
    again = [*words, "--mechanism", "scram-sha-256", "--iterations", "4096"]
    assert main(again) == 0
    later = stored(directory, "/config/users/a%2Fb%20ann")
    assert later["SCRAM-SHA-512"] == value["SCRAM-SHA-512"]
    assert parse_credential(later["SCRAM-SHA-256"]).iterations == 4096


def test_not_while_a_broker_uses_the_store(
    tmp_path: Path, password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = LocalLock(str(tmp_path / ".lock"))
    words = ["user", "add", "ann", "--data-dir", str(tmp_path), "--password-file", password]
    assert main(words) == 1
    assert "a broker is using" in capsys.readouterr().err
    lock.release()


@pytest.mark.parametrize(
    "more",
    [
        ["--iterations", "4095"],
        ["--iterations", "16385"],
        ["--mechanism", "PLAIN"],
        ["--data-dir", "x", "--zookeeper", "y"],
        ["--password", "secret"],
    ],
)
def test_wrong_words(more: list[str], password: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["user", "add", "ann", "--password-file", password, *more]) == 2
    assert "s3cret" not in capsys.readouterr().err


def test_the_settings_of_tls_to_zookeeper(
    tmp_path: Path, password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["user", "add", "ann", "--password-file", password]
    file = tmp_path / "server.properties"
    option = ["--zk-tls-config-file", str(file)]
    assert main([*words, *option]) == 2
    assert "needs --zookeeper" in capsys.readouterr().err
    words += ["--zookeeper", "127.0.0.1:1", *option]
    assert main(words) == 1
    assert "No such file" in capsys.readouterr().err
    file.write_text("listeners=PLAINTEXT://:1\nzookeeper.ssl.truststore.location=/not/there.pem\n")
    assert main(words) == 1
    assert "zookeeper.ssl.truststore.location: /not/there.pem" in capsys.readouterr().err
    file.write_text("zookeeper.ssl.truststore.loction=x\n")
    assert main(words) == 1
    assert "zookeeper.ssl.truststore.loction" in capsys.readouterr().err

    Authority(tmp_path)
    file.write_text(f"zookeeper.ssl.truststore.location={tmp_path}/test-authority.pem\n")
    found = _security_of_file(file, "admin:secret", "127.0.0.1:1")
    assert found.context is not None
    assert found.digest == "admin:secret"
    assert not found.sets_acl


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("", "--data-dir", "d"), "NAME: it is empty"),
        (("ann", "--iterations", "5"), "--iterations: it takes 4096 to 16384, not 5"),
    ],
)
def test_which_argument_is_wrong_is_said(
    words: tuple[str, ...], told: str, password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["user", "add", *words, "--password-file", password]) == 2
    assert told in capsys.readouterr().err


def test_a_zookeeper_that_is_not_there_is_one_sentence(
    password: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("millstream.cli.user_store._CONNECT_SECONDS", 0.2)
    words = ["user", "add", "ann", "--zookeeper", "127.0.0.1:1", "--password-file", password]
    assert main(words) == 1
    assert "ZooKeeper at 127.0.0.1:1" in capsys.readouterr().err
    assert not caplog.records, "its client logs each try"
