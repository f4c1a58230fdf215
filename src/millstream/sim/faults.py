"""What goes wrong in a simulation, and why a cluster has to survive it.

Each seed draws its own *swarm*: some kinds of faults, how often each comes, and classes of messages
that are slow. Seeds that do one thing a lot find what seeds that do a bit of everything do not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final

from millstream.model.clock import TimerHandle
from millstream.model.topic import TRANSACTION_STATE_TOPIC
from millstream.protocol.api import ApiKey
from millstream.sim import admin_requests
from millstream.sim.broker import SESSION_TIMEOUT_MS
from millstream.sim.transactions import TRANSACTIONAL

if TYPE_CHECKING:
    from millstream.sim.cluster import SimCluster

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault. ``strike`` returns what ends it, None when it did not apply or ends by
    itself.
    """

    name: str
    why: str
    """Why nothing that was acknowledged may be lost by it."""
    strike: Callable[[SimCluster], Undo | None]
    lasts_ms: tuple[float, float] = (100.0, 8_000.0)


def _kill(cluster: SimCluster) -> Undo | None:
    number = cluster.some_broker()
    cluster.kill(number, "kill")
    return lambda: cluster.start_broker(number)


def _kill_all(cluster: SimCluster) -> Undo | None:
    for number in cluster.numbers:
        cluster.kill(number, "kill")

    def start() -> None:
        for number in cluster.numbers:
            cluster.start_broker(number)

    return start


def _kill_leader(cluster: SimCluster) -> Undo | None:
    number = cluster.some_leader()
    cluster.kill(number, "kill the leader")
    return lambda: cluster.start_broker(number)


def _kill_controller(cluster: SimCluster) -> Undo | None:
    number = cluster.controller_number()
    if number is None:
        return None
    cluster.kill(number, "kill the controller")
    return lambda: cluster.start_broker(number)


def _power_loss(cluster: SimCluster) -> Undo | None:
    if not cluster.may_lose_data():
        return None
    number = cluster.some_broker()
    cluster.lose_power(number)
    return lambda: cluster.start_broker(number)


def _failed_flush(cluster: SimCluster) -> Undo | None:
    if not cluster.may_lose_data():
        return None
    number = cluster.some_broker()
    directory = cluster.loop.chance.choice(cluster.directories)
    cluster.machines[number].go_bad(directory, flushes_alone=True)
    return lambda: cluster.repair_disk(number)


def _failed_directory(cluster: SimCluster) -> Undo | None:
    if len(cluster.directories) < 2 or not cluster.may_lose_data():
        return None
    number = cluster.some_broker()
    directory = cluster.loop.chance.choice(cluster.directories)
    cluster.machines[number].go_bad(directory, flushes_alone=False)
    return lambda: cluster.repair_disk(number)


def _new_disk(cluster: SimCluster) -> Undo | None:
    if not cluster.may_lose_data():
        return None
    number = cluster.some_broker()
    cluster.kill(number, "new disk")
    cluster.machines[number].replace_disk(cluster.loop.chance.choice(cluster.directories))
    return lambda: cluster.start_broker(number)


def _bit_flip(cluster: SimCluster) -> Undo | None:
    if not cluster.may_lose_data():
        return None
    number = cluster.some_broker()
    cluster.kill(number, "bit flip")
    if cluster.machines[number].flip_bit("sim", cluster.loop.chance):
        cluster.sometimes["a bit was flipped"] += 1
    return lambda: cluster.start_broker(number)


def _set_clock(cluster: SimCluster) -> Undo | None:
    # A record of an hour ahead is refused, which is a rule and no fault.
    offset_ms = cluster.loop.chance.choice((-1_800_000, -5_000, 5_000, 1_800_000))
    cluster.lives[cluster.some_broker()].clock.set_wall_offset(offset_ms)
    return None


def _full_disk(cluster: SimCluster) -> Undo | None:
    number = cluster.some_broker()
    cluster.machines[number].files.room = cluster.loop.chance.randrange(2_000)
    return lambda: cluster.repair_disk(number)


def _slow_disk(cluster: SimCluster) -> Undo | None:
    number = cluster.some_broker()
    life = cluster.lives[number]
    life.offload.slow_ms = 3_000 * cluster.loop.chance.random()

    def quick() -> None:
        life.offload.slow_ms = 0.0

    return quick


def _pause(cluster: SimCluster) -> Undo | None:
    life = cluster.lives[cluster.some_broker()]
    life.clock.pause()
    return life.clock.resume


def _shut_down(cluster: SimCluster) -> Undo | None:
    number = cluster.some_broker()
    if not cluster.lives[number].is_up:
        return None
    cluster.lives[number].shut_down()
    return lambda: cluster.start_broker(number)


