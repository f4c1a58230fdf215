"""When a broker is ready, and what the probe is told when it is not."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from millstream.runtime.services import Services
from millstream.server.metrics.health import Health, Phase


def services(
    *,
    directories: tuple[str, ...] = ("/data",),
    registered: bool = True,
    told: bool = True,
    alone: bool = False,
) -> Services:
    member = None if alone else SimpleNamespace(is_registered=registered, is_told=told)
    logs = SimpleNamespace(directories=list(directories))
    return cast(Services, SimpleNamespace(log_manager=logs, cluster=member))


def serving(**how: Any) -> Health:
    health = Health()
    health.services = services(**how)
    health.phase = Phase.SERVING
    return health


@pytest.mark.parametrize("alone", [False, True])
def test_a_broker_is_ready_from_its_start_to_its_stop(alone: bool) -> None:
    health = Health()
    assert "opens its logs" in health.not_ready()
    health.services = services(alone=alone)
    assert "opens its logs" in health.not_ready()
    health.phase = Phase.SERVING
    assert health.not_ready() == ""
    health.phase = Phase.STOPPING
    assert health.not_ready() == "the broker stops"


def test_a_broker_is_not_ready_without_a_part_in_its_cluster() -> None:
    assert "not registered" in serving(registered=False).not_ready()
    assert "no controller" in serving(told=False).not_ready()


def test_a_broker_without_a_log_directory_is_not_ready() -> None:
    assert serving(directories=()).not_ready() == "no log directory is left"
