"""Copy, transform, write under ``kill -9``: committed readers count each input exactly once.

``python -m tests.system.cluster.exactly_once --records 1000000 --kills 30`` runs three brokers, a
ZooKeeper and three copying processes (``exactly_once_worker``) and kills, in turn, the broker that
coordinates a transaction, the leader of an output partition, a copying process, and all brokers at
once. Meanwhile and in the end committed readers, one with small fetches and one with large ones,
read the output: no number twice, none missing, none that was aborted.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.peers.cluster_view import ClusterView
from bench.peers.trio import Trio, addresses, bring_back, millstream_trio
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.system.cluster.exactly_once_worker import GROUP
from tests.system.cluster.side_by_side import PARTITIONS, create, leader_of, whole
from tests.system.cluster.watched import QUICK

SOURCE, TARGET = "numbers", "doubled"
WORKERS: Final = 3
SETTLE_S: Final = 600.0
SMALL, LARGE = 2_000, 1 << 20


@dataclass
class Outcome:
    """What a run came to."""

    records: int
    seconds: float = 0.0
    kills: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    problems: list[str] = field(default_factory=list)


class Workers:
    """The copying processes; one that ends is followed by another of the same name."""

    def __init__(self, bootstrap: str, log: Path) -> None:
        self._bootstrap = bootstrap
        self._log = log
        self._processes: list[subprocess.Popen[bytes]] = []
        self.restarts = 0
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Workers:
        self._processes = [self._spawn(number) for number in range(WORKERS)]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        for process in self._processes:
            process.kill()
            process.wait()

    def kill(self, number: int) -> None:
        """kill -9 a process."""
        with self._lock:
            self._processes[number].send_signal(signal.SIGKILL)

    def _spawn(self, number: int) -> subprocess.Popen[bytes]:
        module = "tests.system.cluster.exactly_once_worker"
        arguments = [self._bootstrap, SOURCE, TARGET, f"copier-{number}"]
        with self._log.open("ab") as log:
            return subprocess.Popen([sys.executable, "-m", module, *arguments], stderr=log)

    def _watch(self) -> None:
        while not self._stopped.wait(0.2):
            with self._lock:
                for number, process in enumerate(self._processes):
                    if process.poll() is not None:
                        self._processes[number] = self._spawn(number)
                        self.restarts += 1


def fill(bootstrap: str, records: int) -> None:
    """Write the numbers below ``records`` to the source."""
    producer = Producer(
        {**QUICK, "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20}
    )
    for number in range(records):
        while True:
            try:
                producer.produce(SOURCE, str(number), partition=number % PARTITIONS)
            except BufferError:
                producer.poll(0.1)
            else:
                break
    assert producer.flush(120) == 0, "the source is not filled"


def kill_coordinator(nodes: Trio, workers: Workers, chance: random.Random) -> None:
    victim = nodes[
        ClusterView(nodes).coordinator(f"copier-{chance.randrange(WORKERS)}", key_type=1)
    ]
    victim.kill()
    time.sleep(3 * chance.random())
    bring_back(victim)


def kill_leader(nodes: Trio, workers: Workers, chance: random.Random) -> None:
    victim = nodes[leader_of(nodes, TARGET)]
    victim.kill()
    time.sleep(3 * chance.random())
    bring_back(victim)


def kill_worker(nodes: Trio, workers: Workers, chance: random.Random) -> None:
    workers.kill(chance.randrange(WORKERS))


def kill_all(nodes: Trio, workers: Workers, chance: random.Random) -> None:
    for node in nodes.values():
        node.kill()
    bring_back(*nodes.values())


KILLS: Final[Mapping[str, Callable[[Trio, Workers, random.Random], None]]] = {
    "coordinator": kill_coordinator,
    "leader": kill_leader,
    "client": kill_worker,
    "all brokers": kill_all,
}


class Reader:
    """Reads the target as read_committed while all of it goes on, by fetches of one size."""

    def __init__(self, bootstrap: str, fetch_bytes: int) -> None:
        self._consumer = Consumer(
            {
                **QUICK,
                "bootstrap.servers": bootstrap,
                "group.id": f"reads {fetch_bytes}",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "max.partition.fetch.bytes": fetch_bytes,
                "fetch.wait.max.ms": 50,
            }
        )
        self._consumer.assign([TopicPartition(TARGET, index, 0) for index in range(PARTITIONS)])
        self.seen: Counter[int] = Counter()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for message in self._consumer.consume(2_000, 0.2):
                if message.error() is None:
                    self.seen[int(message.value() or b"")] += 1


def judge(seen: Counter[int], records: int, name: str) -> Iterator[str]:
    """Yield what a reader should not have seen, or has not."""
    wanted = {2 * number for number in range(records)}
    missing = wanted - seen.keys()
    twice = [value for value, count in seen.items() if count > 1]
    unknown = seen.keys() - wanted
    for what, values in (("missing", missing), ("twice", twice), ("unknown", unknown)):
        if values:
            yield f"{name}: {len(values)} {what}, {sorted(values)[:5]}"


def left_over(bootstrap: str) -> int:
    """Return how many inputs the group has not committed yet; -1 where nobody says so."""
    consumer = Consumer({**QUICK, "bootstrap.servers": bootstrap, "group.id": GROUP})
    partitions = [TopicPartition(SOURCE, index) for index in range(PARTITIONS)]
    try:
        left = 0
        for each in consumer.committed(partitions, 10):
            _, end = consumer.get_watermark_offsets(each, 10)
            left += end - max(0, each.offset)
    except KafkaException:
        return -1
    finally:
        consumer.close()
    return left


@contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="exactly-once-", dir="/var/tmp"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run(nodes: Trio, directory: Path, *, records: int, kills: int, seed: int = 1) -> Outcome:
    """Run on brokers that are there; return what was wrong."""
    chance, outcome, bootstrap = random.Random(seed), Outcome(records), addresses(nodes)
    create(nodes, SOURCE)
    create(nodes, TARGET)
    fill(bootstrap, records)
    begun = time.monotonic()
    with (
        Reader(bootstrap, SMALL) as small,
        Reader(bootstrap, LARGE) as large,
        Workers(bootstrap, directory / "workers.log") as workers,
    ):
        names = list(KILLS)
        for number in range(kills):
            time.sleep(2 + 4 * chance.random())
            name = names[number % len(names)]
            KILLS[name](nodes, workers, chance)
            outcome.kills[name] += 1
            whole(nodes, TARGET)
        deadline = time.monotonic() + SETTLE_S
        while left_over(bootstrap) != 0:
            if time.monotonic() > deadline:
                outcome.problems.append(f"{left_over(bootstrap)} inputs are not copied")
                break
            time.sleep(0.5)
        outcome.seconds = time.monotonic() - begun
        while time.monotonic() < deadline and not all(
            sum(reader.seen.values()) >= records for reader in (small, large)
        ):
            time.sleep(0.5)
        time.sleep(2)  # for what must not come
        outcome.restarts = workers.restarts
    outcome.problems += judge(small.seen, records, "small fetches")
    outcome.problems += judge(large.seen, records, "large fetches")
    return outcome


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    words.add_argument("--records", type=int, default=1_000_000)
    words.add_argument("--kills", type=int, default=30)
    words.add_argument("--seed", type=int, default=1)
    given = words.parse_args()
    with _directory() as directory, millstream_trio(directory) as nodes:
        AdminClient({"bootstrap.servers": addresses(nodes)}).list_topics(timeout=30)
        outcome = run(nodes, directory, records=given.records, kills=given.kills, seed=given.seed)
    kills = ", ".join(f"{count} × {name}" for name, count in outcome.kills.items())
    print(f"{outcome.records} records in {outcome.seconds:.0f} s; killed: {kills or 'nobody'}; ")
    print(f"copying processes started again: {outcome.restarts}")
    for problem in outcome.problems:
        print(f"WRONG: {problem}")
    print("each input exactly once" if not outcome.problems else "not exactly once")
    return 1 if outcome.problems else 0


if __name__ == "__main__":
    sys.exit(main())
