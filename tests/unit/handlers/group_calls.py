"""Calls handlers of group requests as dispatch does, over real logs and with a hand clock."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.unit.runtime.coordinator_site import BROKER, Site, send_nothing

from millstream.config.broker import BrokerConfig
from millstream.config.dynamic import DynamicConfig
from millstream.coordinator.group.partitioner import group_partition
from millstream.handlers.request import ConnectionInfo, RequestContext
from millstream.handlers.routes import ROUTES
from millstream.model.broker import BrokerNode, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError
from millstream.model.topic import GROUP_METADATA_TOPIC
from millstream.protocol.message import Request, Response
from millstream.runtime.coordinators.coordinator_registry import (
    CoordinatorEntry,
    CoordinatorRegistry,
    CoordinatorType,
)
from millstream.runtime.coordinators.group_coordinator_runtime import GroupCoordinatorRuntime
from millstream.runtime.metadata.metadata_cache import TopicImage
from millstream.runtime.replicas.transaction_verification import RequestSender
from millstream.runtime.services import Services

A = TypeVar("A", bound=Response)

NODE = BrokerNode(
    BROKER, (Endpoint("PLAINTEXT", "broker.example", 9092), Endpoint("OTHER", "inner", 9093))
)


class Controller:
    """Makes topics when they are asked for."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.refusal: KafkaError | None = None

    def ensure_topic(self, name: str) -> Deferred[TopicImage]:
        if self.refusal is not None:
            refused: Deferred[TopicImage] = Deferred()
            refused.fail(self.refusal)
            return refused
        return Deferred.of(self._site.create(name, 50))


class Calls:
    """One broker's handlers."""

    def __init__(
        self,
        directory: Path,
        *,
        creates: bool = True,
        ask_coordinator: RequestSender = send_nothing,
        settings: dict[str, str] | None = None,
        topic_settings: dict[str, str] | None = None,
    ) -> None:
        self.site = Site(
            directory,
            settings=settings,
            topic_settings=topic_settings,
            partition_count=3,
            creates=creates,
            ask_coordinator=ask_coordinator,
        )
        self.site.metadata.brokers[BROKER] = NODE
        self.controller = Controller(self.site)
        unused = cast("Any", None)
        groups: CoordinatorEntry[GroupCoordinatorRuntime] = CoordinatorEntry(
            CoordinatorType.GROUP, GROUP_METADATA_TOPIC, group_partition, lambda: self.site.groups
        )
        self.services = Services(
            node=NODE,
            clock=self.site.clock,
            offload=self.site.offload,
            config=DynamicConfig(BrokerConfig({})),
            metadata=self.site.metadata,
            log_manager=self.site.log_manager,
            partitions=self.site.partitions,
            controller=unused,
            ensure_topic=self.controller.ensure_topic,
            cluster=None,
            coordinators=CoordinatorRegistry([groups], self.site.partitions),
            group_runtime=groups.get,
            share_runtime=unused,
            new_share_persister=unused,
            transaction_runtime=unused,
            share_partitions=unused,
            fetch_sessions=unused,
            producer_ids=unused,
            new_replica_mover=unused,
            send_request=unused,
            random_bytes=unused,
        )

    def start(
        self, request: Request, version: int, *, listener: str = "PLAINTEXT"
    ) -> Deferred[Response]:
        """Hand over a request as it comes off the wire in ``version``."""
        connection = ConnectionInfo(1, listener, "10.0.0.7", 4242)
        context = RequestContext(connection, request.API_KEY, version, 1, "web")
        arrived = type(request).decode_body(version, request.encode_body(version))
        route = ROUTES[request.API_KEY]
        outcome: Deferred[Response] = Deferred()

        def settle(ready: Deferred[Response]) -> None:
            try:
                response = ready.result()
            except KafkaError as error:
                response = cast(Response, route.failed()(context, arrived, error))
            # What the wire carries in this version is what counts.
            body = response.encode_body(version)
            outcome.complete(type(response).decode_body(version, body))

        try:
            reply = route.handle()(self.services, context, arrived)
        except KafkaError as error:
            failed: Deferred[Response] = Deferred()
            failed.fail(error)
            settle(failed)
            return outcome
        if isinstance(reply, Response):
            settle(Deferred.of(reply))
        elif isinstance(reply, Deferred):
            cast("Deferred[Response]", reply).on_done(settle)
        else:
            spawn(cast("Coroutine[Any, None, Response]", reply)).on_done(settle)
        self.site.clock.settle()
        return outcome

    def call(self, request: Request, version: int, response_type: type[A], **options: Any) -> A:
        """Return the answer, which must come at once."""
        response = self.start(request, version, **options).result()
        assert isinstance(response, response_type)
        return response
