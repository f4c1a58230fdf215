"""`millstream txn` and `millstream cluster features`: what they say to wrong words."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.broker_process import BrokerProcess

from millstream.client import Producer
from millstream.client.errors import FatalTransactionError

pytestmark = pytest.mark.system

DEADLINE_S = 60


def millstream(broker: BrokerProcess, *words: str) -> tuple[int, str, str]:
    """Run a command to its end; return its exit code, and what it printed and said."""
    done = subprocess.run(
        [sys.executable, "-m", "millstream.cli.main", *words, "-b", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_aborting_by_an_unknown_id_does_not_make_it(broker: BrokerProcess) -> None:
    code, _, said = millstream(broker, "txn", "abort", "--id", "never-used")
    assert (code, said) == (
        1,
        "millstream: transactional id not found: transactional id 'never-used'\n",
    )
    assert "never-used" not in millstream(broker, "txn", "list")[1]


def test_an_unknown_id_is_named_once(broker: BrokerProcess) -> None:
    assert millstream(broker, "txn", "describe", "never-used") == (
        1,
        "",
        "millstream: transactional id not found: transactional id 'never-used'\n",
    )


@pytest.mark.parametrize(
    ("words", "code", "about"),
    [
        (("txn", "list", "--matching", "("), 1, "'(' is not an expression of RE2"),
        (("txn", "list", "--state", "Idle"), 2, "the states are Empty, Ongoing, "),
        (("cluster", "features", "upgrade", "group.version"), 2, "is not FEATURE=LEVEL"),
    ],
)
def test_what_is_refused_says_what_is_taken(
    broker: BrokerProcess, words: tuple[str, ...], code: int, about: str
) -> None:
    found, _, said = millstream(broker, *words)
    assert found == code
    assert about in said
    assert said.count("\n") == 1


def test_a_timeout_that_is_too_long_is_named(broker: BrokerProcess) -> None:
    with (
        Producer(
            bootstrap_servers=broker.bootstrap,
            transactional_id="patient",
            transaction_timeout_ms=100_000_000,
        ) as producer,
        pytest.raises(FatalTransactionError, match=r"transaction\.timeout\.ms = 100000000 is"),
    ):
        producer.init_transactions()
