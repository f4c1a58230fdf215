"""The rules of transactions and of the newer groups, and a broker without each of them: the
simulator has to notice.

``python -m tests.unit.sim.coordinator_mutations`` prints in how many seeds each is caught.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from millstream.coordinator.group.consumer.consumer_group import ConsumerGroup
from millstream.coordinator.result import Result
from millstream.coordinator.transaction import markers
from millstream.coordinator.transaction.coordinator import TransactionCoordinator
from millstream.coordinator.transaction.metadata import TransactionMetadata
from millstream.model.deferred import Deferred
from millstream.model.errors import ErrorCode, KafkaError
from millstream.runtime.replicas.transaction_verification import TransactionVerifier
from millstream.runtime.share.dead_letter_topics import DeadLetterTopics
from millstream.runtime.share.led_share_partition import LedSharePartition
from millstream.share import share_partition
from millstream.sim.cluster import SimCluster
from millstream.sim.coordinator_workload import Kind
from millstream.sim.faults import Swarm
from millstream.storage.log_appender import LogAppender
from millstream.storage.producer_state import ProducerStateManager

Patch = Callable[[pytest.MonkeyPatch], None]


def takes_an_unknown_outcome_for_success(patch: pytest.MonkeyPatch) -> None:
    """A marker is lost where its leader goes away, or is replaced, before it has written it."""

    def mutant(transactional_id: str, completion: Any, outcomes: Any) -> None:
        lost = (None, ErrorCode.NOT_LEADER_OR_FOLLOWER.code)
        original(
            transactional_id,
            completion,
            {
                topic: {index: 0 if code in lost else code for index, code in codes.items()}
                for topic, codes in outcomes.items()
            },
        )

    original = markers.MarkerWriter._take_outcomes
    patch.setattr(markers.MarkerWriter, "_take_outcomes", staticmethod(mutant))


def gives_the_same_epoch_again(patch: pytest.MonkeyPatch) -> None:
    """InitProducerId ends what is open, and does not shut its producer out."""
    with_epoch = TransactionMetadata.with_epoch

    def mutant(self: TransactionMetadata, epoch: int, **more: Any) -> TransactionMetadata:
        return with_epoch(self, self.producer_epoch, **more)

    patch.setattr(TransactionMetadata, "with_epoch", mutant)
    patch.setattr(
        TransactionMetadata,
        "fenced",
        lambda self, *, now_ms, **more: self.prepared(
            commit=False, now_ms=now_ms, client_version=0
        ),
    )


def verifies_nothing_of_older_clients(patch: pytest.MonkeyPatch) -> None:
    """KIP-890: a write that was long on its way gets into a partition after the end of its
    transaction.
    """
    is_needed = TransactionVerifier.is_needed
    patch.setattr(
        TransactionVerifier,
        "is_needed",
        lambda self, support: support.bumps_epoch and is_needed(self, support),
    )
    patch.setattr(LogAppender, "check_verified", lambda self, batch, verified, **more: None)


def forgets_what_was_decided(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that was loaded does not go on with the markers of prepared transactions."""
    patch.setattr(TransactionCoordinator, "on_loaded", lambda self, now: Result())


def takes_markers_of_stale_coordinators(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that was replaced repeats the end of a transaction, and what its producer has
    begun since ends with it.
    """
    check = ProducerStateManager.check_marker
    newest = 1 << 31
    patch.setattr(
        ProducerStateManager,
        "check_marker",
        lambda self, **more: check(self, **{**more, "coordinator_epoch": newest}),
    )


def takes_acknowledgements_without_storing_them(patch: pytest.MonkeyPatch) -> None:
    """A share partition that is led elsewhere delivers again what was accepted."""
    patch.setattr(LedSharePartition, "_persist", _forgotten)


def _forgotten(self: Any, write: Any) -> Any:
    if write is not None:
        self.machine.written(write)
        self.changed()
    return Deferred.of(None)


def believes_members_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A member that was fenced commits for partitions that are another one's by now."""
    patch.setattr(ConsumerGroup, "validate_commit", lambda self, request, *rest: None)


def forgets_what_was_on_its_way_to_the_dead_letter_topic(patch: pytest.MonkeyPatch) -> None:
    """A new leader takes what it reads as given up for what is in the topic."""
    patch.setattr(share_partition, "cause_of_stored", lambda rules, delivery_count: None)


def takes_a_refused_dead_letter_for_written(patch: pytest.MonkeyPatch) -> None:
    """A batch that the leader of the dead-letter topic did not take is not sent again."""

    async def mutant(self: Any, step: Any) -> None:
        with suppress(KafkaError):
            await step()

    patch.setattr(DeadLetterTopics, "_with_attempts", mutant)


@dataclass(frozen=True)
class CoordinatorMutation:
    """A rule, what leaves it out, and the first seed to try."""

    rule: str
    patch: Patch
    first_seed: int = 1
    is_shown: bool = True
    """False where no seed is known in which it matters."""
    kind: Kind = Kind.TRANSACTIONS
    faults: tuple[str, ...] = ()
    """The only ones that happen; those of the seed where none is named."""

    def is_caught(self, seed: int) -> list[str]:
        """Return what the simulator finds wrong in a seed."""
        swarm = Swarm.of(*self.faults, every_ms=800.0) if self.faults else None
        return SimCluster(seed, swarm=swarm, kinds=[self.kind]).run(5.0).problems


MUTATIONS = (
    CoordinatorMutation(
        "acknowledgements are stored before they are answered",
        takes_acknowledgements_without_storing_them,
        kind=Kind.SHARE_GROUP,
    ),
    CoordinatorMutation(
        "a new leader writes the dead letters that its predecessor may not have written",
        forgets_what_was_on_its_way_to_the_dead_letter_topic,
        first_seed=5,
        kind=Kind.SHARE_GROUP,
        faults=("kill leader", "slow messages"),
    ),
    CoordinatorMutation(
        "a dead letter is sent until it is known to be written",
        takes_a_refused_dead_letter_for_written,
        first_seed=10,
        kind=Kind.SHARE_GROUP,
        faults=("kill leader", "kill"),
    ),
    CoordinatorMutation(
        "commits of members are checked",
        believes_members_of_any_epoch,
        first_seed=8,
        kind=Kind.CONSUMER_GROUP,
    ),
    CoordinatorMutation(
        "a marker is sent until it is known to be written",
        takes_an_unknown_outcome_for_success,
    ),
    CoordinatorMutation(
        "a marker of a coordinator that was replaced is refused",
        takes_markers_of_stale_coordinators,
        first_seed=55,
        faults=("late markers",),
    ),
    CoordinatorMutation("InitProducerId bumps the epoch", gives_the_same_epoch_again),
    CoordinatorMutation(
        "every transactional append is verified", verifies_nothing_of_older_clients
    ),
    CoordinatorMutation(
        "a loaded coordinator goes on with its markers", forgets_what_was_decided, first_seed=10
    ),
)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--seeds", type=int, default=20)
    given = words.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    for mutation in MUTATIONS:
        caught = []
        with pytest.MonkeyPatch.context() as patch:
            mutation.patch(patch)
            for seed in range(mutation.first_seed, mutation.first_seed + given.seeds):
                problems = mutation.is_caught(seed)
                if problems:
                    caught.append((seed, problems[0]))
        first = f"{caught[0][0]}: {caught[0][1][:120]}" if caught else "never"
        print(f"{mutation.rule}: {len(caught)} of {given.seeds}; {first}", flush=True)


if __name__ == "__main__":
    main()
