"""Where Apache Kafka is looked for, and the reason given when it is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.peers.kafka import VERSION, KafkaNotFoundError, find_kafka


def fake_java(directory: Path, version: str) -> Path:
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return directory


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path with Java 17 alone, no KAFKA_HOME, an empty cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{fake_java(programs, '17.0.15')}:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("KAFKA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def jars(libs: Path, version: str) -> Path:
    libs.mkdir(parents=True)
    (libs / f"kafka_2.13-{version}.jar").touch()
    (libs / f"kafka-clients-{version}.jar").touch()
    return libs


def test_kafka_home_comes_first(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars(bare_machine / "cache" / "millstream" / f"kafka-{VERSION}" / "libs", VERSION)
    libs = jars(bare_machine / "kafka" / "libs", "4.2.1")
    monkeypatch.setenv("KAFKA_HOME", str(libs.parent))

    found = find_kafka()

    assert (found.libs, found.version, found.java_version) == (libs, "4.2.1", "17.0.15")


def test_a_cache_comes_before_maven(bare_machine: Path) -> None:
    libs = jars(bare_machine / "cache" / "millstream" / f"kafka-{VERSION}" / "libs", VERSION)

    assert find_kafka().libs == libs


def test_a_wrong_kafka_home_is_not_passed_over(
    bare_machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_HOME", str(bare_machine))
    with pytest.raises(KafkaNotFoundError, match="has no libs"):
        find_kafka()


def test_neither_kafka_nor_maven(bare_machine: Path) -> None:
    with pytest.raises(KafkaNotFoundError, match=r"KAFKA_HOME is not set.* and Maven is"):
        find_kafka(allow_maven=False)


def test_java_must_be_new_enough(bare_machine: Path) -> None:
    fake_java(bare_machine / "bin", "11.0.2")
    with pytest.raises(KafkaNotFoundError, match="not Java 17"):
        find_kafka()
