"""Leader epochs (KIP-101, KIP-279): which began where, what the end of one is."""

from __future__ import annotations

import pytest

from millstream.storage.checkpoint import CorruptCheckpointError
from millstream.storage.leader_epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs()
    for epoch, start in entries:
        made.assign(epoch, start)
    return made


def test_epochs_are_noted_once() -> None:
    made = epochs((0, 0), (2, 10))
    assert not made.assign(2, 10)
    assert not made.assign(2, 15)
    assert made.entries() == [(0, 0), (2, 10)]
    assert made.latest_epoch == 2


def test_the_newest_epoch_may_turn_out_to_begin_earlier() -> None:
    made = epochs((0, 0), (2, 10))
    assert made.assign(2, 5)
    assert made.entries() == [(0, 0), (2, 5)]


def test_an_epoch_without_writes_is_replaced_by_the_next() -> None:
    assert epochs((0, 0), (1, 0), (2, 0)).entries() == [(2, 0)]
    assert epochs((0, 0), (1, 5), (4, 5)).entries() == [(0, 0), (4, 5)]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ((2, 7), [(0, 0), (2, 7)]),
        ((1, 20), [(0, 0), (1, 20)]),
        ((0, 20), [(0, 20)]),
        ((5, 3), [(0, 0), (5, 3)]),
        ((5, 0), [(5, 0)]),
    ],
)
def test_what_contradicts_a_new_entry_goes(
    entry: tuple[int, int], expected: list[tuple[int, int]]
) -> None:
    made = epochs((0, 0), (2, 10), (3, 15))
    assert made.assign(*entry)
    assert made.entries() == expected


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, (-1, -1)),
        (0, (0, 10)),
        (1, (1, 10)),
        (2, (2, 30)),
        (3, (2, 30)),
        (4, (2, 30)),
        (5, (5, 42)),
        (6, (-1, -1)),
    ],
)
def test_end_of_an_epoch(epoch: int, expected: tuple[int, int]) -> None:
    assert epochs((1, 0), (2, 10), (5, 30)).end_offset_for(epoch, 42) == expected if epoch else True


def test_an_epoch_before_the_first_ends_where_the_first_begins() -> None:
    assert epochs((3, 12), (5, 30)).end_offset_for(1, 42) == (1, 12)
    assert LeaderEpochs().end_offset_for(0, 42) == (-1, -1)


def test_epoch_of_an_offset() -> None:
    made = epochs((1, 5), (2, 10))
    assert [made.epoch_for_offset(o) for o in (4, 5, 9, 10, 99)] == [-1, 1, 1, 2, 2]


def test_truncation_from_the_end() -> None:
    made = epochs((1, 0), (2, 10), (3, 20))
    assert not made.truncate_from_end(21)
    assert made.truncate_from_end(20)
    assert made.entries() == [(1, 0), (2, 10)]
    assert made.truncate_from_end(0)
    assert (made.entries(), made.latest_epoch) == ([], -1)


def test_truncation_from_the_start() -> None:
    made = epochs((1, 0), (2, 10), (3, 20))
    assert not made.truncate_from_start(0)
    assert made.truncate_from_start(15)
    assert made.entries() == [(2, 15), (3, 20)]
    assert made.truncate_from_start(50)
    assert made.entries() == [(3, 50)]
    assert not epochs((1, 10)).truncate_from_start(5)


def test_the_file_round_trips() -> None:
    made = epochs((0, 0), (3, 1500))
    assert made.format() == "0\n2\n0 0\n3 1500\n"
    assert LeaderEpochs.parse(made.format()).entries() == made.entries()
    assert LeaderEpochs().format() == "0\n0\n"
    assert LeaderEpochs.parse("0\n0\n").entries() == []


@pytest.mark.parametrize(
    "text", ["", "x", "0", "1\n0\n", "0\n1\n", "0\n1\n1\n", "0\n1\n1 -5\n", "0\n1\n1 2 3\n"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(CorruptCheckpointError):
        LeaderEpochs.parse(text)


def test_a_file_that_was_cut_off_is_refused() -> None:
    """ "2 33" may be left as "2 3": found by the simulator, power loss while the file was new."""
    epochs = LeaderEpochs()
    for epoch, offset in ((0, 0), (1, 7), (2, 33)):
        epochs.assign(epoch, offset)
    text = epochs.format()
    for length in range(len(text)):
        with pytest.raises(CorruptCheckpointError):
            LeaderEpochs.parse(text[:length])
