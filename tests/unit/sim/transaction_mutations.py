"""The rules of transactions, and a broker without each of them: the simulator has to notice.

``python -m tests.unit.sim.transaction_mutations`` prints in how many seeds each is caught.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from millstream.coordinator.transaction import markers
from millstream.coordinator.transaction.metadata import TransactionMetadata
from millstream.model.errors import ErrorCode
from millstream.runtime.replicas.transaction_verification import TransactionVerifier
from millstream.sim.cluster import SimCluster
from millstream.sim.coordinator_workload import Kind
from millstream.storage.producer_state import ProducerStateManager

Patch = Callable[[pytest.MonkeyPatch], None]


def forgets_markers_when_a_leader_moves(patch: pytest.MonkeyPatch) -> None:
    """The coordinator takes the refusal of a leader that was replaced for the end of it."""
    done = markers._DONE | {ErrorCode.NOT_LEADER_OR_FOLLOWER.code}
    patch.setattr(markers, "_DONE", done)


def gives_the_same_epoch_again(patch: pytest.MonkeyPatch) -> None:
    """InitProducerId ends what is open, and does not shut its producer out."""
    with_epoch = TransactionMetadata.with_epoch

    def mutant(self: TransactionMetadata, epoch: int, **more: Any) -> TransactionMetadata:
        return with_epoch(self, self.producer_epoch, **more)

    patch.setattr(TransactionMetadata, "with_epoch", mutant)
    patch.setattr(
        TransactionMetadata,
        "fenced",
        lambda self, *, now_ms, client_version: self.prepared(
            commit=False, now_ms=now_ms, client_version=0
        ),
    )


def verifies_nothing(patch: pytest.MonkeyPatch) -> None:
    """KIP-890: a write that was long on its way gets into a partition after the end of its
    transaction.
    """
    patch.setattr(TransactionVerifier, "is_needed", lambda self, support: False)
    patch.setattr(TransactionVerifier, "is_required", property(lambda self: False))


def completes_without_markers(patch: pytest.MonkeyPatch) -> None:
    """A coordinator that was loaded does not go on with what was decided before."""

    def begin(self: Any, transactional_ids: Any, now: Any) -> Any:
        result = original(self, transactional_ids, now)
        return replace(result, outbound=[]) if len(tuple(transactional_ids)) != 1 else result

    original = markers.MarkerWriter.begin
    patch.setattr(markers.MarkerWriter, "begin", begin)


def believes_old_epochs(patch: pytest.MonkeyPatch) -> None:
    """A partition takes the writes of a producer that was fenced."""

    def check(self: Any, producer_id: int, producer_epoch: int, *rest: Any, **more: Any) -> Any:
        entry = self.producers.get(producer_id)
        epoch = producer_epoch if entry is None else max(producer_epoch, entry.producer_epoch)
        return original(self, producer_id, epoch, *rest, **more)

    original = ProducerStateManager.check
    patch.setattr(ProducerStateManager, "check", check)


@dataclass(frozen=True)
class TransactionMutation:
    """A rule, what leaves it out, and the first seed to try."""

    rule: str
    patch: Patch
    first_seed: int = 1

    def is_caught(self, seed: int) -> list[str]:
        """Return what the simulator finds wrong in a seed."""
        return SimCluster(seed, kinds=[Kind.TRANSACTIONS]).run(5.0).problems


MUTATIONS = (
    TransactionMutation("markers follow a leader that moves", forgets_markers_when_a_leader_moves),
    TransactionMutation("InitProducerId bumps the epoch", gives_the_same_epoch_again),
    TransactionMutation("every transactional append is verified", verifies_nothing),
    TransactionMutation("a loaded coordinator goes on with its markers", completes_without_markers),
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
