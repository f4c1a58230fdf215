from __future__ import annotations

import pytest

from millstream.controller.context import ControllerContext, TopicState
from millstream.controller.election import new_partition
from millstream.controller.leaving_out import refuse_to_leave_out
from millstream.model.broker import BrokerId
from millstream.model.errors import ConfigError
from millstream.model.topic import TopicId

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))


def context(*replicas: tuple[BrokerId, ...]) -> ControllerContext:
    made = ControllerContext()
    partitions = tuple(new_partition(each, each, 1) for each in replicas)
    made.put_topic(TopicState("t", TopicId(bytes(15) + b"\1"), partitions, {}))
    return made


def test_brokers_without_replicas_may_be_left_out() -> None:
    refuse_to_leave_out(context((ONE,), (ONE,)), {1})
    refuse_to_leave_out(context((ONE, TWO)), {1, 2})


def test_what_has_to_be_done_first_is_said() -> None:
    with pytest.raises(ConfigError) as raised:
        refuse_to_leave_out(context((ONE,), (THREE,), (TWO,)), {1, 2})
    assert str(raised.value) == (
        "1 partition has replicas on broker 3, which would not be started: start with --brokers 3, "
        "move them with millstream cluster reassign --brokers 1,2 --execute, then stop and start "
        "again"
    )
    with pytest.raises(ConfigError, match="--brokers 1 --replication-factor 1 --execute"):
        refuse_to_leave_out(context((ONE, TWO), (THREE,)), {1})
