from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.runtime.coordinator_site import Site

from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId
from millstream.records.builder import BatchBuilder
from millstream.runtime.coordinators.coordinator_registry import (
    CoordinatorEntry,
    CoordinatorRegistry,
    CoordinatorType,
)
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.replicas.committed_appends import append_internal

TOPIC = "__things"


class Recorder:
    """A coordinator that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def start(self) -> None:
        self.told.append("start")

    def stop(self) -> None:
        self.told.append("stop")

    def topic_changed(self, image: TopicImage, *, created: bool) -> None:
        self.told.append(f"{'created' if created else 'changed'} {image.name}")

    def topic_deleted(self, image: TopicImage) -> None:
        self.told.append(f"deleted {image.name}")


class Scene:
    def __init__(self, directory: Path) -> None:
        self.site = Site(directory, creates=False)
        self.made: list[Recorder] = []
        self.entry = CoordinatorEntry(
            CoordinatorType.SHARE, TOPIC, lambda key, count: len(key) % count, self._make
        )
        self.registry = CoordinatorRegistry([self.entry], self.site.partitions)

    def _make(self) -> Recorder:
        self.made.append(Recorder())
        return self.made[-1]

    def create(self, name: str, *, written: bool) -> TopicImage:
        image = self.site.create(name, 2, TopicId(name.encode().ljust(16)[:16]))
        if written:
            builder = BatchBuilder()
            builder.append(0, b"k", b"v")
            append_internal(self.site.partitions.get(name, 1), builder.build())
        return image


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.site.close()


def test_a_type_of_keys_has_its_topic_and_partitions(scene: Scene) -> None:
    found = scene.registry.find(2)
    assert (found.topic, found.partition_of("abc", 2)) == (TOPIC, 1)
    for other in (0, 1, 3):
        with pytest.raises(KafkaError) as refused:
            scene.registry.find(other)
        assert refused.value.error is ErrorCode.INVALID_REQUEST


def test_a_coordinator_is_made_when_it_is_asked_for(scene: Scene) -> None:
    scene.create(TOPIC, written=False)
    scene.registry.begin()
    assert scene.made == []
    assert scene.entry.get() is scene.entry.get()
    assert scene.made[0].told == ["start"]
    scene.registry.stop()
    assert scene.made[0].told == ["start", "stop"]


def test_a_coordinator_is_made_where_there_are_records_of_it(scene: Scene) -> None:
    image = scene.create(TOPIC, written=True)
    scene.registry.topic_changed(image, created=False)
    assert scene.made == [], "the broker has not begun"
    scene.registry.begin()
    assert scene.made[0].told == ["start"]


def test_a_coordinator_is_made_when_the_broker_comes_to_lead_records_of_it(scene: Scene) -> None:
    scene.registry.begin()
    other = scene.create("other", written=True)
    scene.registry.topic_changed(other, created=True)
    scene.registry.topic_deleted(other)
    assert scene.made == []
    image = scene.create(TOPIC, written=True)
    scene.registry.topic_changed(image, created=False)
    assert scene.made[0].told == ["start"]


def test_a_coordinator_hears_of_every_topic(scene: Scene) -> None:
    scene.registry.begin()
    scene.entry.get()
    other = scene.create("other", written=False)
    scene.registry.topic_changed(other, created=True)
    scene.registry.topic_changed(other, created=False)
    scene.registry.topic_deleted(other)
    assert scene.made[0].told == ["start", "created other", "changed other", "deleted other"]
