"""The blocking consumer over real sockets: when its polls return, and forks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.unit.client.scripted_broker import TOPIC, ScriptedBroker

from millstream.client import Admin, Consumer, Producer, TopicPartition


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as made:
        with Producer(bootstrap_servers=made.bootstrap) as producer:
            producer.send_values([b"%d" % number for number in range(20)], TOPIC)
        yield made


def test_records_that_are_there_are_not_waited_with(broker: ScriptedBroker) -> None:
    with Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        while not consumer.poll(1, max_records=5):
            pass
        # As when a commit is due: the next poll has to look at something else as well.
        consumer._core.user.attend()
        rescue = threading.Timer(30, consumer.wakeup)
        rescue.start()
        assert len(consumer.poll(3_600, max_records=5)) == 5
        consumer._core.user.attend()
        fetched = consumer.poll_fetched(3_600)
        assert fetched is not None
        assert fetched.fetch_offset == 10
        rescue.cancel()


def test_a_poll_that_is_interrupted_while_it_begins_keeps_no_place(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek_to_end()
        consumer.poll(0)
        loop = consumer._loop
        post = loop.post

        def interrupted(callback: Callable[[], None]) -> None:
            post(callback)
            monkeypatch.setattr(loop, "post", post)
            raise KeyboardInterrupt

        monkeypatch.setattr(loop, "post", interrupted)
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(3_600)
        assert consumer.poll(0) == []


def test_a_wakeup_after_the_end_does_no_harm(broker: ScriptedBroker) -> None:
    consumer = Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap)
    consumer.close()
    consumer.wakeup()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_closes_quietly(broker: ScriptedBroker) -> None:
    with (
        Consumer[bytes, bytes](bootstrap_servers=broker.bootstrap) as consumer,
        Admin(bootstrap_servers=broker.bootstrap) as admin,
    ):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                consumer.close()
                admin.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        consumer.assign([TopicPartition(TOPIC, 0)])
        consumer.seek_to_beginning()
        assert consumer.poll(60)[0].offset == 0
