"""Seeded trouble: idempotent sends are neither lost, doubled nor reordered.

``MILLSTREAM_SCHEDULES=100000`` runs as many seeds; a failing one is named and runs alone with
``MILLSTREAM_SCHEDULES=seed:N``.
"""

from __future__ import annotations

import os

import pytest
from tests.client_twin.schedules import Schedule
from tests.examples import examples

FEW = 300
MANY = 3000


def run(seeds: range) -> None:
    acknowledged = sent = 0
    for seed in seeds:
        schedule = Schedule(seed)
        try:
            schedule.run()
        except BaseException as error:
            error.add_note(f"schedule {seed}: MILLSTREAM_SCHEDULES=seed:{seed} runs it alone")
            raise
        acknowledged += schedule.acknowledged
        sent += len(schedule.sent)
    assert acknowledged > sent / 2, "schedules in which nothing arrives show nothing"


@pytest.mark.slow
def test_a_few_schedules() -> None:
    run(range(examples(FEW)))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(36_000)
def test_many_schedules() -> None:
    asked = os.environ.get("MILLSTREAM_SCHEDULES", str(MANY))
    if asked.startswith("seed:"):
        seed = int(asked.removeprefix("seed:"))
        run(range(seed, seed + 1))
    else:
        run(range(FEW, FEW + int(asked)))
