"""The command line and groups whose coordinator assigns (KIP-848): shown, set, and joined."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests.broker_process import BrokerProcess

from millstream.client import Admin, Consumer, Producer, ShareConsumer, SubscriptionPattern

pytestmark = pytest.mark.system

DEADLINE_S = 60


def millstream(broker: BrokerProcess, *words: str, code: int = 0) -> str:
    """Run a command to its end; return what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", *words, "-b", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def on_a_terminal(broker: BrokerProcess, *words: str) -> str:
    """Run a command whose standard output is a terminal, wide enough for its tables."""
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "millstream.cli.main", *words, "-b", broker.bootstrap],
        stdout=theirs,
        env={**os.environ, "COLUMNS": "300", "LINES": "50", "TERM": "dumb"},
    ) as process:
        os.close(theirs)
        text = b""
        with suppress(OSError):  # Linux says so where the other side has closed
            while data := os.read(ours, 1 << 16):
                text += data
        os.close(ours)
        assert process.wait(DEADLINE_S) == 0
    return text.decode()


def test_a_group_is_shown_with_its_epochs_and_members(
    broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    group = f"g-{topic}"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        from millstream.client.core.admin.topics import NewTopic

        admin.create_topics([NewTopic(topic, 3)]).get_all()
    with Consumer[bytes, bytes](
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        group_protocol="consumer",
        group_instance_id="one",
        auto_offset_reset="earliest",
    ) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + DEADLINE_S
        while len(consumer.assignment()) < 3:
            assert time.monotonic() < deadline
            consumer.poll(0.1)
        consumer.poll(0.5)
        member_id = consumer.group_metadata().member_id
        epoch = consumer.group_metadata().generation_id
        rows = [
            line.split("\t") for line in millstream(broker, "group", "describe", group).splitlines()
        ]
        assert [(*row[:3], row[-1]) for row in rows] == [
            (group, topic, str(number), member_id) for number in range(3)
        ]
        text = on_a_terminal(broker, "group", "describe", group)
        assert f"group {group}  consumer  Stable  1 member" in text
        assert f"epoch {epoch}  assignment of epoch {epoch}  assignor uniform" in text
        (row,) = [line for line in text.splitlines() if member_id in line and "the same" in line]
        assert row.split()[:4] == [member_id, "one", "consumer", str(epoch)]
        assert f"{topic} 0-2" in row
        (described,) = json.loads(millstream(broker, "group", "describe", group, "--json"))
        assert (described["type"], described["group_epoch"]) == ("consumer", epoch)
        assert described["members"][0]["target"] == [f"{topic}-{number}" for number in range(3)]
        listed = json.loads(millstream(broker, "group", "list", "--type", "consumer", "--json"))
        assert [group, "Stable", "consumer"] in [
            [each["group"], each["state"], each["type"]] for each in listed
        ]
        listed = json.loads(millstream(broker, "group", "list", "--type", "classic", "--json"))
        assert group not in [each["group"] for each in listed]
        assert "members" in millstream(broker, "group", "delete", group, code=1)


def test_settings_of_a_group(broker: BrokerProcess, new_topic: Callable[[], str]) -> None:
    group = f"g-{new_topic()}"
    name = "consumer.heartbeat.interval.ms"
    millstream(broker, "config", "alter", "--group", group, f"{name}=7000")
    shown = json.loads(millstream(broker, "config", "describe", "--group", group, "--json"))
    assert [(each["name"], each["value"]) for each in shown if each["name"] == name] == [
        (name, "7000")
    ]
    millstream(broker, "config", "delete", "--group", group, name)
    shown = json.loads(millstream(broker, "config", "describe", "--group", group, "--json"))
    assert [each for each in shown if each["name"] == name and each["value"] == "7000"] == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_as_a_member(
    broker: BrokerProcess, new_topic: Callable[[], str], protocol: str
) -> None:
    topic = new_topic()
    group = f"g-{topic}"
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0)
    member = ("--group", group, "-X", f"group.protocol={protocol}")
    first = millstream(broker, "consume", topic, *member, "-c", "4")
    assert first.splitlines() == ["0", "1", "2", "3"]
    rest = millstream(broker, "consume", topic, *member, "-c", "6")
    assert rest.splitlines() == ["4", "5", "6", "7", "8", "9"]


