"""The history checker: each kind of anomaly is found, and a clean history has none."""

from __future__ import annotations

from dataclasses import replace

from millstream.history.checker import (
    GroupOffset,
    History,
    Kind,
    Outcome,
    Poll,
    Send,
    Step,
    check,
    judge,
)

PARTITION = ("t", 0)


def history(*values: str, once: bool = True) -> History:
    """A producer sent these values, acknowledged at 0, 1, ..., and a consumer read them."""
    made = History()
    for offset, value in enumerate(values):
        send = made.send(Send(PARTITION, value, "p", durable=True, once=once))
        send.outcome, send.offset = Outcome.ACKNOWLEDGED, offset
        made.polls.append(Poll(PARTITION, "c", offset, value))
    return made


def found(made: History, final: dict[int, str] | None = None) -> str:
    problems = check(made, None if final is None else {PARTITION: dict(final)})
    return " ".join(problems)


def test_a_clean_history_has_no_anomaly() -> None:
    assert found(history("a", "b", "c")) == ""
    assert found(history("a", "b"), {0: "a", 1: "b"}) == ""


def test_an_acknowledged_value_that_is_gone_is_lost() -> None:
    assert "is lost" in found(history("a", "b"), {0: "a"})
    made = history("a", "b", "c")
    del made.polls[1]
    assert "never read" in found(made)


def test_an_offset_with_two_values() -> None:
    made = history("a", "b")
    made.polls.append(Poll(PARTITION, "other", 1, "a"))
    assert "had 2 values" in found(made)


def test_a_value_of_an_idempotent_producer_stands_once() -> None:
    final = {0: "a", 1: "a", 2: "b"}
    made = history("a", "b")
    made.sends["b"].offset = 2
    made.polls.clear()
    assert "idempotent" in found(made, final)
    for send in made.sends.values():
        send.once = False
    assert found(made, final) == ""


def test_what_was_refused_is_not_read() -> None:
    made = history("a")
    made.sends["a"].outcome = Outcome.REFUSED
    assert "refused" in found(made)


def test_order_of_one_producer() -> None:
    made = history("a", "b")
    made.polls.clear()
    made.sends["a"].offset, made.sends["b"].offset = 1, 0
    assert "before what it sent earlier" in found(made, {0: "b", 1: "a"})


def test_a_process_reads_forward_and_skips_nothing() -> None:
    made = history("a", "b", "c")
    made.polls.append(Poll(PARTITION, "c", 0, "a"))
    assert "backwards" in found(made)
    made.polls[-1] = Poll(PARTITION, "c", 0, "a", fresh=True)
    assert found(made) == ""
    made.polls += [Poll(PARTITION, "d", 0, "a"), Poll(PARTITION, "d", 2, "c")]
    assert "skipped [1]" in found(made)


def group(*steps: GroupOffset) -> str:
    made = History()
    made.group_offsets += steps
    return found(made)


def told(offset: int, asked: float, at: float = 9.0) -> GroupOffset:
    return GroupOffset("g", PARTITION, offset, Step.SEEN, at, asked)


def test_a_group_is_told_no_less_than_was_acknowledged() -> None:
    sent = GroupOffset("g", PARTITION, 5, Step.SENT, 1.0)
    acknowledged = GroupOffset("g", PARTITION, 5, Step.ACKNOWLEDGED, 2.0)
    assert group(sent, acknowledged, told(5, 3.0)) == ""
    assert group(acknowledged, told(4, 1.5), sent) == "", "in whatever order it was taken down"
    assert "had committed 5, and was told 4" in group(sent, acknowledged, told(4, 3.0))
    assert "had committed 5, and was told 0" in group(sent, told(5, 1.5, 2.0), told(0, 3.0))
    assert "sent at most 5, and was told 6" in group(sent, told(6, 1.5))
    assert "sent at most 0, and was told 5" in group(sent, told(5, 0.1, 0.5))


def test_a_committed_offset_never_goes_back_whoever_is_asked() -> None:
    sent = GroupOffset("g", PARTITION, 5, Step.SENT, 1.0)
    acknowledged = GroupOffset("g", PARTITION, 5, Step.ACKNOWLEDGED, 2.0)
    told = GroupOffset("g", PARTITION, 4, Step.SEEN, 4.0, asked=3.0, broker=2)
    assert "had committed 5, and was told 4 by broker 2" in group(sent, acknowledged, told)
    first = GroupOffset("g", PARTITION, 5, Step.SEEN, 2.5, asked=1.5, broker=1)
    assert "had committed 5, and was told 4 by broker 2" in group(sent, first, told)
    assert group(sent, acknowledged, replace(told, asked=1.9)) == "", "it was asked before"


def test_the_kinds_are_told_apart() -> None:
    made = history("a", "b")
    made.sends["a"].outcome = Outcome.REFUSED
    assert [each.kind for each in judge(made, {PARTITION: {0: "a"}})] == [
        Kind.ABORTED_READ,
        Kind.LOST,
    ]


def test_what_is_deleted_was_read_before() -> None:
    made = history("a", "b", "c")
    final = {2: "c"}
    assert "is lost" in found(made, final)
    made.deletions[PARTITION] = 2
    assert found(made, final) == ""
    made.deletions[PARTITION] = 1
    assert "'b', acknowledged at 1, is lost" in found(made, final)
    made.deletions[PARTITION] = 2
    del made.polls[0]
    assert "'a', acknowledged at 0, was deleted and never read" in found(made, final)
    made.expiring.add(PARTITION)
    assert found(made, final) == ""


def test_what_is_deleted_may_be_written_again_and_what_is_there_may_not() -> None:
    made = history("a", "b")
    made.polls.append(Poll(PARTITION, "other", 2, "a"))
    final = {1: "b", 2: "a"}
    made.sends["a"].offset = 2
    assert "idempotent" in found(made, final)
    made.deletions[PARTITION] = 1
    assert found(made, final) == ""
    made.polls.append(Poll(PARTITION, "another", 3, "a"))
    assert "idempotent" in found(made, {**final, 3: "a"})
