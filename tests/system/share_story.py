"""A story of a share group: ten members, of which three die by SIGKILL, divide numbered records.

Half of the members are blocking and half asyncio. In the end every record was accepted by someone,
or, if every member released it, delivered as often as the group allows and archived: nothing is
left to be delivered. What is told is the same for Millstream and Apache Kafka.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from millstream.client import Admin, Producer
from millstream.client.core.admin.configs import Change, Resource, ResourceType

WORKER = Path(__file__).with_name("share_worker.py")
DELIVERY_LIMIT = 5
"""Kafka's ``group.share.delivery.count.limit``."""
DEADLINE_S = 120
BAD_EVERY = 50
MOST_AT_ONCE = 20
"""What a worker polls at a time."""


class Worker:
    """One process, and what it wrote."""

    def __init__(self, directory: Path, number: int, bootstrap: str, group: str, topic: str):
        self.path = directory / f"worker-{number}.out"
        self.errors = directory / f"worker-{number}.err"
        face = "asyncio" if number % 2 else "blocking"
        with self.path.open("wb") as out, self.errors.open("wb") as err:
            self.process = subprocess.Popen(
                [sys.executable, str(WORKER), face, bootstrap, group, topic],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=err,
            )

    def lines(self) -> list[list[str]]:
        text = self.path.read_text()
        return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        self.process.stdin.close()

    def finish(self) -> None:
        """Let it end by itself; it must not complain."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(60) == 0, self.errors.read_text()


def read_from_the_beginning(bootstrap: str, group: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        resource = Resource(ResourceType.GROUP, group)
        change = Change("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({resource: [change]}).get_all()


def produce(bootstrap: str, topic: str, first: int, count: int) -> None:
    """Write numbers; every fiftieth is one that no member processes."""
    # Small batches, so that what one member acquires is not everything.
    with Producer(bootstrap_servers=bootstrap, batch_size=1_000) as producer:
        for number in range(first, first + count):
            name = f"bad-{number}" if number % BAD_EVERY == 0 else str(number)
            producer.send(topic, name.encode())


def lag(bootstrap: str, group: str) -> int:
    """Return how many records are neither done with nor archived."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        offsets = admin.list_share_group_offsets([group])[group].get()
    return sum(each.lag for each in offsets.values())


def ten_members_of_which_three_die(
    bootstrap: Callable[[], str],
    directory: Path,
    group: str,
    topic: str,
    *,
    records: int = 3_000,
    trouble: Callable[[], None] | None = None,
) -> None:
    """Run the story; ``trouble``, the death of a broker, happens in the middle of it."""
    in_doubt = 3 if trouble is None else 13
    read_from_the_beginning(bootstrap(), group)
    produce(bootstrap(), topic, 0, records // 2)
    workers = [Worker(directory, number, bootstrap(), group, topic) for number in range(10)]
    try:
        _await(lambda: _accepted(workers) > records // 10, workers, "the first records")
        for number in (0, 1, 2):
            workers[number].kill()
        if trouble is not None:
            trouble()
        produce(bootstrap(), topic, records // 2, records // 2)
        good = {str(number) for number in range(records) if number % BAD_EVERY}
        # What was said and not answered, because the member or the broker died, is in doubt: the
        # broker may have heard it. Then the lag tells whether it has.
        _await(lambda: _values(workers, "saying") >= good, workers, "every good record")
        _await(lambda: lag(bootstrap(), group) == 0, workers, "the bad records to be archived")
        for worker in workers[3:]:
            worker.finish()
    finally:
        for worker in workers:
            if worker.process.poll() is None:
                worker.kill()
    accepted = _values(workers, "accepted")
    assert accepted <= good
    assert len(good - accepted) <= in_doubt * MOST_AT_ONCE
    released: Counter[str] = Counter()
    for worker in workers:
        for word, value, count in worker.lines():
            assert 1 <= int(count) <= DELIVERY_LIMIT, (word, value, count)
            if word == "released":
                released[value] += 1
    bad = {f"bad-{number}" for number in range(0, records, BAD_EVERY)}
    assert set(released) <= bad <= _values(workers, "saying")
    assert max(released.values()) <= DELIVERY_LIMIT


def _values(workers: list[Worker], word: str) -> set[str]:
    return {line[1] for worker in workers for line in worker.lines() if line[0] == word}


def _accepted(workers: list[Worker]) -> int:
    return len(_values(workers, "accepted"))


def _await(condition: Callable[[], bool], workers: list[Worker], what: str) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        errors = [worker.errors.read_text()[-500:] for worker in workers]
        assert time.monotonic() < end, f"waited for {what}; {_accepted(workers)} done; {errors}"
        time.sleep(0.3)
