"""Shell commands of a load run in turn, and are written down."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from millstream.history.faults import Faults


def test_commands_run_in_turn_until_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    commands = [f"echo $WHO >> {log}", f"echo second >> {log}; echo sorry >&2; exit 3"]
    with Faults(commands, 0.01, {"WHO": "first"}) as faults:
        deadline = time.monotonic() + 30
        while len(faults.done) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert log.read_text().split()[:3] == ["first", "second", "first"]
    first, second, *_ = faults.done
    assert (first.exit_code, first.output) == (0, "")
    assert (second.exit_code, second.output) == (3, "sorry\n")
    assert first.began_s <= first.ended_s <= second.began_s


def test_what_a_command_leaves_running_is_not_waited_for() -> None:
    began = time.monotonic()
    with Faults(["sleep 300 & echo $!"], 0.01, {}) as faults:
        while not faults.done:
            time.sleep(0.01)
    for each in faults.done:
        os.kill(int(each.output), signal.SIGKILL)
    assert time.monotonic() - began < 200
