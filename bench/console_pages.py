"""How long the console takes for a cluster of 1,000 topics and 10,000 partitions.

    .venv/bin/python -m bench.console_pages [millstream|kafka|HOST:PORT …] [--rounds N]

One broker each, on its own and filled, or one at an address as it is; the console as its command
runs it. Answers: the time of a request over loopback. Pages: from the change of the address in
headless Chromium (Playwright) until the page has drawn what it waits for; each in a tab of its
own. Medians and the longest of N rounds, and beside them the CPU time of console and broker
together, which does not depend on what else runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.peers.kafka import KafkaNode, find_kafka, free_port
from bench.peers.millstream import millstream_node
from bench.process import cpu_seconds
from millstream.client.admin import Admin
from millstream.client.core.admin.topics import NewTopic
from millstream.client.producer import Producer
from millstream.model.topic import TopicPartition

TOPICS, PARTITIONS = 1_000, 10
CREATED_AT_ONCE = 50
RECORDS = 20_000
FILLED = 50
"""Topics with records in them."""
COMMITTED_AT_ONCE = 1_000
GROUPS, PARTITIONS_OF_GROUP = 50, 200
TARGET_S = 1.0
PATIENCE_S = 120.0
BUSY = "topic-0000"
BIG_GROUP = "all-partitions"
FILTERED = "from=oldest&filter=value.number%20%3D%3D%20777"

ANSWERS = {
    "overview": "/api/overview",
    "topics": "/api/topics",
    "one topic": f"/api/topics/{BUSY}",
    "settings": f"/api/topics/{BUSY}/settings",
    "records, newest": f"/api/topics/{BUSY}/records?limit=200",
    "records, filtered": f"/api/topics/{BUSY}/records?{FILTERED}",
    "replicas": f"/api/replicas/{BUSY}/0",
    "groups": "/api/groups",
    "one group, 200 partitions": "/api/groups/reader-01",
    "one group, 10,000 partitions": f"/api/groups/{BIG_GROUP}",
    "transactions": "/api/transactions",
    "access rules": "/api/acls",
}
PAGES = {
    "overview": "",
    "topics": "topics",
    "one topic": f"topics/{BUSY}",
    "settings": f"topics/{BUSY}/settings",
    "records, newest": f"topics/{BUSY}/records",
    "replicas": f"topics/{BUSY}/replicas",
    "groups": "groups",
    "one group, 200 partitions": "groups/reader-01",
    "one group, 10,000 partitions": f"groups/{BIG_GROUP}",
    "transactions": "transactions",
    "access rules": "acls",
}


def commit(admin: Admin, group: str, offsets: dict[TopicPartition, int]) -> None:
    """Set offsets of a group. Apache Kafka's broker hears of a topic some time after its making."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        outcomes = admin.alter_group_offsets(group, offsets)
        if not outcomes.errors or time.monotonic() > deadline_s:
            outcomes.get_all()
            return
        time.sleep(0.5)


def fill(bootstrap: str) -> None:
    """Make the topics, records in some of them, and the groups."""
    names = [f"topic-{number:04}" for number in range(TOPICS)]
    with Admin({"bootstrap.servers": bootstrap, "default.api.timeout.ms": 120_000}) as admin:
        for first in range(0, TOPICS, CREATED_AT_ONCE):
            some = names[first : first + CREATED_AT_ONCE]
            admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in some]).get_all()
            if first == 0:  # the topic of offsets is made while the broker has little to do
                commit(admin, BIG_GROUP, {TopicPartition(BUSY, 0): 0})
        with Producer({"bootstrap.servers": bootstrap}) as producer:
            for number in range(RECORDS):
                producer.send(BUSY, json.dumps({"number": number, "path": "/x" * 40}), str(number))
            for name in names[1:FILLED]:
                producer.send(name, b"{}")
            producer.flush()
        everywhere = [TopicPartition(name, each) for name in names for each in range(PARTITIONS)]
        for first in range(0, len(everywhere), COMMITTED_AT_ONCE):
            some_of = dict.fromkeys(everywhere[first : first + COMMITTED_AT_ONCE], 0)
            commit(admin, BIG_GROUP, some_of)
        for number in range(GROUPS):
            first = number * PARTITIONS_OF_GROUP
            some_of = dict.fromkeys(everywhere[first : first + PARTITIONS_OF_GROUP], 0)
            commit(admin, f"reader-{number:02}", some_of)


