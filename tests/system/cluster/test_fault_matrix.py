"""{clean, hard} × {shutdown, bounce} × {leader, follower, controller} of a real cluster under load.

An idempotent acks=all producer writes, a group reads and commits. Nothing acknowledged is lost,
nothing is there twice, order is kept and the group's offsets do not go back. How long the first
acknowledged write took is printed at the end and is nobody's verdict.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster_processes import ClusterProcesses
from tests.cluster_store import STORES, stores_for
from tests.system.cluster.watched import Asker, Member, Sender, anomalies

from millstream.client.cluster import Cluster
from millstream.history.checker import History

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(300)]

IDS: Final = {1, 2, 3}


@dataclass
class Site:
    cluster: ClusterProcesses
    times: dict[str, tuple[float, float]] = field(default_factory=dict)

    def controller(self) -> int:
        found: list[int] = []

        def known() -> bool:
            for broker in self.cluster.living():
                with Cluster.at(broker.bootstrap) as client:
                    found.append(client.metadata([]).controller_id)
            return len(set(found[-3:])) == 1 and found[-1] in IDS

        self.cluster.until(known, "one controller")
        return found[-1]

    def create(self, topic: str, order: list[int]) -> None:
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 0})
        wanted = NewTopic(topic, 1, replica_assignment=[order], config={"min.insync.replicas": "2"})
        admin.create_topics([wanted])[topic].result(60)
        self.cluster.wait_for(topic, IDS, leader=order[0])


TELLING: Final = {("hard", "shutdown", "leader")}
"""The cells that run over a keeper as well."""


class Sites:
    """One cluster at a time: of a ZooKeeper, then of a keeper."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._tmp_path_factory = tmp_path_factory
        self._store = ""
        self._site: Site | None = None
        self.times: dict[str, tuple[float, float]] = {}

    def of(self, store: str) -> Site:
        if self._site is None or store != self._store:
            self.close()
            cluster = ClusterProcesses(self._tmp_path_factory.mktemp("matrix"), store=store)
            cluster.__enter__()
            self._site = Site(cluster)
            self._store = store
        return self._site

    def close(self) -> None:
        site, self._site = self._site, None
        if site is not None:
            site.cluster.close()
            self.times |= {f"{self._store}: {cell}": took for cell, took in site.times.items()}


@pytest.fixture(scope="module")
def sites(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Sites]:
    made = Sites(tmp_path_factory)
    yield made
    made.close()
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for cell, (first, gap) in made.times.items():
            print(
                f"\n  {cell:38} first write after {first:5.2f} s, longest gap {gap:5.2f} s", end=""
            )


@pytest.fixture
def site(sites: Sites, store: str) -> Site:
    return sites.of(store)


def end(site: Site, broker: int, how: str) -> None:
    if how == "clean":
        site.cluster[broker].stop()
    else:
        site.cluster[broker].kill()


CELLS: Final = tuple(
    itertools.product(
        ("clean", "hard"), ("shutdown", "bounce"), ("leader", "follower", "controller")
    )
)

LONG: Final = {("clean", "shutdown", "controller")}
"""The cell that takes longest, half a minute."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Say over which stores each cell runs."""
    cells = [
        pytest.param(store, *cell, marks=[pytest.mark.long] if cell in LONG else [])
        for store in STORES
        for cell in CELLS
        if store in stores_for("-".join(cell), ["-".join(each) for each in TELLING])
    ]
    metafunc.parametrize(("store", "how", "course", "role"), cells)


def test_a_broker_ends_under_load(
    site: Site, how: str, course: str, role: str, record_property: pytest.RecordProperty
) -> None:
    """The victim leads, follows, or is the controller and follows."""
    controller = site.controller()
    leader, follower = sorted(IDS - {controller})
    order = [leader, controller, follower] if course == "bounce" else [leader, follower, controller]
    victim = {"leader": leader, "follower": follower, "controller": controller}[role]
    topic = f"{how}-{course}-{role}"
    site.create(topic, order)
    history = History()
    bootstrap = site.cluster.bootstrap
    with (
        Member(bootstrap, topic, history, topic) as member,
        Asker(bootstrap, topic, history, topic) as asker,
        Sender(bootstrap, topic, history, "p") as sender,
    ):
        sender.wait_for_more()
        member.wait_for_commits()
        fault = time.monotonic()
        end(site, victim, how)
        if course == "bounce":
            site.cluster[victim].start()
        first = sender.first_after(fault)
        if course == "shutdown":
            without = site.cluster.wait_for(topic, IDS - {victim})
            assert without.leader == (follower if role == "leader" else leader)
            sender.wait_for_more()
            site.cluster[victim].start()
        back = site.cluster.wait_for(topic, IDS)
        assert role == "leader" or back.leader == leader
        if role == "controller" and course == "shutdown":
            assert site.controller() != victim
        sender.wait_for_more()
        member.wait_for_commits()
        asked = asker.answers
        asker.until(lambda: asker.answers > asked, "an answer about the group")
        gap = sender.longest_gap(fault)
    site.times[f"{how} {course} of the {role}"] = (first, gap)
    record_property("first_acknowledged_write_s", round(first, 3))
    record_property("longest_gap_s", round(gap, 3))
    assert sender.failures == []
    assert member.read > 0
    assert anomalies(bootstrap, topic, history) == []