def _cut_one_way(cluster: SimCluster) -> Undo | None:
    source, target = cluster.loop.chance.sample(cluster.numbers, 2)
    return _cut(cluster, [(source, target)])


def _isolate(cluster: SimCluster) -> Undo | None:
    number = cluster.some_broker()
    others = [each for each in cluster.numbers if each != number]
    into = [(each, number) for each in others]
    out = [(number, each) for each in others]
    return _cut(cluster, cluster.loop.chance.choice((into, out, into + out)))


def _ring(cluster: SimCluster) -> Undo | None:
    """Every broker reaches the next one alone."""
    numbers = cluster.loop.chance.sample(cluster.numbers, len(cluster.numbers))
    near = set(zip(numbers, numbers[1:] + numbers[:1], strict=True))
    links = [(a, b) for a in numbers for b in numbers if a != b and (a, b) not in near]
    return _cut(cluster, links)


def _cut(cluster: SimCluster, links: list[tuple[int, int]]) -> Undo:
    for source, target in links:
        cluster.network.cut(source, target)

    def heal() -> None:
        for source, target in links:
            cluster.network.heal(source, target)

    return heal


def _ill_listener(cluster: SimCluster) -> Undo | None:
    """Other brokers do not reach a leader, which reaches everybody and is reached by clients."""
    number = cluster.some_leader()
    others = [each for each in cluster.numbers if each != number]
    cluster.network.make_unreachable(others, number, resets=cluster.loop.chance.random() < 0.5)
    return lambda: cluster.network.make_reachable(others, number)


def _reset(cluster: SimCluster) -> Undo | None:
    one, other = cluster.loop.chance.sample([*cluster.numbers, *cluster.work.numbers], 2)
    cluster.network.reset(one, other)
    return None


def _cut_store(cluster: SimCluster) -> Undo | None:
    number = cluster.some_broker()
    ways: tuple[tuple[str, ...], ...] = (("to",), ("from",), ("to", "from"))
    cuts = [(number, way) for way in cluster.loop.chance.choice(ways)]
    cluster.ensemble.cuts.update(cuts)
    return lambda: cluster.ensemble.cuts.difference_update(cuts)


def _cut_coordinator_from_store(cluster: SimCluster) -> Undo | None:
    number = cluster.some_coordinator()
    cuts = [(number, "to"), (number, "from")]
    cluster.ensemble.cuts.update(cuts)
    return lambda: cluster.ensemble.cuts.difference_update(cuts)


def _cut_store_from_all(cluster: SimCluster) -> Undo | None:
    cuts = [(number, "to") for number in cluster.numbers]
    cluster.ensemble.cuts.update(cuts)
    return lambda: cluster.ensemble.cuts.difference_update(cuts)


def _reset_store(cluster: SimCluster) -> Undo | None:
    cluster.lives[cluster.some_broker()].store.reset()
    return None


def _expire(cluster: SimCluster) -> Undo | None:
    cluster.ensemble.end_early(cluster.lives[cluster.some_broker()].store.session_id)
    return None


def _lose_markers(cluster: SimCluster) -> Undo | None:
    """Markers take long to a broker that leads what transactions wrote to, which dies meanwhile."""
    number = cluster.some_leader_of(TRANSACTIONAL)
    slow_ms = cluster.loop.chance.choice((1_000.0, 4_000.0))
    heal = _slow_markers(cluster, cluster.numbers, [number], slow_ms)
    die = _later(cluster, slow_ms, lambda: cluster.kill(number, "kill before its markers"))

    def undo() -> None:
        die.cancel()
        heal()
        cluster.start_broker(number)

    return undo


def _late_markers(cluster: SimCluster) -> Undo | None:
    """Markers of a coordinator take long, and it is replaced meanwhile without being ended."""
    number = cluster.some_leader_of(TRANSACTION_STATE_TOPIC)
    others = [each for each in cluster.numbers if each != number]
    slow_ms = cluster.loop.chance.choice((3_000.0, 8_000.0))
    heal = _slow_markers(cluster, [number], others, slow_ms)
    replace = _later(
        cluster,
        500.0,
        lambda: cluster.ensemble.end_early(cluster.lives[number].store.session_id),
    )

    def undo() -> None:
        replace.cancel()
        heal()

    return undo


def _later(cluster: SimCluster, within_ms: float, event: Callable[[], None]) -> TimerHandle:
    return cluster.loop.call_later(within_ms * cluster.loop.chance.random(), event)


def _slow_markers(
    cluster: SimCluster, sources: list[int], targets: list[int], slow_ms: float
) -> Undo:
    key = int(ApiKey.WRITE_TXN_MARKERS)
    links = [(one, other, key) for one in sources for other in targets if one != other]
    for link in links:
        cluster.network.weather.slow[link] = slow_ms

    def heal() -> None:
        for link in links:
            _forget(cluster, link)

    return heal


