"""`serve`: its command line, and the order in which settings count."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from millstream.cli.app import build
from millstream.cli.cluster_site import BrokerSite
from millstream.cli.main import main
from millstream.cli.serve import announce, broker_config, other_brokers
from millstream.cli.serve_arguments import (
    OPTION_HELP,
    ServeArguments,
    UsageError,
    parse_arguments,
    settings_from_arguments,
)
from millstream.client.settings import Address, parse_bootstrap_servers
from millstream.config.sections.monitoring import LOG_LEVELS
from millstream.model.errors import ConfigError


def test_every_form_of_the_command_line() -> None:
    assert parse_arguments([]) == ServeArguments()
    assert parse_arguments(
        ["server.properties", "--override", "a=1", "--override=b=x=y", "--data-dir", "d"]
    ) == ServeArguments("server.properties", (("a", "1"), ("b", "x=y")), "d")
    assert parse_arguments(["--host", "::1", "--port=0"]) == ServeArguments(host="::1", port=0)


def test_the_first_line_has_an_address_that_clients_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for host in ("127.0.0.1", "::1"):
        announce(host, 9092, ["d"])
        shown = capsys.readouterr().out.removeprefix("millstream listening on ").partition(",")[0]
        assert parse_bootstrap_servers(shown) == (Address(host, 9092),)


def test_directories_of_brokers_that_do_not_run(tmp_path: Path) -> None:
    for name in ("broker.2", "broker.10", "broker.x", "orders-0"):
        (tmp_path / name).mkdir()
    assert other_brokers([str(tmp_path), str(tmp_path / "none")]) == [2, 10]
    assert other_brokers([str(tmp_path / "orders-0")]) == []


def test_several_brokers() -> None:
    assert parse_arguments(["--brokers", "auto"]).brokers == 0
    assert parse_arguments(["--brokers=3", "--ports", "1,2,0", "--pin"]) == ServeArguments(
        brokers=3, ports=(1, 2, 0), pins=True
    )
    for words in (
        ["--brokers", "0"],
        ["--brokers", "many"],
        ["--brokers", "1001"],
        ["--ports", "1,2"],
        ["--pin"],
        ["--brokers", "2", "--pin=yes"],
        ["--brokers", "2", "--ports", "1,1"],
        ["--brokers", "2", "--ports", "1,x"],
        ["--brokers", "2", "--ports", "1,2", "--port", "3"],
    ):
        with pytest.raises(UsageError):
            parse_arguments(words)


def test_the_level_of_the_log_is_a_setting_of_every_broker() -> None:
    found = parse_arguments(["--brokers", "2", "--log-level", "debug"])
    assert settings_from_arguments(found, {})["log.level"] == "debug"
    assert ("log.level", "debug") in found.overrides, "those are what each process is given"
    for level in LOG_LEVELS:
        parse_arguments([f"--log-level={level}"])


@pytest.mark.parametrize(
    ("words", "port", "writes"),
    [
        ([], None, False),
        (["--console"], 8090, False),
        (["--console-port", "0"], 0, False),
        (["--console-port=7", "--console"], 7, False),
        (["--console-writes"], 8090, True),
    ],
)
def test_a_console_beside_the_broker(words: list[str], port: int | None, writes: bool) -> None:
    found = parse_arguments(words)
    assert (found.console_port, found.console_writes) == (port, writes)


@pytest.mark.parametrize(
    "words",
    [
        ["--port", "-1"],
        ["--console-port", "x"],
        ["--console=8090"],
        ["--override", "=1"],
        ["--data-dir"],
        ["-x"],
        ["--advertise", "a:b"],
        ["--advertise", ":1"],
        ["--advertise", "PLAINTEXT://a:1"],
        ["--advertise", "a", "--override", "advertised.listeners=b"],
        ["--log-level", "loud"],
        ["--log-level"],
    ],
)
def test_what_is_refused(words: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_arguments(words)


def test_the_help_shows_exactly_the_options_that_the_parser_takes() -> None:
    command = typer.main.get_command(build(["serve"]))
    options = {
        name
        for parameter in command.commands["serve"].params  # type: ignore[attr-defined]
        for name in parameter.opts
        if name.startswith("--") and name != "--help"
    }
    assert options == set(OPTION_HELP)


def test_a_broker_without_settings_is_for_this_machine() -> None:
    settings = settings_from_arguments(ServeArguments(), {})
    assert settings == {
        "log.dirs": "millstream-data",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
    }


def test_a_properties_file_is_taken_as_it_is() -> None:
    known = {"log.dirs": "/var/kafka"}
    assert settings_from_arguments(ServeArguments("server.properties"), known) == {}
    assert settings_from_arguments(ServeArguments(), {"listeners": "PLAINTEXT://:1"}) == {
        "log.dirs": "millstream-data"
    }


def test_host_and_port_replace_the_listeners() -> None:
    arguments = ServeArguments("server.properties", host="::1", port=0)
    known = {"listeners": "PLAINTEXT://:1", "log.dir": "d"}
    assert settings_from_arguments(arguments, known) == {"listeners": "PLAINTEXT://[::1]:0"}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--host", "0.0.0.0", "--advertise", "kafka"], "PLAINTEXT://kafka:9092"),
        (["--port", "1", "--advertise", "kafka:2"], "PLAINTEXT://kafka:2"),
        (["--advertise", "::1"], "PLAINTEXT://[::1]:9092"),
        (["--advertise", "[::1]:7"], "PLAINTEXT://[::1]:7"),
    ],
)
def test_an_address_for_clients(words: list[str], told: str) -> None:
    settings = settings_from_arguments(parse_arguments(words), {})
    assert settings["advertised.listeners"] == told


def test_an_address_for_clients_replaces_that_of_the_first_listener(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=CLIENTS://:9093,BROKERS://:9094\n"
        "advertised.listeners=clients://old:1,BROKERS://inside:9094\n"
        "listener.security.protocol.map=CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT\n"
        "inter.broker.listener.name=BROKERS\n"
    )
    config = broker_config(parse_arguments([str(file), "--advertise", "new"]), {})
    assert [(each.host, each.port) for each in config.advertised()] == [
        ("new", 9093),
        ("inside", 9094),
    ]


def test_listening_everywhere_needs_an_address_for_clients() -> None:
    with pytest.raises(ConfigError, match="--advertise HOST:PORT"):
        broker_config(parse_arguments(["--host", "0.0.0.0"]), {}).advertised()


def test_a_port_replaces_no_listener_that_asks_for_protection(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=CLIENTS://:9093\nlistener.security.protocol.map=CLIENTS:SASL_SSL\n")
    with pytest.raises(ConfigError, match="listener CLIENTS asks for SASL_SSL"):
        broker_config(parse_arguments([str(file), "--port", "0"]), {})
    with pytest.raises(ConfigError, match="listener SSL asks for SSL"):
        broker_config(parse_arguments(["--override", "listeners=SSL://:1", "--port", "0"]), {})
    with pytest.raises(ConfigError, match="listener SSL asks for SSL"):
        broker_config(parse_arguments(["--host", "::1"]), {"MILLSTREAM_LISTENERS": "SSL://:1"})
    file.write_text("listeners=nonsense\n")
    config = broker_config(parse_arguments([str(file), "--port", "0"]), {})
    assert config.overrides["listeners"] == "PLAINTEXT://127.0.0.1:0"


def test_options_count_more_than_variables_and_these_more_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nlog.retention.ms=3\nlog.segment.bytes=20000000\n")
    environment = {
        "MILLSTREAM_LOG_RETENTION_MS": "4",
        "MILLSTREAM_NUM_PARTITIONS": "5",
        "PATH": "/bin",
    }
    arguments = parse_arguments([str(file), "--override", "num.partitions=6"])
    config = broker_config(arguments, environment)
    assert config.overrides["num.partitions"] == "6"
    assert config.overrides["log.retention.ms"] == "4"
    assert config.overrides["log.segment.bytes"] == "20000000"


def test_a_secret_may_stand_elsewhere(tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    name = "listener.name.sasl_ssl.plain.sasl.jaas.config"
    file = tmp_path / "server.properties"
    file.write_text(f'{name}={module} required user_ann="${{env:SECRET}}";\n')
    config = broker_config(ServeArguments(str(file)), {"SECRET": "hunter2"})
    assert config.overrides[name] == f'{module} required user_ann="hunter2";'
    # Taken as it stands it would be a password that everybody knows who reads the file.
    with pytest.raises(ConfigError, match=f"{name}: there is no environment variable SECRET"):
        broker_config(ServeArguments(str(file)), {})


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        ("MILLSTREAM_LOG_RETENTOIN_MS", "the nearest is MILLSTREAM_LOG_RETENTION_MS"),
        ("MILLSTREAM_FOO", "^MILLSTREAM_FOO sets nothing$"),
        ("MILLSTREAM_SUPER_USERS", "super.users: expected a string in format principalType"),
        ("MILLSTREAM_AUTHORIZER_CLASS_NAME", "authorizer.class.name: Millstream cannot load true"),
        ("MILLSTREAM_SECURITY_PROVIDERS", "security.providers: Millstream does not act"),
    ],
)
def test_a_variable_that_would_do_nothing_stops_the_start(variable: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        broker_config(ServeArguments(), {variable: "true"})


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_properties_file_in_utf_8_or_in_latin_1(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes("# Größe\nlog.dirs=/daten/größe\n".encode(encoding))
    config = broker_config(ServeArguments(str(file)), {})
    assert config.log_dirs == ("/daten/größe",)


def test_a_place_for_data_that_is_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    assert main(["serve", "--port", "0", "--data-dir", str(file)]) == 1
    assert capfd.readouterr().err.endswith(f"millstream: serve: {file}: Not a directory\n")


def test_the_last_line_of_a_broker_of_a_cluster(tmp_path: Path) -> None:
    site = BrokerSite(1, tmp_path, {})
    site.log_path.write_bytes(b"INFO\nmillstream: serve: cannot listen on x\n")
    assert site.last_line() == "cannot listen on x"
