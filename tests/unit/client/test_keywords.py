"""The types of the keywords, held against the settings and read by a type checker."""

from __future__ import annotations

import ssl
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from millstream.client.core import keywords
from millstream.client.core.consumer.settings import ConsumerSettings
from millstream.client.core.keywords import (
    AdminKeywords,
    ConsumerKeywords,
    ProducerKeywords,
    ShareConsumerKeywords,
)
from millstream.client.core.security_settings import ALIASES
from millstream.client.core.settings import AdminSettings, ProducerSettings
from millstream.client.core.share.settings import ShareConsumerSettings

KINDS = [
    (ProducerKeywords, ProducerSettings),
    (ConsumerKeywords, ConsumerSettings),
    (AdminKeywords, AdminSettings),
    (ShareConsumerKeywords, ShareConsumerSettings),
]
OF_TYPES = {"SSLContext": ssl.SSLContext, "TracerProvider": object}
"""What only a type checker imports."""
NUMBERS: dict[Any, Any] = {float: 1.0, int: 1, bool: True}


@pytest.mark.parametrize(("typed", "settings"), KINDS)
def test_names_are_those_of_the_settings(typed: Any, settings: Any) -> None:
    named = {each.name for each in fields(settings) if "reader" in each.metadata}
    assert set(get_type_hints(typed, localns=OF_TYPES)) == named | set(ALIASES)
    assert not typed.__required_keys__


@pytest.mark.parametrize(("typed", "settings"), KINDS)
def test_numbers_and_words_are_read_as_they_are_typed(typed: Any, settings: Any) -> None:
    """A setting of a number takes that kind of number, and each word of a Literal is allowed."""
    hints = get_type_hints(typed, localns=OF_TYPES)
    declared = get_type_hints(settings)
    looked_at = 0
    for each in fields(settings):
        if "reader" not in each.metadata:
            continue
        hint, read = hints[each.name], each.metadata["reader"]
        if declared[each.name] in NUMBERS and get_origin(hint) is None:
            assert hint is declared[each.name], each.name
            assert type(read(each.default)) in (hint, int), each.name
            looked_at += 1
        for word in get_args(hint) if "Literal" in str(get_origin(hint)) else ():
            read(word)
            looked_at += 1
    assert looked_at > 15


RIGHT_AND_WRONG = """
from millstream.client import Admin, Consumer, Producer
from millstream.client.aio import Consumer as AsyncConsumer

Producer(bootstrap_servers="localhost:9092", linger_ms=5, acks="all", compression_type="zstd")
Consumer({"linger.ms": 5}, bootstrap_servers=["localhost:9092"], value_deserializer=bytes.decode)
Producer(linger=5)
Producer(linger_ms="soon")
Consumer(isolation_level="read_all")
AsyncConsumer(group="readers")
Admin(enable_auto_commit=True)
"""


@pytest.mark.slow
def test_a_type_checker_refuses_wrong_names_and_values(tmp_path: Path) -> None:
    """With the project's own options, and so with what `make check` has in mypy's cache."""
    program = tmp_path / "program.py"
    program.write_text(RIGHT_AND_WRONG)
    root = Path(keywords.__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(program)],
        cwd=root,
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line]
    assert lines == [7, 8, 9, 10, 11], done.stdout + done.stderr