_SLOW: Final = (
    ApiKey.FETCH,
    ApiKey.PRODUCE,
    ApiKey.PROPOSE_ISR,
    ApiKey.PUSH_METADATA,
    ApiKey.API_VERSIONS,
)


def _slow_messages(cluster: SimCluster) -> Undo | None:
    chance = cluster.loop.chance
    everybody = [*cluster.numbers, *cluster.work.numbers]
    source, target = chance.sample(everybody, 2)
    key = (source, target, int(chance.choice(_SLOW)))
    cluster.network.weather.slow[key] = chance.choice((50.0, 1_000.0, 6_000.0))
    return lambda: _forget(cluster, key)


def _forget(cluster: SimCluster, key: tuple[int, int, int]) -> None:
    cluster.network.weather.slow.pop(key, None)


def _elect(cluster: SimCluster) -> Undo | None:
    admin_requests.elect_preferred_leaders(cluster)
    return None


def _min_isr(cluster: SimCluster) -> Undo | None:
    admin_requests.change_min_isr(cluster)
    return None


def _reassign(cluster: SimCluster) -> Undo | None:
    admin_requests.reassign_some_partition(cluster)
    return None


def _move_log(cluster: SimCluster) -> Undo | None:
    admin_requests.move_some_log(cluster)
    return None


_CACHE = "the page cache outlives the process, so all that was written is there at the next start"
_EPOCHS = "who is cut off commits nothing alone, and epochs fence what it says afterwards"

FAULTS: Final = (
    Fault("kill", _CACHE, _kill),
    Fault("kill leader", _CACHE, _kill_leader),
    Fault("kill controller", _CACHE, _kill_controller),
    Fault("kill all", _CACHE, _kill_all, (100, 3_000)),
    Fault(
        "power loss",
        "one machine at a time, all replicas in sync before: min.insync.replicas of two leave one "
        "other with everything, and the broker's continuity says that its place counts no more",
        _power_loss,
    ),
    Fault(
        "failed flush", "as a power loss: the kernel drops what it could not write", _failed_flush
    ),
    Fault("failed directory", "as a failed flush; the other directory goes on", _failed_directory),
    Fault("new disk", "as a power loss: an empty directory earns no trust", _new_disk),
    Fault("bit flip", "damage in the middle never leads, and what it lacks is fetched", _bit_flip),
    Fault("clock jump", "only monotonic time decides anything about replicas", _set_clock),
    Fault("full disk", "what does not fit is not acknowledged, and recovery cuts it", _full_disk),
    Fault("slow disk", "what is not written is not acknowledged", _slow_disk),
    Fault("pause", _EPOCHS, _pause, (50, 3 * SESSION_TIMEOUT_MS)),
    Fault("shut down", "a clean stop flushes", _shut_down),
    Fault("cut one way", _EPOCHS, _cut_one_way, (100, 15_000)),
    Fault("isolate", _EPOCHS, _isolate, (100, 15_000)),
    Fault("ring", _EPOCHS, _ring, (100, 15_000)),
    Fault("reset", "who asked asks again", _reset),
    Fault("cut store", _EPOCHS, _cut_store, (100, 3 * SESSION_TIMEOUT_MS)),
    Fault("cut store from all", _EPOCHS, _cut_store_from_all, (100, 2 * SESSION_TIMEOUT_MS)),
    Fault("reset store", "a write whose answer is lost is looked up", _reset_store),
    Fault("expire", "a broker whose session is over registers anew, with a new epoch", _expire),
    Fault("slow messages", "a late message is known by its epoch", _slow_messages, (1_000, 20_000)),
    Fault("elect", "leaders are chosen from the ISR", _elect),
    Fault("reassign", "replicas leave after the new ones are in sync", _reassign),
)

CHANGES: Final = (
    Fault(
        "min isr",
        "who may be elected by the setting of before is waited for until the controller lets go",
        _min_isr,
    ),
)
"""Kinds that came later: they are drawn beside the others, so that old seeds stay as they were."""

LOG_MOVES: Final = (
    Fault(
        "move log",
        "a copy takes the replica's place once it holds on disk all that is committed",
        _move_log,
    ),
)
"""What happens in seeds whose brokers move replicas between their log directories."""

LOST_COORDINATORS: Final = (
    Fault(
        "cut coordinator from store",
        "bytes to and from the store vanish, all else is reached, for longer than a session: who "
        "may have been replaced answers nothing any more",
        _cut_coordinator_from_store,
        (SESSION_TIMEOUT_MS, 4 * SESSION_TIMEOUT_MS),
    ),
)
"""What happens in seeds whose clients ask every broker what groups have committed."""