@pytest.mark.parametrize(
    ("words", "about"),
    [
        (("--share",), "--share needs --group"),
        (("--group", "g", "-o", "end"), "--offset cannot be combined with --group"),
        (("--group", "g", "-X", "no.such=1"), "no.such"),
    ],
)
def test_what_does_not_go_together(
    broker: BrokerProcess, new_topic: Callable[[], str], words: tuple[str, ...], about: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", "consume", new_topic(), *words],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={"MILLSTREAM_BOOTSTRAP_SERVERS": broker.bootstrap, "PATH": ""},
    )
    assert done.returncode != 0
    assert about in done.stderr


@pytest.mark.parametrize("mode", [(), ("-X", "group.protocol=consumer"), ("--share",)])
def test_a_member_does_not_wait_for_a_topic_that_is_not_there(
    broker: BrokerProcess, mode: tuple[str, ...]
) -> None:
    said = millstream(broker, "consume", "never-made", "-G", "waiting", *mode, code=1)
    assert said == "millstream: no such topic or partition: topic 'never-made'\n"


@pytest.mark.parametrize(
    ("setting", "about"),
    [
        ("no.such=1", "there is no setting 'no.such'"),
        ("group.protocol=other", "it takes classic, consumer"),
        ("group.id=other", "--group gives it"),
        ("enable.auto.commit=false", "once their records are written out"),
    ],
)
def test_settings_that_a_member_cannot_have(
    broker: BrokerProcess, new_topic: Callable[[], str], setting: str, about: str
) -> None:
    topic = new_topic()
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"1")
    said = millstream(broker, "consume", topic, "-G", f"g-{topic}", "-X", setting, code=2)
    assert said.startswith("millstream: Invalid value for -X: ")
    assert about in said


@pytest.mark.parametrize(
    ("words", "known"), [(("--type", "share-group"), "share"), (("--state", "Idle"), "Stable")]
)
def test_kinds_and_states_that_no_group_has(
    broker: BrokerProcess, words: tuple[str, str], known: str
) -> None:
    said = millstream(broker, "group", "list", *words, code=2)
    assert f"{words[1]!r} is not one of " in said
    assert known in said
    millstream(broker, "group", "list", words[0], known.lower())


def test_a_classic_member_of_a_share_group(
    broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    group = f"g-{topic}"
    with (
        Producer(bootstrap_servers=broker.bootstrap) as producer,
        ShareConsumer[bytes, bytes](bootstrap_servers=broker.bootstrap, group_id=group) as member,
    ):
        producer.send(topic, b"1").result(DEADLINE_S)
        member.subscribe([topic])
        deadline = time.monotonic() + DEADLINE_S
        while group not in millstream(broker, "group", "list", "--type", "share"):
            assert time.monotonic() < deadline
            member.poll(0.1)
        said = millstream(broker, "consume", topic, "-G", group, code=1)
    assert f"JoinGroup of group '{group}'" in said
    assert "group protocol" in said


def test_a_share_consumer_takes_no_pattern(broker: BrokerProcess) -> None:
    with (
        ShareConsumer[bytes, bytes](
            bootstrap_servers=broker.bootstrap, group_id="names-only"
        ) as member,
        pytest.raises(TypeError, match="by their names, not by a pattern"),
    ):
        member.subscribe(SubscriptionPattern("a.*"))  # type: ignore[arg-type]


@pytest.mark.long
def test_a_group_reads_to_the_end_and_no_further(
    broker: BrokerProcess, new_topic: Callable[[], str]
) -> None:
    topic = new_topic()
    group = f"g-{topic}"
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        from millstream.client.core.admin.topics import NewTopic

        admin.create_topics([NewTopic(topic, 3)]).get_all()
    consume = ("consume", topic, "--group", group, "--exit")
    assert millstream(broker, *consume) == ""
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        # One partition has a batch of a transaction's end behind its records, one has none.
        for number in range(20):
            producer.send(topic, str(number).encode(), partition=number % 2)
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=f"t-{topic}") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"20", partition=1)
        producer.commit_transaction()
    assert sorted(millstream(broker, *consume).split(), key=int) == [str(n) for n in range(21)]
    # All of it is committed: nothing is left for the next one.
    assert millstream(broker, *consume) == ""
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"21", partition=2)
    assert millstream(broker, *consume) == "21\n"
    assert millstream(broker, *consume, "--count", "1") == ""
