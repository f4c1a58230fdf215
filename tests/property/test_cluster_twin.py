"""Three real brokers in one process under seeded faults: every record acknowledged with acks=all is
in the log in the end, once and in order, and the three logs are equal to the byte.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.runtime.replica_site import IDS, ClusterSite, Produced

from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode
from millstream.model.leadership import NO_LEADER
from millstream.records.batch import iter_batches
from millstream.records.record import iter_records


class Story:
    def __init__(self, seed: int, min_isr: int) -> None:
        self.random = Random(seed)
        self.site = ClusterSite(min_isr=min_isr)
        self.count = 0
        self.sent: list[tuple[bytes, Produced]] = []

    @property
    def leader(self) -> BrokerId:
        return self.site.controller.state.leader

    def produce(self) -> None:
        leader = self.leader
        if leader == NO_LEADER or not self.site.brokers[leader].alive:
            return
        value = b"value-%d" % self.count
        self.count += 1
        if self.random.random() < 0.2:
            self.site[leader].produce(value, acks=1)
        else:
            self.sent.append((value, self.site[leader].produce(value)))

    def kill(self) -> None:
        """kill -9, noticed by the controller at once; the last of the ISR stays."""
        victim = self.random.choice(IDS)
        state = self.site.controller.state
        left = tuple(each for each in state.isr if each != victim)
        if not self.site.brokers[victim].alive or not left:
            return
        self.site.kill(victim)
        if victim in state.isr:
            leader = state.leader if state.leader != victim else left[0]
            self.site.controller.elect(leader, *left)

    def revive(self) -> None:
        for each in IDS:
            if not self.site.brokers[each].alive:
                self.site.restart(each)

    def move(self) -> None:
        self.site.controller.elect(self.random.choice(self.site.controller.state.isr))

    def cut(self) -> None:
        source, target = self.random.sample(IDS, 2)
        self.site.cut(source, target)

    def step(self) -> None:
        steps = (self.produce, self.kill, self.revive, self.move, self.cut, self.site.heal)
        self.random.choices(steps, (20, 1, 1, 1, 1, 2))[0]()
        if self.random.random() < 0.7:
            self.site.advance(self.random.choice((0, 1, 20, 300, 4_000, 12_000)))

    def finish(self) -> None:
        self.site.heal()
        self.revive()
        self.site.advance(120_000)

    def values(self) -> list[bytes]:
        return [
            bytes(record.value or b"")
            for data in self.site[self.leader].values()
            for batch in iter_batches(memoryview(data))
            for record in iter_records(batch)
        ]


@pytest.mark.slow
@settings(max_examples=examples(6))
@given(seed=st.integers(0, 2**32), min_isr=st.sampled_from((1, 2)))
def test_what_was_acknowledged_is_there_in_the_end(seed: int, min_isr: int) -> None:
    story = Story(seed, min_isr)
    for _ in range(60):
        story.step()
    story.finish()
    assert story.site.isr == (1, 2, 3)
    assert story.site[1].values() == story.site[2].values() == story.site[3].values()
    values = story.values()
    assert len(set(values)) == len(values)
    acknowledged = [
        value for value, answer in story.sent if answer.done and answer.error is ErrorCode.NONE
    ]
    assert acknowledged == [value for value in values if value in set(acknowledged)]
