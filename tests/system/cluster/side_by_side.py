"""The same faults under the same load, here and on three Apache Kafka brokers, side by side.

``python -m tests.system.cluster.side_by_side`` prints a table of what stock clients saw: the
longest time in which a partition acknowledged nothing, and what the checker of histories found. On
both sides an idempotent producer writes to three partitions, a group of two reads and commits, and
somebody asks all the time what the group has committed. ``--transactions`` adds a producer that
commits some transactions and aborts others, and a reader of what is committed, where the brokers
have that.

=====================  =====================================================================
kill -9 of a leader    of the first partition, and it comes back
SIGSTOP of a leader    for longer than any session, 20 s, and it goes on
rolling restart        SIGTERM and a start of one broker after the other
kill -9 of all         and all come back
=====================  =====================================================================
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from bench.peers.kafka import KafkaNotFoundError, find_kafka
from bench.peers.trio import Trio, addresses, bring_back, kafka_trio, millstream_trio
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table
from tests.system.cluster.watched import (
    QUICK,
    Asker,
    Member,
    Sender,
    Watched,
    anomalies,
)

from millstream.history.checker import History, Kind, Outcome, Poll, Send

PARTITIONS: Final = 3
SLEEP_S: Final = 20.0
COLUMNS: Final = (
    Kind.LOST,
    Kind.DUPLICATE,
    Kind.REORDERED,
    Kind.ABORTED_READ,
    Kind.BACKWARD_POLL,
    Kind.SKIPPED,
    Kind.GROUP_OFFSET_BACK,
)


def create(nodes: Trio, topic: str) -> None:
    """Create a topic; a cluster that has only now started may refuse for a while."""
    admin = AdminClient({"bootstrap.servers": addresses(nodes), "log_level": 0})
    wanted = NewTopic(topic, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    deadline = time.monotonic() + 60
    while topic not in admin.list_topics(timeout=30).topics:
        assert time.monotonic() < deadline, f"{topic} cannot be created"
        with contextlib.suppress(KafkaException):
            admin.create_topics([wanted])[topic].result(30)
    whole(nodes, topic)


def leader_of(nodes: Trio, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": addresses(nodes), "log_level": 0})
    return int(admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader)


def whole(nodes: Trio, topic: str) -> None:
    """Wait until every replica is in sync again."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        admin = AdminClient({"bootstrap.servers": addresses(nodes), "log_level": 0})
        try:
            found = admin.list_topics(topic, timeout=5).topics[topic].partitions.values()
        except KafkaException:
            continue
        if all(len(each.isrs) == len(nodes) for each in found):
            return
        time.sleep(0.2)
    raise TimeoutError(f"{topic} is not in sync again")


def kill_the_leader(nodes: Trio, topic: str) -> None:
    victim = nodes[leader_of(nodes, topic)]
    victim.kill()
    time.sleep(15)
    bring_back(victim)


def stop_the_leader(nodes: Trio, topic: str) -> None:
    victim = nodes[leader_of(nodes, topic)].pid
    os.kill(victim, signal.SIGSTOP)
    try:
        time.sleep(SLEEP_S)
    finally:
        os.kill(victim, signal.SIGCONT)


def restart_one_by_one(nodes: Trio, topic: str) -> None:
    for node in nodes.values():
        node.stop()
        bring_back(node)
        whole(nodes, topic)


def kill_all(nodes: Trio, topic: str) -> None:
    for node in nodes.values():
        node.kill()
    bring_back(*nodes.values())


FAULTS: Final[Mapping[str, Callable[[Trio, str], None]]] = {
    "kill -9 of a leader": kill_the_leader,
    "SIGSTOP of a leader": stop_the_leader,
    "rolling restart": restart_one_by_one,
    "kill -9 of all": kill_all,
}


class Transactions(Watched):
    """Transactions over all partitions of a topic, every other one aborted."""

    def __init__(self, bootstrap: str, topic: str, history: History) -> None:
        super().__init__()
        self._bootstrap, self._topic, self._history = bootstrap, topic, history
        self.committed = 0
        self.aborted = 0

    def _producer(self) -> Producer:
        producer = Producer(
            {
                **QUICK,
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._topic,
                "transaction.timeout.ms": 30_000,
            }
        )
        producer.init_transactions(60)
        return producer

    def run(self) -> None:
        chance, producer = random.Random(7), self._producer()
        for number in itertools.count():
            if self.stopped.is_set():
                break
            aborts = chance.random() < 0.5
            sends = [
                self._history.send(
                    Send((self._topic, index), f"t{number}:{index}", "t", durable=True, once=True)
                )
                for index in range(PARTITIONS)
            ]
            try:
                self._one(producer, sends, aborts=aborts)
            except KafkaException:
                producer = self._producer()
            time.sleep(0.01)

    def _one(self, producer: Producer, sends: list[Send], *, aborts: bool) -> None:
        offsets: dict[str, int] = {}

        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                offsets[(message.value() or b"").decode()] = -1 if offset is None else offset

        producer.begin_transaction()
        for send in sends:
            producer.produce(
                self._topic, str(send.value), partition=send.partition[1], on_delivery=told
            )
        if producer.flush(30) or aborts:
            producer.abort_transaction(60)
            for send in sends:
                send.outcome = Outcome.REFUSED
            self.aborted += 1
            return
        producer.commit_transaction(60)
        for send in sends:
            send.outcome, send.offset = Outcome.ACKNOWLEDGED, offsets[str(send.value)]
        self.committed += 1


