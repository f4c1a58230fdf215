"""Fixtures that several rooms of the tests share."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest
from tests.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker process for all tests of this worker; topics need names of their own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
def new_topic(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Make topic names that no other test uses."""
    counter = itertools.count()
    name = f"{request.node.path.stem}-{request.node.name}".replace("test_", "")
    stem = "".join(c if c.isalnum() else "-" for c in name)[:100].strip("-")
    return lambda: f"{stem}-{next(counter)}"
