"""A directory that somebody else wrote: what its topics are when a broker of ours has taken it."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from millstream.config.broker import BrokerConfig
from millstream.model.broker import BrokerNode, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.entities import EntityKind, EntityValue
from millstream.protocol.messages.kraft_records import DelegationTokenRecord
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.record import Record
from millstream.runtime.clock import LoopClock
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.offload import ThreadOffload
from millstream.server.broker_core import BrokerCore
from millstream.server.metadata_backend import metadata_backend
from millstream.storage.environment import broker_environment

NODE = Path(__file__).parents[2] / "data" / "kafka-4.3.0-node"
METADATA_LOG = "__cluster_metadata-0"
UNLIMITED = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """What a combined node of Kafka 4.3 left."""
    target = tmp_path / "data"
    shutil.copytree(NODE, target)
    return target


def topics_of(directory: Path, **settings: str) -> dict[str, TopicImage]:
    """Let a broker take the directory over and close it, and return the topics that it had."""
    return taken_over(directory, **settings)[0]


def taken_over(
    directory: Path, **settings: str
) -> tuple[dict[str, TopicImage], Mapping[str, EntityValue]]:
    """Let a broker take the directory over; return its topics and its delegation tokens."""
    config = BrokerConfig(
        {
            "log.dirs": str(directory),
            **{name.replace("_", "."): text for name, text in settings.items()},
        }
    )
    loop = asyncio.new_event_loop()

    def wait(outcome: Deferred[None]) -> None:
        outcome.on_done(lambda _: loop.stop())
        while not outcome.done:
            loop.run_forever()
        outcome.result()

    core = BrokerCore(
        config,
        clock=LoopClock(loop),
        offload=ThreadOffload(loop.call_soon_threadsafe),
        environment=broker_environment(producer_id_expiration_ms=86_400_000),
        random_bytes=os.urandom,
        on_directory_failed=lambda _: None,
    )
    core.log_manager.lock()
    home = metadata_backend(core, loop, wait)
    home.open()
    wait(spawn(core.load_logs()))
    home.join(BrokerNode(config.broker, (Endpoint("PLAINTEXT", "here", 1),), None))
    topics = {image.name: image for image in core.metadata.topics()}
    tokens = dict(core.metadata.entities.all(EntityKind.DELEGATION_TOKEN))
    wait(spawn(core.stop()))
    home.close()
    core.offload.close()
    core.log_manager.close()
    loop.close()
    return topics, tokens


def test_kafkas_metadata_log_tells_the_settings(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topics = topics_of(directory)
    assert topics["table"].config.overrides["cleanup.policy"] == "compact"
    assert topics["empty"].config.retention_ms == 604_800_000
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []


def test_it_may_lie_in_a_directory_of_its_own(directory: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "metadata"
    elsewhere.mkdir()
    (directory / METADATA_LOG).rename(elsewhere / METADATA_LOG)
    topics = topics_of(directory, metadata_log_dir=str(elsewhere))
    assert topics["table"].config.overrides["cleanup.policy"] == "compact"
    assert len(topics["empty"].partitions) == 4
    assert (elsewhere / METADATA_LOG).is_dir()


def test_nothing_is_deleted_of_a_topic_with_unknown_settings(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # As in a directory of Kafka's time with ZooKeeper, where the settings lie there.
    shutil.rmtree(directory / METADATA_LOG)
    topics = topics_of(directory)
    offsets = topics.pop("__consumer_offsets")
    assert offsets.config.overrides["cleanup.policy"] == "compact"
    assert offsets.config.segment_bytes == 104_857_600
    del topics["__transaction_state"]
    assert topics
    for image in topics.values():
        assert dict(image.config.overrides) == UNLIMITED
        assert image.name in caplog.text
    assert "nothing of them is deleted" in caplog.text
    caplog.clear()
    assert topics_of(directory)["table"].config.overrides == UNLIMITED
    assert "nothing of them is deleted" not in caplog.text


def test_delegation_tokens_are_taken_over_with_their_secret(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    record = DelegationTokenRecord(
        owner="User:ann",
        requester="User:ann",
        renewers=[],
        issue_timestamp=1,
        max_timestamp=1 << 50,
        expiration_timestamp=1 << 49,
        token_id="one",
    )
    value = b"\x01\x0a\x00" + record.encode_body(0)
    batch = encode_batch([Record(0, 0, None, value)], BatchOptions(base_offset=10_000))
    with (directory / METADATA_LOG / "00000000000000000000.log").open("ab") as file:
        file.write(batch)
    shutil.copytree(directory, directory.with_name("again"))
    assert taken_over(directory)[1] == {}
    assert "1 delegation tokens of Apache Kafka are not taken over" in caplog.text
    tokens = taken_over(directory.with_name("again"), delegation_token_secret_key="x")[1]
    assert tokens["one"]["owner"] == "User:ann"