class CommittedReader(Watched):
    """Reads what is committed, from the beginning on."""

    def __init__(self, bootstrap: str, topic: str, history: History) -> None:
        super().__init__()
        self._bootstrap, self._topic, self._history = bootstrap, topic, history

    def run(self) -> None:
        consumer = Consumer(
            {
                **QUICK,
                "bootstrap.servers": self._bootstrap,
                "group.id": "reads-committed",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(self._topic, index, 0) for index in range(PARTITIONS)])
        while not self.stopped.is_set():
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    place = (self._topic, message.partition() or 0)
                    value = (message.value() or b"").decode()
                    self._history.polls.append(
                        Poll(place, "reads-committed", message.offset() or 0, value)
                    )
        consumer.close()


@dataclass(frozen=True)
class Row:
    """What one fault did to one kind of brokers."""

    gap_s: float
    acknowledged: int
    failed: int
    found: Counter[Kind]
    texts: list[str]


def try_out(nodes: Trio, topic: str, fault: Callable[[Trio, str], None], *, both: bool) -> Row:
    """Let a fault happen under load, and judge the history."""
    bootstrap, history = addresses(nodes), History()
    create(nodes, topic)
    in_transactions, aside = History(), f"{topic}-transactions"
    with ExitStack() as stack:
        members = [stack.enter_context(Member(bootstrap, topic, history, topic)) for _ in range(2)]
        stack.enter_context(Asker(bootstrap, topic, history, topic, PARTITIONS))
        sender = stack.enter_context(Sender(bootstrap, topic, history, "p", PARTITIONS))
        if both:
            create(nodes, aside)
            stack.enter_context(CommittedReader(bootstrap, aside, in_transactions))
            stack.enter_context(Transactions(bootstrap, aside, in_transactions))
        sender.wait_for_more(500)
        for each in members:
            each.wait_for_commits()
        begun = time.monotonic()
        fault(nodes, topic)
        sender.first_after(time.monotonic())
        whole(nodes, topic)
        sender.wait_for_more(500)
        for each in members:
            each.wait_for_commits()
        gap = sender.longest_gap(begun)
    found = anomalies(bootstrap, topic, history, PARTITIONS)
    if both:
        found += anomalies(
            bootstrap, aside, in_transactions, PARTITIONS, isolation="read_committed"
        )
    return Row(
        gap,
        sender.acknowledged,
        len(sender.failures),
        Counter(each.kind for each in found),
        [each.text for each in found],
    )


def have_transactions(nodes: Trio) -> bool:
    """Tell whether the brokers take transactions."""
    producer = Producer(
        {**QUICK, "bootstrap.servers": addresses(nodes), "transactional.id": "asked"}
    )
    try:
        producer.init_transactions(30)
    except KafkaException:
        return False
    return True


def subjects(only: str) -> Iterator[tuple[str, Callable[[Path], AbstractContextManager[Trio]]]]:
    if only in ("", "millstream"):
        yield "Millstream", millstream_trio
    if only in ("", "kafka"):
        try:
            install = find_kafka()
        except KafkaNotFoundError as error:
            print(f"Apache Kafka did not run: {error}")
        else:
            yield f"Apache Kafka {install.version}", partial(kafka_trio, install)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--only", choices=("millstream", "kafka"), default="")
    words.add_argument("--fault", choices=tuple(FAULTS), action="append")
    words.add_argument("--rounds", type=int, default=1)
    words.add_argument("--transactions", action="store_true")
    words.add_argument("--verbose", action="store_true", help="print every anomaly")
    given = words.parse_args()
    titles = ("fault", "brokers", "longest gap, s", "acknowledged", "failed")
    table = Table(*titles, *(each.value for each in COLUMNS), "other")
    directory = Path(tempfile.mkdtemp(prefix="side-by-side-", dir="/var/tmp"))
    try:
        for fault in given.fault or FAULTS:
            for name, start in subjects(given.only):
                for number in range(given.rounds):
                    place = directory / f"{name} {fault} {number}"
                    with start(place) as nodes:
                        both = given.transactions and have_transactions(nodes)
                        topic = fault.replace(" ", "-")
                        try:
                            row = try_out(nodes, topic, FAULTS[fault], both=both)
                        except (AssertionError, TimeoutError, subprocess.SubprocessError) as error:
                            table.add_row(fault, name, f"failed: {error}")
                            print(f"{fault}, {name}: {error!r}", flush=True)
                            continue
                    others = sum(n for kind, n in row.found.items() if kind not in COLUMNS)
                    counts = [str(row.found[each]) for each in COLUMNS]
                    if given.transactions and not both:
                        counts[COLUMNS.index(Kind.ABORTED_READ)] += " (no transactions)"
                    cells = [f"{row.gap_s:.2f}", str(row.acknowledged), str(row.failed)]
                    table.add_row(fault, name, *cells, *counts, str(others))
                    print(fault, name, *cells, *counts, others, flush=True)
                    for text in row.texts[: None if given.verbose else 3]:
                        print("   ", text, flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
