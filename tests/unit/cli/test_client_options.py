"""Settings of the client on a command line, in a file and in the environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from millstream.cli import app, client_options, pipeline
from millstream.cli.client_options import given_settings, settings_of, source_settings
from millstream.cli.main import main
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.settings import AdminSettings, ProducerSettings
from millstream.model.errors import ConfigError


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_options._Given, "profile", None)
    monkeypatch.setattr(client_options._Given, "file", None)
    monkeypatch.setattr(client_options._Given, "items", ())
    for name in ("CONFIG", "SASL_PASSWORD", "SECURITY_PROTOCOL"):
        monkeypatch.delenv(f"MILLSTREAM_CLIENT_{name}", raising=False)


def give(*items: str, file: Path | None = None) -> None:
    client_options._take_items(list(items))
    client_options._take_file(None if file is None else str(file))


def test_the_command_line_counts_more_than_the_environment_and_that_more_than_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nsasl.username=of-file\nsasl.password=of-file\n")
    give("security.protocol=SASL_SSL", file=file)
    environment = {
        "MILLSTREAM_CLIENT_SECURITY_PROTOCOL": "PLAINTEXT",
        "MILLSTREAM_CLIENT_SASL_PASSWORD": "of-environment",
    }
    assert given_settings(environment) == {
        "security.protocol": "SASL_SSL",
        "sasl.username": "of-file",
        "sasl.password": "of-environment",
    }


def test_a_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol = SSL\n")
    found = given_settings({"MILLSTREAM_CLIENT_CONFIG": str(file)})
    assert found == {"security.protocol": "SSL"}


def of_profile(tmp_path: Path, text: str, name: str = "here") -> dict[str, str]:
    file = tmp_path / "profiles.toml"
    file.write_text(text)
    return given_settings({"MILLSTREAM_PROFILES": str(file), "MILLSTREAM_PROFILE": name})


def test_a_profile_counts_least(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("password = of-a-file\n")
    file = tmp_path / "client.properties"
    file.write_text("sasl.username=of-file\n")
    give("security.protocol=SSL", file=file)
    found = of_profile(
        tmp_path,
        f"""[here]
        "bootstrap.servers" = "a:1"
        "security.protocol" = "SASL_SSL"
        "sasl.username" = "of-profile"
        "sasl.password" = "${{file:{tmp_path / "secret"}:password}}"
        "request.timeout.ms" = 5000
        """,
    )
    assert found == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SSL",
        "sasl.username": "of-file",
        "sasl.password": "of-a-file",
        "request.timeout.ms": "5000",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[there]\n", r"has no profile \[here\]; it has there"),
        ('[here]\nbootstrap.servers = "a:1"\n', "write names with dots in quotes"),
        ('[here]\n"bootstrap.server" = "a:1"\n', "the nearest is 'bootstrap.servers'"),
        ("[here\n", "line 1"),
        ('[here]\n"bootstrap.servers" = []\n', "is not text or a number"),
    ],
)
def test_a_profile_that_is_wrong(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        of_profile(tmp_path, text)


def test_secrets_stand_elsewhere(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("password = of-a-file\n")
    (tmp_path / "token").write_text("of-a-directory\n")
    give(
        f"sasl.password=${{file:{secrets}:password}}",
        "sasl.username=x-${env:WHO}",
        f"ssl.key.password=${{directory:{tmp_path}:token}}",
    )
    assert given_settings({"WHO": "ann"}) == {
        "sasl.password": "of-a-file",
        "sasl.username": "x-ann",
        "ssl.key.password": "of-a-directory",
    }


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ("security.protocl=SSL", r"nearest is 'security\.protocol'"),
        ("security_protocol=SSL", r"there is no setting"),
        ("hush", r"it takes NAME=VALUE"),
        ("sasl.password=${env:NOBODY}", r"sasl\.password: there is no environment variable NOBODY"),
        ("sasl.password=${file:/nowhere:hush}", r"/nowhere cannot be read"),
        ("sasl.password=${file:hush}", r"is not \$\{file:PATH:NAME\}"),
    ],
)
def test_a_wrong_item_is_explained(item: str, words: str) -> None:
    give(item)
    with pytest.raises(typer.BadParameter, match=words):
        given_settings({})


def test_a_file_is_shared_by_commands_and_with_java(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\nacks=1\ninterceptor.classes=com.acme.Mine\n")
    give(file=file)
    assert settings_of(AdminSettings) == {"security.protocol": "SSL"}
    assert settings_of(ProducerSettings) == {"security.protocol": "SSL", "acks": "1"}
    assert source_settings() == {"kafka.security.protocol": "SSL"}
    assert "interceptor.classes is ignored" in capsys.readouterr().err


def test_what_may_be_a_password_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "password"
    file.write_text("Correct-Horse7\n")
    give(file=file)
    assert given_settings({}) == {}
    told = capsys.readouterr().err
    assert "not NAME=VALUE is ignored" in told
    assert "Horse" not in told


def test_what_would_protect_is_never_left_out(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("ssl.trustore.location=ca.pem\n")
    give(file=file)
    with pytest.raises(typer.BadParameter, match=r"nearest is 'ssl\.truststore\.location'"):
        given_settings({})
    file.unlink()
    with pytest.raises(typer.BadParameter, match="No such file"):
        given_settings({})


def test_a_mistyped_variable_is_an_error_and_one_of_kubernetes_is_not() -> None:
    with pytest.raises(ConfigError, match="nearest is MILLSTREAM_CLIENT_SASL_PASSWORD"):
        given_settings({"MILLSTREAM_CLIENT_SASL_PASSWRD": "x"})
    assert given_settings({"MILLSTREAM_CLIENT_SERVICE_HOST": "10.0.0.1"}) == {}


def test_what_was_typed_is_told_from_what_a_file_says(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("group.id=of-java\n")
    give("sasl.username = ann", file=file)
    assert client_options.names_on_command_line() == {"sasl.username"}
    assert settings_of(ConsumerSettings)["group.id"] == "of-java"


def test_librdkafkas_names_are_taken() -> None:
    give("sasl.mechanisms=PLAIN", "ssl.ca.location=ca.pem")
    assert set(settings_of(AdminSettings)) == {"sasl.mechanisms", "ssl.ca.location"}


@pytest.mark.slow
def test_every_command_that_takes_brokers_takes_settings() -> None:
    command = typer.main.get_command(app.build([]))
    client_options.add_client_options(command)

    def commands(node: object, path: str) -> Iterator[tuple[str, set[str]]]:
        children = getattr(node, "commands", {})
        for name, each in children.items():
            yield from commands(each, f"{path} {name}")
        if not children:
            yield path, {word for each in node.params for word in each.opts}  # type: ignore[attr-defined]

    reaching = [
        (path, words) for path, words in commands(command, "") if "--bootstrap-server" in words
    ]
    assert len(reaching) > 30
    for path, words in reaching:
        assert {"--command-config", "-X"} <= words, path


def test_wrong_settings_end_a_command_with_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["topic", "list", "-X", "security.protocol=TLS", "--timeout", "10ms"]) != 0
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "Traceback" not in said


def test_spark_gets_references_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_SSL\nsasl.password=${env:NOT_THERE}\nlinger.ms=5\n")
    give("sasl.username=${directory:/nowhere:name}", file=file)
    assert source_settings() == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.password": "${env:NOT_THERE}",
        "kafka.sasl.username": "${directory:/nowhere:name}",
    }
    with pytest.raises(typer.BadParameter, match="NOT_THERE"):
        given_settings({})


def test_a_pipeline_takes_them_where_its_file_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text(
        "bootstrap.servers=elsewhere:1\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
        "sasl.username=ann\nsasl.password=secret\n"
    )
    file = tmp_path / "pipeline.toml"
    file.write_text(
        '[source]\n"kafka.sasl.username" = "bob"\n[load.hits]\ntopic = "hits"\nto = "delta:hits"\n'
    )
    give(file=settings)
    assert pipeline._read(file)["hits"].source == {
        "kafka.bootstrap.servers": "elsewhere:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "bob",
        "kafka.sasl.password": "secret",
        "subscribe": "hits",
    }
    assert main(["pipeline", "check", str(file), "--command-config", str(settings)]) == 0
    assert "hits" in capsys.readouterr().out


@pytest.mark.slow
def test_every_command_that_asks_brokers_takes_a_timeout() -> None:
    import typer.main

    root = typer.main.get_command(app.build([]))
    client_options.add_client_options(root)
    lacking: list[str] = []

    def look(command: object, name: str) -> None:
        for each, below in getattr(command, "commands", {}).items():
            look(below, f"{name} {each}")
        options = [one for param in getattr(command, "params", ()) for one in param.opts]
        assert options.count("--timeout") <= 1, name
        if "--bootstrap-server" in options and "--timeout" not in options:
            lacking.append(name)

    look(root, "millstream")
    assert lacking == []


def test_a_timeout_holds_for_what_waits_and_a_setting_counts_more() -> None:
    client_options._take_timeout("3s")
    assert settings_of(AdminSettings) == {"default.api.timeout.ms": "3000"}
    assert settings_of(ProducerSettings) == {"max.block.ms": "3000"}
    give("max.block.ms=7")
    assert settings_of(ProducerSettings) == {"max.block.ms": "7"}
    client_options._take_timeout(None)


@pytest.mark.parametrize("words", [["consume", "t"], ["group", "list"], ["ingest", "f", "-t", "t"]])
def test_a_timeout_that_is_none(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--timeout", "soon"]) == 2
    assert "--timeout" in capfd.readouterr().err
