"""`millstream cert`: what it makes works, and what is there is never replaced."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from millstream.cli.main import main
from millstream.security.tls import check_handshake, client_context, server_context
from millstream.security.tls_settings import StoreSettings, TlsSettings


def settings_of(printed: str) -> TlsSettings:
    """Read what a command has printed as Kafka's settings."""
    found = dict(line.split("=", 1) for line in printed.splitlines() if not line.startswith("#"))
    return TlsSettings(
        keystore=StoreSettings(
            "ssl.keystore.", found["ssl.keystore.type"], found["ssl.keystore.location"]
        ),
        truststore=StoreSettings(
            "ssl.truststore.", found["ssl.truststore.type"], found["ssl.truststore.location"]
        ),
        client_auth="required",
        endpoint_identification="",
    )


def test_a_broker_and_a_client_trust_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--dir", str(tmp_path)]
    password = tmp_path / "password"
    password.write_text("sesame\n")
    assert main(["cert", "authority", *where]) == 0
    capsys.readouterr()
    assert main(["cert", "server", "--host", "localhost", "--host", "127.0.0.1", *where]) == 0
    server = settings_of(capsys.readouterr().out)
    command = ["cert", "client", "ann", "--password-file", str(password), *where]
    assert main(command) == 0
    client = settings_of(capsys.readouterr().out)
    assert check_handshake(server_context(server), client_context(client)) is None
    store = StoreSettings(
        "ssl.keystore.", "PKCS12", str(tmp_path / "client-ann.p12"), password="sesame"
    )
    as_pkcs12 = TlsSettings(store, client.truststore, endpoint_identification="")
    assert check_handshake(server_context(server), client_context(as_pkcs12)) is None
    for name in ("ca-key.pem", "server.pem", "client-ann.pem", "client-ann.p12"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--dir", str(tmp_path)]
    assert main(["cert", "authority", *where]) == 0
    before = (tmp_path / "ca.pem").read_bytes()
    assert main(["cert", "authority", *where]) == 1
    assert "ca-key.pem already exists" in capsys.readouterr().err
    assert (tmp_path / "ca.pem").read_bytes() == before
    assert main(["cert", "client", "ann", *where]) == 0
    assert main(["cert", "client", "ann", *where]) == 1


def test_without_an_authority_the_command_that_makes_one_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cert", "server", "--host", "x", "--dir", str(tmp_path)]) == 1
    assert f"millstream cert authority --dir {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("user", ["../ann", "a/b", ".hidden"])
def test_a_user_that_is_no_file_name_is_refused(tmp_path: Path, user: str) -> None:
    assert main(["cert", "client", user, "--dir", str(tmp_path)]) == 2
