"""The controller on this broker: what may be asked of it, in a cluster or on its own.

The path of a decision: a handler calls a method of :class:`TopicControl`, :class:`ReplicaControl`
or :class:`BrokerReports`; that submits an event (`controller_events`), which plans purely
(`millstream.controller`), writes to the metadata store, and publishes to this broker
(`BrokerMetadata`) and to the others (`metadata_propagation`). Who is the controller is decided in
`controller_election`; `cluster_controller` joins the two.
"""

from __future__ import annotations

from millstream.controller.context import ControllerContext
from millstream.model.deferred import Deferred
from millstream.model.entities import Decide, EntityKind
from millstream.runtime.controlling.broker_reports import AskFetchers, BrokerReports
from millstream.runtime.controlling.controller_events import ControllerEvents
from millstream.runtime.controlling.entity_control import EntityControl
from millstream.runtime.controlling.feature_control import FeatureControl
from millstream.runtime.controlling.last_resort_elections import AskLogs
from millstream.runtime.controlling.replica_control import ReplicaControl
from millstream.runtime.controlling.topic_control import TopicControl


class Controller:
    """The decisions about topics and settings, replicas, features, entities, and on reports of
    brokers.

    On a broker that is not the controller every method that decides fails with NOT_CONTROLLER.
    """

    def __init__(
        self, events: ControllerEvents, ask_logs: AskLogs, ask_fetchers: AskFetchers
    ) -> None:
        """``ask_logs`` asks brokers how far their logs reach, ``ask_fetchers`` which leaders do not
        answer them.
        """
        self._state = events.state
        self.replicas = ReplicaControl(events, ask_logs)
        self.topics = TopicControl(events, self.replicas)
        self.features = FeatureControl(events)
        self.entities = EntityControl(events)
        self.reports = BrokerReports(events, self.replicas, ask_fetchers)

    @property
    def is_active(self) -> bool:
        """True while this broker is the controller."""
        return self._state.is_active

    def check_active(self) -> None:
        """Raise NOT_CONTROLLER on a broker that is not the controller."""
        self._state.check_active()

    def change_entities(self, kind: EntityKind, decide: Decide) -> Deferred[None]:
        """Change entities in one step; see :meth:`EntityControl.change`."""
        return self.entities.change(kind, decide)

    @property
    def context(self) -> ControllerContext:
        """What the controller knows; of use only while it is active."""
        return self._state.context
