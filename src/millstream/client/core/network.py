"""Requests to the brokers of a cluster: to a given one, any, the controller, a coordinator.

Connections are made when the first request needs them. Brokers have their ids from metadata; the
addresses of ``bootstrap.servers`` have the ids −1, −2, … (as in Kafka's Java client) and are used
until there is metadata, and again if none of the known brokers can be reached (KIP-899).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, TypeVar

from millstream.client.core.connection import Asked, NodeConnection
from millstream.client.core.connection_attempt import State
from millstream.client.core.loop import ClientLoop
from millstream.client.core.settings import ClientSettings
from millstream.client.core.waiting import Signal
from millstream.client.errors import (
    BrokerError,
    ClosedError,
    ConnectionFailedError,
)
from millstream.client.metadata import Broker, brokers_of
from millstream.client.settings import Address
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode
from millstream.protocol.api import ApiKey
from millstream.protocol.message import Request, Response
from millstream.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse

R = TypeVar("R", bound=Response)

_FIRST_BATCHED_FIND: Final = 4  # KIP-699


class CoordinatorType(IntEnum):
    """The type of a coordinator, with the numbers of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class Purpose(IntEnum):
    """The separate connections to one broker, so that requests do not block each other."""

    DATA = 0
    COORDINATION = 1
    """Heartbeats must not wait behind a fetch that the broker holds."""