ILL_LISTENERS: Final = (Fault("ill listener", _EPOCHS, _ill_listener, (1_000, 20_000)),)
"""What happens in seeds in which listeners between brokers fall ill."""

MARKERS: Final = (
    Fault(
        "lost markers",
        "a marker without an answer is sent again, to whoever leads by then",
        _lose_markers,
        (4_000, 8_000),
    ),
    Fault(
        "late markers",
        "a leader that knows the successor of a coordinator takes no marker of it",
        _late_markers,
        (1_000, 8_000),
    ),
)
"""What happens to markers in seeds with transactions."""

_ALL: Final = (*FAULTS, *CHANGES, *LOG_MOVES, *LOST_COORDINATORS, *ILL_LISTENERS, *MARKERS)

LOSING: Final = frozenset(
    {"power loss", "failed flush", "failed directory", "new disk", "bit flip"}
)


@dataclass
class Swarm:
    """One seed's kinds of faults, and the mean time between two of them."""

    kinds: tuple[Fault, ...]
    weights: tuple[float, ...]
    every_ms: float
    struck: dict[str, int] = field(default_factory=dict)

    @property
    def moves_logs(self) -> bool:
        """True where replicas move between the log directories of their brokers."""
        return any(each in LOG_MOVES for each in self.kinds)

    @property
    def loses_data(self) -> bool:
        """True where some fault takes away what a machine has written."""
        return any(each.name in LOSING for each in self.kinds)

    @classmethod
    def draw(cls, chance: Random, more: Random) -> Swarm:
        """Draw a swarm; ``more`` draws from what came later."""
        count = chance.choice((1, 2, 2, 3, 4, 6, 10))
        kinds = tuple(chance.sample(FAULTS, count))
        weights = tuple(chance.choice((1.0, 1.0, 3.0, 10.0)) for _ in kinds)
        if more.random() < 0.3:
            kinds, weights = (*kinds, *CHANGES), (*weights, 3.0)
        return cls(kinds, weights, chance.choice((300.0, 1_000.0, 3_000.0)))

    @property
    def loses_coordinators(self) -> bool:
        """True where coordinators are cut from the metadata store alone."""
        return any(each in LOST_COORDINATORS for each in self.kinds)

    def with_lost_coordinators(self, chance: Random) -> Swarm:
        """Return the same swarm with coordinators that are cut from the metadata store alone."""
        weights = [chance.choice((1.0, 3.0, 10.0)) for _ in LOST_COORDINATORS]
        return Swarm((*self.kinds, *LOST_COORDINATORS), (*self.weights, *weights), self.every_ms)

    def with_ill_listeners(self, chance: Random) -> Swarm:
        """Return the same swarm with listeners between brokers that swallow or reset."""
        weights = [chance.choice((1.0, 3.0, 10.0)) for _ in ILL_LISTENERS]
        return Swarm((*self.kinds, *ILL_LISTENERS), (*self.weights, *weights), self.every_ms)

    def with_marker_faults(self, chance: Random) -> Swarm:
        """Return the same swarm with markers of transactions that are lost or late."""
        weights = [chance.choice((1.0, 3.0, 10.0)) for _ in MARKERS]
        return Swarm((*self.kinds, *MARKERS), (*self.weights, *weights), self.every_ms)

    def with_log_moves(self, chance: Random) -> Swarm:
        """Return the same swarm with moves between log directories, and in half of all seeds log
        directories that fail.
        """
        known = {each.name for each in self.kinds}
        fails = chance.random() < 0.5
        names = ("move log", *(("failed directory",) if fails else ()))
        kinds = [each for each in _ALL if each.name in names and each.name not in known]
        weights = [chance.choice((1.0, 3.0, 10.0)) for _ in kinds]
        return Swarm((*self.kinds, *kinds), (*self.weights, *weights), self.every_ms)

    @classmethod
    def of(cls, *names: str, every_ms: float = 1_000.0) -> Swarm:
        """Return a swarm of these kinds alone, all alike."""
        kinds = tuple(each for each in _ALL if each.name in names)
        assert len(kinds) == len(names), "there is no such fault"
        return cls(kinds, (1.0,) * len(kinds), every_ms)

    def strike(self, cluster: SimCluster) -> None:
        """Let one fault happen, and end in its time."""
        chance = cluster.loop.chance
        fault = chance.choices(self.kinds, self.weights)[0]
        self.struck[fault.name] = self.struck.get(fault.name, 0) + 1
        cluster.loop.note("fault", fault.name)
        undo = fault.strike(cluster)
        if undo is not None:
            cluster.undo_later(chance.uniform(*fault.lasts_ms), undo)
