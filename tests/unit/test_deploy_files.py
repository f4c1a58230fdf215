"""The files of ``deploy/`` name options, settings and extras that exist."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from millstream.cli.serve import broker_config
from millstream.cli.serve_arguments import parse_arguments

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"


def containers_of_compose(path: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    services = yaml.safe_load(path.read_text())["services"]
    for service in services.values():
        if service["image"] == "millstream":
            yield service["command"], service["environment"]


def containers_of_kubernetes(path: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] != "StatefulSet":
            continue
        for container in document["spec"]["template"]["spec"]["containers"]:
            words = container["args"]
            if container.get("command") == ["sh", "-c"]:
                words = shlex.split(words[0].replace("${HOSTNAME##*-}", "0"))[2:]
            environment = {each["name"]: each["value"] for each in container["env"]}
            yield words, environment


def all_containers() -> list[Any]:
    docker, kubernetes = DEPLOY / "docker", DEPLOY / "kubernetes"
    found = [(path, containers_of_compose(path)) for path in docker.glob("compose*.yaml")]
    brokers = [kubernetes / "one/broker.yaml", kubernetes / "cluster/brokers.yaml"]
    found += [(path, containers_of_kubernetes(path)) for path in brokers]
    return [
        pytest.param(words, environment, id=f"{path.parent.name}/{path.name}-{number}")
        for path, containers in found
        for number, (words, environment) in enumerate(containers)
    ]


@pytest.mark.parametrize(("words", "environment"), all_containers())
def test_a_container_starts_a_broker_that_clients_find(
    words: list[str], environment: dict[str, str]
) -> None:
    assert words[0] == "serve"
    assert all(name.startswith("MILLSTREAM_") for name in environment)
    config = broker_config(parse_arguments(words[1:]), environment)
    assert all(each.host for each in config.advertised())
    assert not any(each.host.startswith("127.") for each in config.listening())


def test_the_image_starts_a_broker() -> None:
    text = (DEPLOY / "docker/Dockerfile").read_text()
    (command,) = re.findall(r"^CMD (.*)$", text, re.MULTILINE)
    words = json.loads(command)
    assert words[0] == "serve"
    assert broker_config(parse_arguments(words[1:]), {}).advertised()[0].host == "localhost"
    for each in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE):
        for name in each.split():
            assert (ROOT / name).exists(), name
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "spark" in extras["optional-dependencies"]


def test_the_service_of_systemd_starts_a_broker(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd/millstream.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE)
    program, verb, _, *options = shlex.split(command)
    assert (program, verb) == ("/opt/millstream/bin/millstream", "serve")
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://:9092\n")
    config = broker_config(parse_arguments([str(file), *options]), {})
    assert config.log_directories == ("/var/lib/millstream/data",)


def test_a_resource_that_a_kustomization_names_is_there() -> None:
    for path in (DEPLOY / "kubernetes").glob("*/kustomization.yaml"):
        found = yaml.safe_load(path.read_text())
        named = [*found["resources"], *(each["path"] for each in found.get("patches", ()))]
        for each in named:
            assert (path.parent / each).exists(), each