class Network:
    """All connections of one client."""

    def __init__(self, loop: ClientLoop, settings: ClientSettings) -> None:
        self.loop = loop
        self.settings = settings
        self.controller_id = -1
        self.failed = Signal()
        """Raised when a connection fails: the leaders may have changed."""
        self._bootstrap = {
            -1 - index: Broker(-1 - index, address)
            for index, address in enumerate(settings.bootstrap_servers)
        }
        self._brokers: dict[int, Broker] = {}
        self._connections: dict[tuple[int, Purpose], NodeConnection] = {}
        self._coordinators: dict[tuple[CoordinatorType, str], int] = {}
        self._closed = False

    # --- who is there ----------------------------------------------------------------------------

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The brokers that metadata named, by id; empty before the first answer."""
        return self._brokers

    def update_brokers(self, brokers: Mapping[int, Broker], controller_id: int) -> None:
        """Apply the brokers of a Metadata response; connections to removed addresses are closed."""
        for (node_id, purpose), connection in list(self._connections.items()):
            broker = brokers.get(node_id)
            gone = broker is None and node_id >= 0 and connection.outstanding == 0
            if gone or (broker is not None and broker.address != connection.address):
                del self._connections[node_id, purpose]
                connection.close(
                    ConnectionFailedError(f"the broker at {connection.address} is gone")
                )
        self._brokers = dict(brokers)
        self.controller_id = controller_id

    def add_broker(self, broker: Broker) -> None:
        """Add a broker from another response than Metadata."""
        self.update_brokers({**self._brokers, broker.broker_id: broker}, self.controller_id)

    def rebootstrap(self) -> None:
        """Forget the known brokers and start again with ``bootstrap.servers`` (KIP-899)."""
        connections = self._connections
        self._connections = {key: each for key, each in connections.items() if key[0] < 0}
        self._brokers = {}
        self.controller_id = -1
        self._coordinators.clear()
        # Only now: whose request fails may ask anew at once.
        for (node_id, _), connection in connections.items():
            if node_id >= 0:
                connection.close(ConnectionFailedError("the client rebootstraps"))

    # --- asking ----------------------------------------------------------------------------------

    def send(
        self,
        node_id: int,
        request: Request,
        *,
        timeout_ms: float | None = None,
        version: int | None = None,
        max_version: int | None = None,
        answered: bool = True,
        purpose: Purpose = Purpose.DATA,
    ) -> Deferred[Response]:
        """Send a request to one broker; the Deferred completes with its response.

        In the newest common version up to ``max_version``, or exactly in ``version``. ``answered``
        is False for Produce with acks=0: the cell is filled (with None) once the system has it all.
        Fails with a ClientError, as UnsupportedVersionError, ConnectionFailedError, TimedOutError
        (after ``timeout_ms``, else ``request.timeout.ms``; the connection is closed then).
        """
        answer: Deferred[Response] = Deferred()
        connection = self._connection(node_id, purpose)
        if connection is None:
            answer.fail(self._no_broker(node_id))
            return answer
        wait = self.settings.request_timeout_ms if timeout_ms is None else timeout_ms
        connection.ask(
            Asked(request, answer, self.loop.now_ms() + wait, version, max_version, answered)
        )
        return answer

    def send_any(
        self, request: Request, *, max_version: int | None = None, timeout_ms: float | None = None
    ) -> Deferred[Response]:
        """Send a request to the least loaded broker, preferably a connected one."""
        return self.send(
            self.least_loaded(), request, max_version=max_version, timeout_ms=timeout_ms
        )

    def send_to_controller(
        self, request: Request, *, max_version: int | None = None, timeout_ms: float | None = None
    ) -> Deferred[Response]:
        """Send a request to the controller according to metadata, else to any broker."""

        async def run() -> Response:
            if self.controller_id not in self._brokers:
                await self._look_for_controller()
            known = self.controller_id in self._brokers
            node_id = self.controller_id if known else self.least_loaded()
            return await self.send(node_id, request, max_version=max_version, timeout_ms=timeout_ms)

        return spawn(run())

    def send_to_coordinator(
        self,
        key: str,
        kind: CoordinatorType,
        request: Request,
        *,
        max_version: int | None = None,
        timeout_ms: float | None = None,
    ) -> Deferred[Response]:
        """Send a request to the coordinator of a group or transactional id.

        The coordinator is looked up once and cached; after NOT_COORDINATOR or
        COORDINATOR_NOT_AVAILABLE in an answer call :meth:`forget_coordinator`. A broken connection
        forgets it too.
        """

        async def run() -> Response:
            node_id = await spawn(self.coordinator(key, kind))
            try:
                return await self.send(
                    node_id,
                    request,
                    max_version=max_version,
                    timeout_ms=timeout_ms,
                    purpose=Purpose.COORDINATION,
                )
            except ConnectionFailedError:
                self.forget_coordinator(key, kind)
                raise

        return spawn(run())

    async def coordinator(self, key: str, kind: CoordinatorType) -> int:
        """Return the broker id of a coordinator; BrokerError if the brokers return an error."""
        known = self._coordinators.get((kind, key))
        if known is not None and known in self._brokers:
            return known
        node_id = self.least_loaded()
        version = await self.version_for(node_id, FindCoordinatorRequest)
        batched = version >= _FIRST_BATCHED_FIND
        request = FindCoordinatorRequest(
            key="" if batched else key,
            coordinator_keys=[key] if batched else [],
            key_type=kind,
        )
        answer = await self.call(node_id, request, FindCoordinatorResponse, version=version)
        found = answer.coordinators[0] if batched else answer
        if found.error_code:
            raise BrokerError(
                ErrorCode.of(found.error_code), found.error_message or f"coordinator of {key!r}"
            )
        address = Address(found.host, found.port)
        if found.node_id not in self._brokers or self._brokers[found.node_id].address != address:
            self.add_broker(Broker(found.node_id, address))
        self._coordinators[kind, key] = found.node_id
        return found.node_id

    def forget_coordinator(self, key: str, kind: CoordinatorType) -> None:
        """Drop the cached coordinator."""
        self._coordinators.pop((kind, key), None)

    async def call(
        self,
        node_id: int,
        request: Request,
        answer: type[R],
        *,
        version: int | None = None,
        max_version: int | None = None,
        timeout_ms: float | None = None,
    ) -> R:
        """Send a request and return its answer, of the type given."""
        response = await self.send(
            node_id, request, version=version, max_version=max_version, timeout_ms=timeout_ms
        )
        assert isinstance(response, answer), "an answer has the type of its request"
        return response

    # --- connections -----------------------------------------------------------------------------

    def is_ready(self, node_id: int) -> bool:
        """Return True if a request to the broker would be sent at once."""
        connection = self._connections.get((node_id, Purpose.DATA))
        return (
            connection is not None and connection.state is State.READY and not connection.is_muted
        )

    def ready(self, node_id: int) -> Deferred[None]:
        """Connect to a broker if necessary; the Deferred completes when it is ready, or fails."""
        connection = self._connection(node_id, Purpose.DATA)
        if connection is None:
            cell: Deferred[None] = Deferred()
            cell.fail(self._no_broker(node_id))
            return cell
        return connection.ready()

    async def version_for(
        self, node_id: int, request: type[Request], max_version: int | None = None
    ) -> int:
        """Return the version that a request to this broker would be sent in."""
        await self.ready(node_id)
        connection = self._connection(node_id, Purpose.DATA)
        if connection is None:
            raise self._no_broker(node_id)
        return connection.conversation.version_for(request, max_version)

    def least_loaded(self) -> int:
        """Return the id of the best broker for a request that any broker can answer.

        Connected before connecting before untried before failed; then fewest requests waiting.
        """
        nodes = self._brokers or self._bootstrap
        if all(self._is_failed(node_id) for node_id in nodes):
            nodes = {**self._bootstrap, **self._brokers}
        count = len(nodes)
        first = int(self.loop.random() * count)
        order = list(nodes)
        return min(order[first:] + order[:first], key=self._burden)

    def _is_failed(self, node_id: int) -> bool:
        connection = self._connections.get((node_id, Purpose.DATA))
        return connection is not None and connection.is_backing_off

    def _burden(self, node_id: int) -> tuple[int, float]:
        connection = self._connections.get((node_id, Purpose.DATA))
        if connection is None:
            return 2, 0
        if connection.state is State.READY:
            return 0, connection.outstanding
        if connection.is_backing_off:
            return 3, connection.retry_at_ms
        return 1, connection.outstanding

    def _connection(self, node_id: int, purpose: Purpose) -> NodeConnection | None:
        if self._closed:
            return None
        connection = self._connections.get((node_id, purpose))
        if connection is None:
            broker = self._brokers.get(node_id) or self._bootstrap.get(node_id)
            if broker is None:
                return None
            connection = NodeConnection(
                self.loop, broker.address, self.settings, self.failed.notify
            )
            self._connections[node_id, purpose] = connection
        return connection

    def _no_broker(self, node_id: int) -> ClosedError | ConnectionFailedError:
        if self._closed:
            return ClosedError("the client is closed")
        return ConnectionFailedError(f"there is no broker {node_id} in the cluster's metadata")

    async def _look_for_controller(self) -> None:
        response = await self.call(
            self.least_loaded(), MetadataRequest(topics=[]), MetadataResponse
        )
        self.update_brokers(brokers_of(response), response.controller_id)

    def unreachable(self) -> list[Address]:
        """Return the brokers that are tried to be connected to, in vain. From any thread."""
        found, connected = set(), set()
        for connection in list(self._connections.values()):
            if connection.state is State.READY:
                connected.add(connection.address)
            elif connection.is_failing:
                found.add(connection.address)
        return sorted(found - connected, key=str)

    def whereabouts(self) -> str:
        """Return for the text of a time-out which brokers it is about. From any thread."""
        if away := self.unreachable():
            told = f"no connection to {', '.join(map(str, away))}"
            failures = [
                each.failure
                for each in list(self._connections.values())
                if each.address == away[0] and each.failure is not None
            ]
            return f"{told}; {failures[-1]}" if failures else told
        asked = {each.address for each in list(self._connections.values()) if each.outstanding}
        if asked:
            return f"waiting for an answer of {', '.join(sorted(map(str, asked)))}"
        known = (each.address for each in (self._brokers or self._bootstrap).values())
        return f"connected to {', '.join(sorted(map(str, known)))}"

    def serves(self, node_id: int, key: ApiKey) -> bool:
        """Return True when a broker that is ready advertises an API."""
        connection = self._connections.get((node_id, Purpose.DATA))
        return connection is not None and connection.conversation.serves_key(key)

    def finalized_level(self, feature: str) -> int:
        """Return the level of a feature that the cluster has finalized, 0 if none is known.

        Brokers learn of a change one after the other; the newest that a connected one knows counts.
        """
        newest = max(
            (connection.conversation for connection in self._connections.values()),
            key=lambda conversation: conversation.features_epoch,
            default=None,
        )
        return 0 if newest is None else newest.finalized_features.get(feature, 0)

    def close(self) -> None:
        """Close every connection; outstanding requests fail with ClosedError."""
        self._closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            connection.close()
