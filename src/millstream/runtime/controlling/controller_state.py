"""What a controller's plans are made from: the context, its term of office, settings and chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from millstream.config.dynamic import DynamicConfig
from millstream.config.value import parse_integer
from millstream.controller.context import ControllerContext, TopicState
from millstream.model.broker import BrokerId
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.topic import TopicId, topic_id_to_text
from millstream.model.uuids import random_uuid

RandomBytes: TypeAlias = Callable[[int], bytes]


class ControllerState:
    """The context of the controller on this broker, and whether it may decide now.

    Everything that only the controller knows is here; it writes nothing and sends nothing.
    """

    def __init__(self, config: DynamicConfig, random_bytes: RandomBytes) -> None:
        self.config = config
        self.context = ControllerContext()
        """Replaced whole when this broker is elected."""
        self.is_active = False
        """True from an election that this broker has won until its resignation."""
        self.term = 0
        """Counts the beginnings and the ends of this broker's terms as the controller: what was
        asked for in one term is not decided in another one."""
        self._random_bytes = random_bytes

    def begin_term(self) -> None:
        """Decide from now on."""
        self.is_active = True
        self.term += 1

    def end_term(self) -> None:
        """Decide nothing more: events that wait in the queue are refused."""
        self.is_active = False
        self.term += 1

    def check_active(self, term: int | None = None) -> None:
        """Raise NOT_CONTROLLER unless this broker decides, and has since the term named."""
        if not self.is_active or term not in (None, self.term):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")

    def min_insync_replicas(self, topic: TopicState) -> int:
        """Return the setting in force for a topic."""
        text = topic.overrides.get("min.insync.replicas")
        number = None if text is None else parse_integer(text.strip(), 32)
        if number is not None:
            return number
        return self.config.current.topic_defaults.min_insync_replicas

    def allows_unclean_election(self, topic: TopicState) -> bool:
        """Return the setting in force for a topic."""
        text = topic.overrides.get("unclean.leader.election.enable")
        if text is not None:
            return text.strip().lower() == "true"
        return self.config.current.topic_defaults.unclean_leader_election_enable

    def broker_epochs(self) -> dict[BrokerId, int]:
        """Return the epochs of all live brokers; empty where brokers have none (a broker alone)."""
        found = {each: broker.node.epoch for each, broker in self.context.brokers.items()}
        return found if all(epoch >= 0 for epoch in found.values()) else {}

    def racks(self) -> dict[BrokerId, str]:
        """Return the racks of all live brokers; empty unless every broker has one."""
        found = {each: broker.node.rack for each, broker in self.context.brokers.items()}
        named = {each: rack for each, rack in found.items() if rack is not None}
        return named if len(named) == len(found) else {}

    def random_below(self, limit: int) -> int:
        """Return a random number from 0 to ``limit`` - 1."""
        return 0 if limit == 1 else int.from_bytes(self._random_bytes(8), "big") % limit

    def new_topic_id(self) -> TopicId:
        """Return a random UUID (version 4) whose text does not begin with a dash."""
        while True:
            topic_id = TopicId(random_uuid(self._random_bytes))
            if not topic_id_to_text(topic_id).startswith("-"):
                return topic_id
