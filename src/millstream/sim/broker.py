"""One broker of a simulated cluster: the core of a real one with a twin for sockets, kazoo, disks,
threads, clock and chance. A machine has a disk and a number; each life of its broker is another
:class:`BrokerLife`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from millstream.config.broker import BrokerConfig
from millstream.handlers.request import ConnectionInfo
from millstream.model.broker import BrokerId, BrokerNode, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import MillstreamError
from millstream.model.metadata_store import SessionEvent
from millstream.server.broker_core import BrokerCore
from millstream.server.cluster_broker import ClusterBroker
from millstream.server.dispatch import Dispatcher, DispatchSession
from millstream.sim.coordination import Ensemble, SimMetadataStore
from millstream.sim.disk import MemoryFileSystem
from millstream.sim.loop import NodeClock
from millstream.sim.network import Host, Network
from millstream.sim.offload import SimOffload
from millstream.storage.environment import LogEnvironment

LISTENER: Final = "PLAINTEXT"
SESSION_TIMEOUT_MS: Final = 3_000


def rack_of(number: int) -> str:
    """Return the rack of a machine, where machines are in racks: each is in one of its own."""
    return f"rack-{number}"


class BrokerLife:
    """One process, from its start to its end. ``on_gone`` hears when it stops by itself."""

    def __init__(
        self,
        machine: MemoryFileSystem,
        number: int,
        ensemble: Ensemble,
        network: Network,
        clock: NodeClock,
        settings: dict[str, str],
        on_gone: Callable[[BrokerLife, str], None],
    ) -> None:
        loop = network.loop
        self.number = number
        self.id = BrokerId(number)
        self.clock = clock
        self.is_up = False
        """True once it is registered."""
        self._loop = loop
        self._on_gone = on_gone
        self.host = Host(number, clock)
        self._connections = 0
        self.offload = SimOffload(loop, clock)
        self.file_system = machine
        environment = LogEnvironment(
            file_system=machine, new_id=lambda: self._loop.chance.randbytes(16)
        )
        self.core = BrokerCore(
            BrokerConfig({"broker.id": str(number), **settings}),
            clock=clock,
            offload=self.offload,
            environment=environment,
            random_bytes=loop.chance.randbytes,
            on_directory_failed=self._directory_failed,
        )
        self.partitions = self.core.partitions
        self.log_manager = self.core.log_manager
        self.store = SimMetadataStore(
            ensemble, number, clock, session_timeout_ms=SESSION_TIMEOUT_MS
        )
        self._cluster_broker = ClusterBroker(
            self.core,
            self.store,
            network.opener(self.host),
            listener_name=LISTENER,
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )
        self.member = self._cluster_broker.member
        self.controller = self.member.controller

    # --- start and stop ------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; a start that fails ends the process."""
        spawn(self._start()).on_done(self._started)

    def _started(self, done: Deferred[None]) -> None:
        try:
            done.result()
        except MillstreamError as error:
            self._gone(f"it could not start: {error}")

    async def _start(self) -> None:
        self.log_manager.lock()
        opened: Deferred[None] = Deferred()

        def session_changed(event: SessionEvent) -> None:
            if event is SessionEvent.CONNECTED and not opened.done:
                opened.complete(None)

        self.store.watch_session(session_changed)
        self.store.open()
        await opened
        await self._cluster_broker.prepare()
        await spawn(self.core.load_logs())
        endpoint = Endpoint(LISTENER, f"broker-{self.number}", self.number)
        rack = rack_of(self.number) if self.core.dynamic.current.selects_replicas_by_rack else None
        node = BrokerNode(self.id, (endpoint,), rack)
        services = self.core.services(
            node,
            store=self.store,
            controller=self.controller,
            ensure_topic=self.member.channel.ensure_topic,
            member=self.member,
        )
        self.dispatcher = Dispatcher(services)
        self.host.accept = self._accept
        await self._cluster_broker.join(node)
        self._loop.note("joined", self.number, self.member.registration.continuity)
        self.core.begin()
        self.is_up = True

    def shut_down(self) -> None:
        """Stop as on SIGTERM: give leaderships away, close the logs, end the session."""
        self.is_up = False
        spawn(self._shut_down()).on_done(lambda _: self._gone("it was shut down"))

    async def _shut_down(self) -> None:
        await self.core.settle()
        await self.member.move_leaderships_away()
        self.host.accept = None
        await spawn(self.core.stop())
        await self.member.stop()
        await self.store.close()
        self.log_manager.close()

    def vanish(self) -> None:
        """Be no more: nothing of this process runs from now on."""
        self.is_up = False
        self.clock.is_dead = True
        for connection in tuple(self.host.connections):
            connection.reset()

    def _directory_failed(self, directory: str) -> None:
        if not self.log_manager.directories:
            self._gone("its disk failed")

    def _gone(self, why: str) -> None:
        if not self.clock.is_dead:
            self._on_gone(self, why)

    def _accept(self, peer: int) -> DispatchSession:
        self._connections += 1
        info = ConnectionInfo(self._connections, LISTENER, f"host-{peer}", peer)
        return DispatchSession(self.dispatcher, info)
