"""Bugs that others had, and the tests that keep them out of here: one row for each.

KIP-890 (a marker ends what a producer of before left open, and transactions are verified) comes
with transactions.
"""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LEADER = "unit/replication/test_leader.py"
FOLLOWER = "unit/replication/test_follower.py"
ISR = "unit/controller/test_isr_changes.py"
REPLICAS = "unit/runtime/replicas/test_replicas.py"
CONTROLLER = "unit/runtime/controlling/test_cluster_controller.py"
BOUNDARIES = "unit/storage/test_log_boundaries.py"
PRODUCERS = "unit/storage/test_producer_state.py"

BUGS = (
    # what, file, test
    (
        "KIP-101: truncation to the high watermark",
        FOLLOWER,
        "test_there_is_no_truncation_to_the_high_watermark",
    ),
    (
        "KIP-279: truncation to the leader's end alone",
        FOLLOWER,
        "test_a_diverging_epoch_cuts_to_the_smaller_end",
    ),
    (
        "KIP-320: an old leader's records are kept",
        REPLICAS,
        "test_an_old_leader_cuts_what_nobody_else_has",
    ),
    (
        "KAFKA-7415: no epoch is recorded at the election",
        LEADER,
        "test_become_leader_starts_its_epoch_at_the_log_end_without_follower_progress",
    ),
    (
        "KAFKA-7128: joining without the start of the epoch",
        LEADER,
        "test_expansion_needs_the_start_of_the_leader_epoch",
    ),
    (
        "KIP-380: a request from a life gone by",
        LEADER,
        "test_a_fetch_with_a_stale_broker_epoch_is_refused",
    ),
    (
        "KIP-497: the ISR in doubt is not waited for",
        REPLICAS,
        "test_an_isr_that_may_have_been_written_is_waited_for",
    ),
    (
        "KIP-903: a proposal names no broker epochs",
        REPLICAS,
        "test_proposals_carry_the_broker_epochs_that_were_seen",
    ),
    (
        "KAFKA-13091, KAFKA-13254: the high watermark waits for another fetch",
        LEADER,
        "test_the_same_leader_epoch_adopts_the_isr_and_looks_at_the_high_watermark_again",
    ),
    (
        "KIP-966: commits below min ISR",
        REPLICAS,
        "test_a_leader_that_is_cut_off_commits_nothing_with_min_isr_two",
    ),
    (
        "KAFKA-14704: the high watermark moves beyond the log",
        FOLLOWER,
        "test_the_high_watermark_follows_the_leaders_as_far_as_the_log_goes",
    ),
    (
        "KAFKA-9491: an epoch without writes confuses truncation",
        "unit/storage/test_leader_epochs.py",
        "test_an_epoch_without_writes_is_replaced_by_the_next",
    ),
    ("KAFKA-9491: the same in a cluster", "unit/sim/scripts.py", "a_leader_writes_nothing"),
    (
        "KAFKA-12996: behind the leader's start, epochs compared first",
        REPLICAS,
        "test_a_follower_behind_its_leaders_log_start_begins_anew_there",
    ),
    (
        "KAFKA-5634: retention passes the high watermark",
        BOUNDARIES,
        "test_retention_never_passes_the_high_watermark",
    ),
    (
        "KAFKA-5634: retention passes the last stable offset",
        BOUNDARIES,
        "test_retention_never_passes_the_last_stable_offset",
    ),
    (
        "KAFKA-10778: a failed flush is tried again",
        "unit/runtime/replicas/test_flusher.py",
        "test_a_flush_that_fails_is_final_for_its_directory_and_no_other",
    ),
    (
        "KAFKA-9144, KAFKA-14055: expiry forgets what markers said",
        PRODUCERS,
        "test_idle_producers_expire_and_open_transactions_keep_theirs",
    ),
    (
        "KAFKA-6683: producer state before the append",
        PRODUCERS,
        "test_a_refused_batch_leaves_no_trace",
    ),
    (
        "KAFKA-9307: a coordinator answers after it has gone",
        "unit/runtime/coordinators/test_coordinator_moves.py",
        "test_a_commit_on_its_way_is_refused_when_the_partition_moves",
    ),
    (
        "KAFKA-2729: a leader never hears that its partition epoch is old",
        LEADER,
        "test_an_answer_from_newer_state_waits_for_it",
    ),
    (
        "KAFKA-2729: the same without a controller",
        REPLICAS,
        "test_a_leader_that_no_controller_answers_reads_the_stored_state",
    ),
    (
        "KAFKA-6584: a session ends while the store changes its leader",
        CONTROLLER,
        "test_a_session_that_expires_registers_anew_with_another_epoch",
    ),
    (
        "KAFKA-14845: a broker stumbles over its own old node",
        CONTROLLER,
        "test_an_own_older_registration_is_replaced_and_anothers_is_not",
    ),
    (
        "KAFKA-14845: the answer to a registration is lost",
        CONTROLLER,
        "test_a_registration_whose_answer_was_lost_is_ours",
    ),
    (
        "KIP-392: a follower serves beyond its high watermark",
        REPLICAS,
        "test_a_consumer_with_racks_reads_from_a_follower_what_is_committed",
    ),
)

NAMED = (
    # named where they are tested
    ("KIP-841", ISR),
    ("KIP-903", ISR),
    ("15653", LEADER),
)


@pytest.mark.parametrize(("what", "file", "test"), BUGS, ids=[each[0] for each in BUGS])
def test_there_is_a_test(what: str, file: str, test: str) -> None:
    assert f"def {test}(" in (TESTS / file).read_text()


@pytest.mark.parametrize(("name", "file"), NAMED)
def test_it_is_named_there(name: str, file: str) -> None:
    assert name in (TESTS / file).read_text()
