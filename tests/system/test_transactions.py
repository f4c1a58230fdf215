"""Transactional programs against real brokers: one of ours, and three whose coordinator dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests import transaction_story as story
from tests.broker_process import BrokerProcess

pytestmark = pytest.mark.system


@pytest.fixture
def bootstrap(broker: BrokerProcess) -> str:
    return broker.bootstrap


def test_copies_count_each_record_once(bootstrap: str, new_topic: Callable[[], str]) -> None:
    source, copied, asynchronous = (new_topic() for _ in range(3))
    story.create(bootstrap, source, copied, asynchronous)
    values = story.seed(bootstrap, source, 1000)
    story.copy(bootstrap, source, copied, len(values))
    story.exactly_once(bootstrap, copied, values)
    asyncio.run(story.copy_async(bootstrap, source, asynchronous, len(values)))
    story.exactly_once(bootstrap, asynchronous, values)


@pytest.mark.parametrize("tell", [story.fencing, story.table, story.operators])
def test_stories(
    tell: Callable[[str, str], None], bootstrap: str, new_topic: Callable[[], str]
) -> None:
    name = new_topic()
    story.create(bootstrap, name)
    tell(bootstrap, name)
