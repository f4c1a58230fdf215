from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.handlers.admin_broker import AdminBroker
from tests.unit.handlers.group_calls import Calls


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[Calls]:
    made = Calls(tmp_path)
    yield made
    made.site.close()


@pytest.fixture
def calls_without_topic(tmp_path: Path) -> Iterator[Calls]:
    made = Calls(tmp_path, creates=False)
    yield made
    made.site.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[AdminBroker]:
    made = AdminBroker(tmp_path, {"num.partitions": "4"})
    yield made
    made.close()
