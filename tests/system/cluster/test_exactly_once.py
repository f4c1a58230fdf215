"""Copy, transform, write while brokers and clients are killed: each input once, nothing aborted.

The large run is ``python -m tests.system.cluster.exactly_once``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from bench.peers.trio import millstream_trio
from tests.system.cluster import exactly_once

pytestmark = [pytest.mark.system, pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.long
def test_each_input_is_counted_once_through_four_kills(tmp_path: Path) -> None:
    with millstream_trio(tmp_path) as nodes:
        outcome = exactly_once.run(nodes, tmp_path, records=20_000, kills=4)
    assert not outcome.problems
    assert sum(outcome.kills.values()) == 4


def test_a_reader_that_sees_a_number_twice_or_not_at_all_is_told_of() -> None:
    problems = list(exactly_once.judge(Counter([0, 2, 2, 5]), 3, "r"))
    assert problems == ["r: 1 missing, [4]", "r: 1 twice, [2]", "r: 1 unknown, [5]"]
