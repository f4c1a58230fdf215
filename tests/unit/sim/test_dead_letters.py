"""The checker of dead letters finds what must not be, and nothing else."""

from __future__ import annotations

from millstream.share.dead_letters import DeadLetterCause
from millstream.sim.dead_letters import DeadLetter, RecordKey, check_dead_letters
from millstream.sim.share_consumers import ShareHistory

REJECTED = DeadLetterCause.REJECTED.value
TOO_OFTEN = DeadLetterCause.DELIVERED_TOO_OFTEN.value
PRESENT = {0: {0: "a", 1: "b"}}


def judged(
    *letters: DeadLetter,
    accepted: set[RecordKey] | None = None,
    tried: set[RecordKey] | None = None,
    rejected: set[RecordKey] | None = None,
    given_up: set[RecordKey] | None = None,
) -> list[str]:
    history = ShareHistory()
    history.accepted |= accepted or set()
    history.tried_to_accept |= (tried or set()) | history.accepted
    history.rejected |= rejected or set()
    return check_dead_letters(history, letters, given_up or set(), PRESENT)


def test_accepted_or_dead_is_fine_also_twice() -> None:
    letter = DeadLetter(0, 1, REJECTED, "b")
    assert judged(letter, letter, accepted={(0, 0)}, rejected={(0, 1)}) == []


def test_a_rejected_record_needs_a_dead_letter_whatever_was_tried() -> None:
    (problem,) = judged(accepted={(0, 0)}, tried={(0, 1)}, rejected={(0, 1)})
    assert problem == "1 of partition 0 was rejected: no dead letter"


def test_what_nobody_tried_to_accept_needs_a_dead_letter() -> None:
    (problem,) = judged(DeadLetter(0, 0, TOO_OFTEN, None))
    assert problem == "1 of partition 0 was let go: no dead letter"


def test_what_a_leader_gave_up_in_its_log_needs_none() -> None:
    assert judged(tried={(0, 0)}, rejected={(0, 1)}, given_up={(0, 1)}) == []


def test_a_dead_letter_of_a_record_that_was_accepted_or_is_not_there_or_is_another() -> None:
    accepted = {(0, 0), (0, 1)}
    (problem,) = judged(DeadLetter(0, 0, REJECTED, "a"), accepted=accepted)
    assert "whose acceptance was acknowledged" in problem
    assert judged(DeadLetter(0, 0, TOO_OFTEN, "a"), accepted=accepted) == []
    (problem,) = judged(DeadLetter(0, 7, REJECTED, None), accepted=accepted)
    assert "of no record" in problem
    (problem,) = judged(DeadLetter(0, 1, TOO_OFTEN, "x"), accepted=accepted)
    assert "another value than b" in problem
    assert judged(DeadLetter(5, 7, REJECTED, None), accepted=accepted) == [], "deleted meanwhile"


def test_a_record_that_was_accepted_and_rejected_is_right_either_way() -> None:
    """The second acknowledgement was passed over: the record lay below the start offset."""
    both = {(0, 1)}
    assert judged(accepted={(0, 0), *both}, rejected=both) == []
    assert judged(DeadLetter(0, 1, REJECTED, "b"), accepted={(0, 0), *both}, rejected=both) == []
