"""A power loss at every step of a replica's move between directories: what was acknowledged is
there, once and in order, and the move ends after the restart.
"""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from tests.memory_files import MemoryFileSystem, PowerLossError
from tests.unit.runtime.log_site import LogSite, Outcomes, append, write
from tests.unit.runtime.logs.test_replica_mover import SMALL, mover_of, other, values

from millstream.runtime.logs import replica_mover


class Scenario:
    """Writes and a move there and back, in an order that the seed decides."""

    def __init__(self, seed: int, crash_at: int) -> None:
        self.chance = random.Random(seed)
        self.site = LogSite("/one", "/two")
        self.written: list[bytes] = []
        self.acknowledged = 0
        self.left: MemoryFileSystem | None = None
        files = self.site.files
        files.steps = 0

        def hook(step: str, path: str) -> None:
            if self.left is not None:
                raise PowerLossError
            if files.steps == crash_at:
                self.left = files.crashed(random.Random(seed * 1_000 + crash_at))
                raise PowerLossError

        files.hook = hook

    def write(self) -> None:
        value = b"%06d" % len(self.written) * self.chance.randint(1, 12)
        self.written.append(value)
        offset = write(self.site.partition(), self.noting(), value)
        assert offset == len(self.written) - 1

    def noting(self) -> Outcomes:
        end = len(self.written)
        scenario = self

        class Noting(Outcomes):
            def note(self, name: str = ""):  # type: ignore[no-untyped-def]
                def callback(error: object) -> None:
                    if error is None:
                        scenario.acknowledged = max(scenario.acknowledged, end)

                return callback

        return Noting()

    def run(self) -> None:
        site, chance = self.site, self.chance
        site.create("t", **SMALL, file_delete_delay_ms="0")
        mover = mover_of(site)
        for number in range(90):
            site.offload.held = chance.random() < 0.7
            action = chance.choice(["write", "write", "turn", "flush", "move", "settle"])
            if action == "write":
                self.write()
            elif action == "turn":
                site.clock.run_once()
            elif action in ("flush", "move"):
                site.offload.release(action)
            elif not site.offload.held:
                site.offload.release()
                site.clock.settle()
            if number in (25, 60) and not list(site.log_manager.future_logs):
                mover.move(site.partition(), other(site.directory_of("t")))
            if number % 20 == 0:
                site.log_manager.checkpoint_plan()()
                site.log_manager.removals.run_due(site.clock.now_ms())
        site.offload.held = False
        site.offload.release()
        site.clock.settle()


def check(scenario: Scenario) -> None:
    """Start again on what the power loss has left."""
    assert scenario.left is not None
    site = LogSite("/one", "/two")
    site.files._root = scenario.left._root
    site.restart()
    site.show("t", **SMALL)
    partition = site.partition()
    found = values(partition)
    assert len(found) >= scenario.acknowledged
    assert found == scenario.written[: len(found)]
    mover_of(site).resume()
    append(partition, b"after")
    site.clock.settle()
    site.log_manager.removals.run_due(site.clock.now_ms() + 1)
    assert not list(site.log_manager.future_logs)
    assert values(partition) == [*found, b"after"]
    site.log_manager.close()
    site.restart()
    site.show("t", **SMALL)
    assert values(site.partition()) == [*found, b"after"]
    names = [e.name for d in ("/one", "/two") for e in site.files.scan(d) if e.is_directory]
    assert sum(name == "t-0" for name in names) == 1


def steps_of(seed: int) -> int:
    scenario = Scenario(seed, -1)
    scenario.run()
    assert scenario.acknowledged == len(scenario.written)
    return scenario.site.files.steps


def crash_everywhere(seed: int, every: int) -> None:
    first = 1 + seed % every
    for step in range(first, steps_of(seed), every):
        scenario = Scenario(seed, step)
        with suppress(PowerLossError):
            scenario.run()
        check(scenario)


@pytest.fixture(autouse=True)
def _small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_mover, "COPY_BYTES", 600)


@pytest.mark.parametrize("seed", [2, 3])
def test_a_power_loss_at_some_steps_of_a_move(seed: int) -> None:
    crash_everywhere(seed, every=53)


@pytest.mark.slow
def test_a_power_loss_at_every_second_step_of_a_move() -> None:
    crash_everywhere(2, every=2)
