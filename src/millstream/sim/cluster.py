"""A simulated cluster from its first start to the last comparison of its logs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from millstream.config.broker import RACK_AWARE_SELECTOR
from millstream.controller import paths, payloads
from millstream.history import checker as history
from millstream.history.checker import PartitionKey, Value
from millstream.model.topic import GROUP_METADATA_TOPIC
from millstream.server.dispatch import Dispatcher
from millstream.sim.broker import BrokerLife
from millstream.sim.checkers import Checkers
from millstream.sim.coordination import Ensemble
from millstream.sim.coordinator_workload import CoordinatorWorkload, Kind
from millstream.sim.faults import Swarm, Undo
from millstream.sim.groups import GROUP_PARTITIONS
from millstream.sim.loop import Loop, NodeClock
from millstream.sim.machine import DIRECTORIES, Machine
from millstream.sim.network import Network, Weather
from millstream.sim.recreation import RECREATED
from millstream.sim.workload import TOPIC, Workload

LOOK_MS: Final = 200.0
HEAL_MS: Final = 60_000
"""How long a cluster may take to be whole again once nothing is wrong any more."""
SHARE_MS: Final = 180_000
"""How long a share group may take to settle everything: records that were delivered often are given
one at a time, and there may be one member."""
REST_MS: Final = 3_000
RESTING_REQUESTS: Final = 200
"""What one broker asks another of one kind at most in that time: far more than long polls and
pushes do, far less than a circle.
"""

SETTINGS: Final = {
    "replica.lag.time.max.ms": "4000",
    "replica.socket.timeout.ms": "5000",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "20",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": str(GROUP_PARTITIONS),
    "offsets.topic.replication.factor": "3",
    "offsets.topic.segment.bytes": "1048576",
    "log.retention.check.interval.ms": "1500",
}


@dataclass
class Report:
    """What a run came to."""

    seed: int
    simulated_ms: float
    events: int
    trace_hash: str
    problems: list[str]
    sometimes: Counter[str] = field(default_factory=Counter)


class SimCluster:
    """Brokers, an ensemble, clients and a swarm of faults, all drawn from one seed."""

    def __init__(
        self, seed: int, *, swarm: Swarm | None = None, kinds: Collection[Kind] = ()
    ) -> None:
        """``kinds`` of coordinators' clients are there in any case, and no others."""
        self.seed = seed
        self.loop = Loop(seed)
        chance = self.loop.chance
        self.network = Network(self.loop, Weather(jitter_ms=chance.choice((0.5, 2.0, 30.0))))
        self.ensemble = Ensemble(self.loop)
        self.ensemble.jitter_ms = chance.choice((0.5, 5.0, 60.0))
        self.numbers = list(range(1, 1 + chance.choice((3, 3, 3, 4))))
        self.min_isr = chance.choice((2, 2, 2, 1))
        more = Random(f"what came later to seed {seed}")
        coordinators = CoordinatorWorkload(
            seed, min_isr=self.min_isr, is_drawn=swarm is None, wanted=kinds
        )
        self.work = Workload(chance, more, coordinators, min_isr=self.min_isr)
        self.directories = DIRECTORIES[: chance.choice((1, 1, 2))]
        self.settings = {**SETTINGS, **coordinators.settings}
        self.settings["min.insync.replicas"] = str(self.min_isr)
        if chance.random() < 0.5:  # catching up takes many fetches
            self.settings["replica.fetch.max.bytes"] = "400"
        if self.work.reads_nearby:
            self.settings["replica.selector.class"] = RACK_AWARE_SELECTOR
        self.swarm = swarm or Swarm.draw(chance, more)
        self.move_ms = 0.0
        """How long each step of a move between log directories takes at most."""
        moving = Random(f"log directories of seed {seed}")
        if swarm is None and moving.random() < 0.3:
            self.swarm = self.swarm.with_log_moves(moving)
        if self.swarm.moves_logs:
            self.directories = DIRECTORIES
            self.move_ms = moving.choice((0.0, 30.0, 200.0))
        closing = Random(f"segments of seed {seed}")
        if self.swarm.moves_logs or (swarm is None and closing.random() < 0.3):
            self.work.segment_bytes = closing.choice((None, 300, 1_500))
        asking = Random(f"who is asked in seed {seed}")
        if swarm is None and asking.random() < 0.25:
            self.swarm = self.swarm.with_lost_coordinators(asking)
        if self.swarm.loses_coordinators:
            self.work.ask_everybody()
        ill = Random(f"listeners of seed {seed}")
        if swarm is None and ill.random() < 0.25:
            self.swarm = self.swarm.with_ill_listeners(ill)
        marking = Random(f"markers of seed {seed}")
        if swarm is None and coordinators.has_transactions and marking.random() < 0.4:
            self.swarm = self.swarm.with_marker_faults(marking)
        self.settings["log.dirs"] = ",".join(self.directories)
        self.machines = {each: self._machine(each) for each in self.numbers}
        self.lives: dict[int, BrokerLife] = {}
        self.checkers = Checkers()
        self.ensemble.tree.on_change = self.checkers.tree_changed
        self.sometimes: Counter[str] = Counter()
        self._undo: dict[Undo, None] = {}
        self._striking = False

    def _machine(self, number: int) -> Machine:
        chance = self.loop.chance
        rate = chance.choice((1.0, 1.0, 0.97, 1.03))
        offset_ms = chance.choice((0, 0, -600_000, 60_000))
        return Machine(number, self.directories, rate, offset_ms)

    # --- brokers -------------------------------------------------------------------------------

    def start_broker(self, number: int) -> None:
        """Start a broker that is not there."""
        life = self.lives.get(number)
        if life is not None and not life.clock.is_dead:
            return
        machine = self.machines[number]
        clock = NodeClock(self.loop, rate=machine.rate, wall_offset_ms=machine.wall_offset_ms)
        life = BrokerLife(
            machine.files, number, self.ensemble, self.network, clock, self.settings, self._gone
        )
        life.offload.move_ms = self.move_ms
        self.lives[number] = life
        self.network.hosts[number] = life.host
        life.start()

    def kill(self, number: int, why: str) -> None:
        """End a process at once; its machine goes on."""
        life = self.lives[number]
        if not life.clock.is_dead:
            self.checkers.look([life], self.ensemble.tree.nodes)
            self.loop.note(why, number)
            life.vanish()

    def lose_power(self, number: int) -> None:
        """End a machine: what was not flushed is gone, or a part of it."""
        self.kill(number, "power loss")
        self.lives[number].host.is_off = self.loop.chance.random() < 0.5
        self.machines[number].power_loss(self.loop.chance)

    def repair_disk(self, number: int) -> None:
        """Put disks right. Where one has failed the broker is started anew, to use it again."""
        machine = self.machines[number]
        if machine.has_failed or machine.files.has_been_full:
            self.kill(number, "repair")
        machine.repair(self.loop.chance)
        self.start_broker(number)

    def _gone(self, life: BrokerLife, why: str) -> None:
        """A broker has stopped by itself: it is started again after a while."""
        self.sometimes[f"a broker stopped: {why.split(':', maxsplit=1)[0]}"] += 1
        self.kill(life.number, why)
        delay_ms = 500 + 1_500 * self.loop.chance.random()
        self.loop.call_later(delay_ms, lambda: self._restart(life))

    def _restart(self, life: BrokerLife) -> None:
        if self.lives[life.number] is life:
            self.repair_disk(life.number)

    # --- what faults ask -----------------------------------------------------------------------

    def some_broker(self) -> int:
        """Return a broker by chance."""
        return self.loop.chance.choice(self.numbers)

    def some_leader(self) -> int:
        """Return a broker that leads, as the store says."""
        return self._some_leader(TOPIC, self.work.partition_count)

    def some_coordinator(self) -> int:
        """Return a broker that coordinates a group, as the store says."""
        return self._some_leader(GROUP_METADATA_TOPIC, GROUP_PARTITIONS)

    def some_leader_of(self, topic: str) -> int:
        """Return a broker that leads a partition of a topic that is there in any case."""
        return self._some_leader(topic, self.topics[topic])

    def _some_leader(self, topic: str, partition_count: int) -> int:
        index = self.loop.chance.randrange(partition_count)
        node = self.ensemble.tree.nodes.get(paths.state(topic, index))
        if node is None:
            return self.some_broker()
        leader = payloads.read_state("", node.data, replicas=(), version=0).leader
        return leader if leader in self.numbers else self.some_broker()

    def controller_number(self) -> int | None:
        """Return the controller, None while there is none."""
        node = self.ensemble.tree.nodes.get(paths.CONTROLLER)
        return None if node is None else payloads.read_controller("", node.data)

    def may_lose_data(self) -> bool:
        """Tell whether one machine may lose its newest writes: everybody else has everything."""
        if self.unhealthy() or any(each.bad_directory for each in self.machines.values()):
            return False
        return self.min_isr > 1

    @property
    def topics(self) -> dict[str, int]:
        """Every topic that is there or has to be, and how many partitions it has."""
        topics = self.work.topics
        if paths.topic(RECREATED) in self.ensemble.tree.nodes:
            topics[RECREATED] = 1
        return topics

    def unhealthy(self) -> list[str]:
        """Return what is not whole."""
        return self.checkers.unhealthy(self.lives, self.ensemble.tree.nodes, self.topics)

    def undo_later(self, delay_ms: float, undo: Undo) -> None:
        """End a fault in its time, or when all are healed."""
        self._undo[undo] = None

        def end() -> None:
            if self._undo.pop(undo, 0) is None:
                undo()

        self.loop.call_later(delay_ms, end)

    # --- a run ---------------------------------------------------------------------------------

    def run(self, seconds: float) -> Report:
        """Start, let faults happen for ``seconds`` of virtual time, heal, and compare."""

        def strike() -> list[str]:
            self._striking = True
            self._strike_later()
            self.go_on(seconds * 1_000)
            self._striking = False
            return []

        return self.play(strike)

    def play(self, script: Callable[[], list[str]]) -> Report:
        """The same with faults in an order that somebody wrote down: ``script`` strikes, lets time
        go on, and returns what it finds wrong.
        """
        with _server_errors() as errors, self.work.coordinators.given_up.listening():
            problems = self._run(script)
        problems += errors
        problems += [f"nobody caught {each}" for each in self.loop.uncaught[:20]]
        problems += self.checkers.problems
        for client in self.work.clients:
            problems += client.problems
        self._count()
        return Report(
            self.seed,
            self.loop.now_ms,
            self.loop.events,
            self.loop.trace_hash,
            problems,
            self.sometimes,
        )

    def _run(self, script: Callable[[], list[str]]) -> list[str]:
        self._look()
        for number in self.numbers:
            self.start_broker(number)
        self.work.connect(self.network, self.numbers, self.ensemble)
        if not self.until(lambda: all(each.is_up for each in self.lives.values()), 30_000):
            return ["the brokers did not start"]
        creation = self.work.create_topic()
        if not self.until(lambda: creation.done, 30_000):
            return ["the topic was not made"]
        creation.result()
        self.work.start()
        if not self.until(lambda: not self.unhealthy(), 30_000):
            return [f"the cluster did not become whole: {self.unhealthy()}"]
        if not self.until(lambda: self.work.coordinators.is_set_up(self.lives), 30_000):
            return ["not every broker knows of the dead-letter topic"]
        return script() + self._end()

    def _end(self) -> list[str]:
        self.heal()
        if not self.until(lambda: not self.unhealthy(), HEAL_MS):
            return [f"not whole again: {'; '.join(self.unhealthy())}"]
        healed_ms = self.loop.now_ms
        if not self.until(lambda: not self.work.waits_since(healed_ms), HEAL_MS):
            return [f"after all has healed, not answered: {self.work.waits_since(healed_ms)}"]
        coordinators, count = self.work.coordinators, self.work.partition_count
        self.work.hold()
        coordinators.be_quiet(self.work.clients[0], TOPIC, count)
        if not self.until(lambda: not coordinators.unassigned(count), HEAL_MS):
            return [f"the group does not settle: {'; '.join(coordinators.unassigned(count))}"]
        if not self.until(lambda: not coordinators.not_shared(self._ends()), SHARE_MS):
            return [f"not all is shared: {'; '.join(coordinators.not_shared(self._ends()))}"]
        self.work.stop()
        self.go_on(8_000)
        nodes = self.ensemble.tree.nodes
        if not self.until(lambda: not self.unhealthy(), HEAL_MS):
            return [f"not whole in the end: {'; '.join(self.unhealthy())}"]
        if not self.until(lambda: not self.checkers.left_over(self.lives, nodes), HEAL_MS):
            return self.checkers.left_over(self.lives, nodes)
        coordinators.ask_for_offsets(self.work.clients[0])
        if not self.until(lambda: not coordinators.undecided(self.lives), HEAL_MS):
            return [f"a transaction does not end: {'; '.join(coordinators.undecided(self.lives))}"]
        problems = self._rest() + coordinators.check(self.lives)
        final = self.checkers.finish(self.lives, self.ensemble.tree.nodes, self.topics)
        problems += coordinators.check_share_group(
            {index: final[TOPIC, index] for index in self._ends()}, self.lives
        )
        return problems + history.check(_without_the_deleted(self.work.history, final), final)

    def _ends(self) -> dict[int, int]:
        """Return up to where the topic's partitions are committed, but for those of which records
        were deleted: a share group's lag counts these until it stores something again.
        """
        ends: dict[int, int] = {}
        for life in self.lives.values():
            for index in range(self.work.partition_count):
                replica = life.partitions.replica(TOPIC, index)
                if replica is not None and not self.work.history.deleted_up_to((TOPIC, index)):
                    ends[index] = max(ends.get(index, 0), replica.high_watermark)
        return ends

    def _rest(self) -> list[str]:
        """Let nothing happen for a while: followers wait at their leaders, and ask in no circle."""
        before = self.network.requests.copy()
        self.go_on(REST_MS)
        problems = []
        for key, count in (self.network.requests - before).items():
            if count > RESTING_REQUESTS:
                source, target, api = key
                problems.append(
                    f"broker {source} asks broker {target} {count} times for API {api} in "
                    f"{REST_MS} ms, though nothing happens"
                )
        return problems

    def heal(self) -> None:
        """End every fault."""
        undo, self._undo = self._undo, {}
        for each in undo:
            each()
        for number in self.numbers:
            self.start_broker(number)

    def _strike_later(self) -> None:
        delay_ms = self.loop.chance.expovariate(1 / self.swarm.every_ms)
        self.loop.call_later(delay_ms, self._strike)

    def _strike(self) -> None:
        if self._striking:
            self.swarm.strike(self)
            self._strike_later()

    def _look(self) -> None:
        alive = [each for each in self.lives.values() if not each.clock.is_dead]
        self.checkers.look(alive, self.ensemble.tree.nodes)
        self.loop.call_later(LOOK_MS, self._look)

    def go_on(self, milliseconds: float) -> None:
        """Let virtual time pass."""
        self.loop.run_until(self.loop.now_ms + milliseconds)

    def until(self, condition: Callable[[], bool], limit_ms: float) -> bool:
        """Let time pass until something is so; False when the time was not enough."""
        end_ms = self.loop.now_ms + limit_ms
        while self.loop.now_ms < end_ms:
            if condition():
                return True
            self.go_on(100)
        return condition()

    def _count(self) -> None:
        """Say what happened, so that nobody believes in faults that never were."""
        outcomes = Counter(each.outcome.value for each in self.work.history.sends.values())
        for name, count in outcomes.items():
            self.sometimes[f"sent and {name}"] += count
        self.sometimes["read"] += len(self.work.history.polls)
        steps = Counter(each.step.value for each in self.work.history.group_offsets)
        for name, count in steps.items():
            self.sometimes[f"group offset {name}"] += count
        if self.work.recreation is not None:
            self.sometimes["topic deleted"] += self.work.recreation.deletions
        if self.work.throws:
            self.sometimes["seeds with acks=0"] += 1
        for name, is_so in (
            ("reads nearby", self.work.reads_nearby),
            ("deletions", self.work.deletes),
            ("retention", self.work.expires),
            ("moves between log directories", self.swarm.moves_logs),
            ("small segments", self.work.segment_bytes is not None),
            ("every broker asked for offsets", self.work.asks_everybody),
        ):
            self.sometimes[f"seeds with {name}"] += is_so
        self.sometimes.update(self.work.coordinators.count())
        for consumer in self.work.consumers:
            self.sometimes["read from a follower"] += consumer.near_reads
            self.sometimes["a log began later than its reader"] += consumer.resets
        for deleter in self.work.deleters:
            self.sometimes["deletions acknowledged"] += deleter.acknowledged
        if len(self.directories) > 1:
            self.sometimes["seeds with two log directories"] += 1
        self.sometimes["leaders changed"] += self.checkers.elections
        self.sometimes.update(self.checkers.seen)
        node = self.ensemble.tree.nodes.get(paths.CONTROLLER_EPOCH)
        self.sometimes["controllers"] += int(node.data) if node is not None else 0
        for name, count in self.swarm.struck.items():
            self.sometimes[f"fault: {name}"] += count


@contextmanager
def _server_errors() -> Iterator[list[str]]:
    """Collect what handlers raised that nobody foresaw."""
    errors: list[str] = []
    watched = logging.getLogger(Dispatcher.__module__)
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: errors.append(  # type: ignore[method-assign]  # ours alone
        f"{record.getMessage()}: {record.exc_info[1]!r}" if record.exc_info else record.getMessage()
    )
    level = watched.level
    watched.setLevel(logging.ERROR)
    watched.addHandler(handler)
    try:
        yield errors
    finally:
        watched.removeHandler(handler)
        watched.setLevel(level)


def _without_the_deleted(
    seen: history.History, final: Mapping[PartitionKey, Mapping[int, Value]]
) -> history.History:
    """Return what was seen of topics that are there still."""
    return replace(
        seen,
        sends={value: send for value, send in seen.sends.items() if send.partition in final},
        polls=[poll for poll in seen.polls if poll.partition in final],
    )