@contextmanager
def console(bootstrap: str) -> Iterator[tuple[str, int]]:
    """Run the console's command; yield its address and the id of its process."""
    command = [sys.executable, "-m", "millstream.cli.main", "console", "--port", "0"]
    with subprocess.Popen(
        [*command, "--bootstrap-server", bootstrap], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().partition(": ")[2].strip().rstrip("/"), process.pid
        finally:
            process.terminate()


@dataclass(slots=True)
class Row:
    """What was measured of one answer or page."""

    kind: str
    what: str
    times_s: list[float]
    cpu_s: float
    """Of the console, and of the broker where it is ours, for each round."""
    requests: int = 1

    def __str__(self) -> str:
        median_s = statistics.median(self.times_s)
        late = "  above the target" if median_s >= TARGET_S else ""
        return (
            f"{self.kind:7} {self.what:30} {median_s:9.3f} {max(self.times_s):9.3f} "
            f"{self.cpu_s:7.3f} {self.requests:9}{late}"
        )


def cpu_of(processes: Sequence[int]) -> float:
    return sum(map(cpu_seconds, processes))


def timed(work: Callable[[], object], rounds: int) -> list[float]:
    found = []
    for _ in range(rounds):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return found


def fetch(address: str, refused: list[str]) -> None:
    """Get an answer; note one that is an error."""
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            json.load(answer)
    except urllib.error.HTTPError as error:
        refused.append(f"{address}: {error.code} {error.read().decode()}")


def note_request(asked: list[str], request: Any) -> None:
    asked.append(request.url)


def measure_pages(address: str, rounds: int, processes: Sequence[int]) -> Iterator[Row]:
    """Yield each page with the requests that it made."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("no Chromium here: pages are not measured", file=sys.stderr)
        return
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, place in PAGES.items():
            times = []
            asked: list[str] = []
            before_s = cpu_of(processes)
            for _ in range(rounds):
                tab = browser.new_page(viewport={"width": 1280, "height": 800})
                tab.set_default_timeout(60_000)
                tab.goto(f"{address}/#/explained")
                tab.locator("h1").wait_for()
                asked.clear()
                tab.on("request", partial(note_request, asked))
                # Drawn: the page's own heading, a table or cards, and nothing that still waits.
                times.append(
                    tab.evaluate(
                        """place => new Promise(resolve => {
                            const begin = performance.now();
                            const old = document.querySelector("main h1");
                            const main = document.getElementById("main");
                            const done = () => !old.isConnected && !main.querySelector(".wait")
                                && main.querySelector(".table .row, .cards, .nothing strong");
                            const look = () => done()
                                ? requestAnimationFrame(() => resolve(performance.now() - begin))
                                : requestAnimationFrame(look);
                            location.hash = `#/${place}`;
                            requestAnimationFrame(look);
                        })""",
                        place,
                    )
                    / 1000
                )
                tab.close()
            yield Row("page", name, times, (cpu_of(processes) - before_s) / rounds, len(asked))
        browser.close()


def measure(name: str, directory: Path, rounds: int) -> bool:
    """Measure one subject; return whether every median is below the target."""
    if ":" in name:
        return measure_console(name, name, rounds, [])
    node: Any
    if name == "kafka":
        node = KafkaNode(find_kafka(), directory)
    else:
        node = millstream_node(directory, port=free_port())
    with node:
        bootstrap = f"{node.host}:{node.port}"
        begin = time.perf_counter()
        fill(bootstrap)
        print(f"{name}: filled in {time.perf_counter() - begin:.1f} s", flush=True)
        return measure_console(name, bootstrap, rounds, [node.pid])


def measure_console(name: str, bootstrap: str, rounds: int, brokers: Sequence[int]) -> bool:
    refused: list[str] = []
    rows = []
    with console(bootstrap) as (address, process):
        processes = [process, *brokers]
        print(f"{name}\n{'':38} {'median s':>9} {'longest s':>9} {'CPU s':>7} {'requests':>9}")
        for what, place in ANSWERS.items():
            before_s = cpu_of(processes)
            times = timed(partial(fetch, address + place, refused), rounds)
            rows.append(Row("answer", what, times, (cpu_of(processes) - before_s) / rounds))
            print(rows[-1], flush=True)
        for row in measure_pages(address, rounds, processes):
            rows.append(row)
            print(row, flush=True)
    print(*refused, sep="\n")
    return not refused and all(statistics.median(row.times_s) < TARGET_S for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("subjects", nargs="*", default=["millstream"])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    good = True
    for name in arguments.subjects:
        with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
            good &= measure(name, Path(directory), arguments.rounds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
