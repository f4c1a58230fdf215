"""One broker process: the core, its listeners, and its metadata backend."""

from __future__ import annotations

import logging
import os
import socket
import threading
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

from millstream.config import listeners as config_listeners
from millstream.config.broker import BrokerConfig
from millstream.config.listeners import SASL_PROTOCOLS
from millstream.handlers.routes import PIPELINED, QUESTIONS
from millstream.model.broker import BrokerNode, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError, StorageError
from millstream.net.connection import Connection, ConnectionPolicy
from millstream.net.connection_quotas import ConnectionLimits, ConnectionQuotas
from millstream.net.half_open import HalfOpen
from millstream.net.handshake_turns import HandshakeTurns
from millstream.net.listener import Listener
from millstream.net.peer import Peer, Session
from millstream.net.receive_budget import ReceiveBudget
from millstream.net.transport import Scratch
from millstream.runtime.clock import LoopClock
from millstream.runtime.log_limit import LogLimit
from millstream.runtime.offload import Offload, ThreadOffload
from millstream.runtime.services import Services
from millstream.server.broker_core import BrokerCore
from millstream.server.connection_rates import ConnectionRates
from millstream.server.dispatch import Dispatcher
from millstream.server.machine import Machine
from millstream.server.metadata_backend import MetadataBackend, metadata_backend
from millstream.storage.environment import LogEnvironment, broker_environment
from millstream.storage.files import last_descriptor_of_clients

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from millstream.net.channel import ClientTls
    from millstream.net.peer_authentication import Protection
    from millstream.runtime.audit.audit_log import AuditLog
    from millstream.runtime.authentication.delegation_tokens import TokenExpiry
    from millstream.runtime.authentication.listener_authentication import ListenerAuthentication
    from millstream.server.broker_tls import BrokerTls
    from millstream.server.metrics.collector import Edges
    from millstream.server.metrics.monitor import Monitor

T = TypeVar("T")

_AUDIT_SETTLES_MS: Final = 3_000
"""How long a stop waits for what is left of the audit log, twice."""


class Broker:
    """A broker, standalone or in a cluster. ``on_fatal`` ends the process.

    ``environment`` replaces the machine's files, and ``machine`` all of the machine, for tests.
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: AbstractEventLoop,
        *,
        on_fatal: Callable[[], None],
        environment: LogEnvironment | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._config = config
        self._loop = loop
        self._on_fatal = on_fatal
        self._started = False
        self._is_diagnosing = False
        self.failed = False
        """True once every log directory has failed."""
        self.bound: tuple[str, int] = ("", 0)
        """Host and port of the first listener, once started."""
        self.node: BrokerNode | None = None
        """This broker and its advertised endpoints, once bound."""
        self._quotas = ConnectionQuotas(_connection_limits(config, _limits_of_addresses(config)))
        self._listeners: list[Listener] = []
        self._machine = machine = machine or _machine(config, loop, environment)
        self._monitor = _monitor(config, loop, machine.offload)
        self._budget = ReceiveBudget(config.queued_max_request_bytes)
        self._core = BrokerCore(
            config,
            clock=machine.clock,
            cluster_clock=machine.cluster_clock,
            offload=machine.offload if self._monitor is None else self._monitor.offload,
            environment=machine.environment,
            random_bytes=os.urandom,
            on_directory_failed=self._directory_failed,
        )
        self._scratch = Scratch()
        self._turns = HandshakeTurns(loop)
        self._half_open = HalfOpen(
            limit=config.max_connections_unauthenticated,
            limit_per_address=config.max_connections_unauthenticated_per_ip,
        )
        self._tls: BrokerTls | None = None
        self._backend: MetadataBackend | None = None
        self._services: Services | None = None
        self._dispatcher: Dispatcher | None = None
        self._authentication: ListenerAuthentication | None = None
        self._token_expiry: TokenExpiry | None = None
        self._log_limit = LogLimit(self._core.clock)

    def start(self) -> None:
        """Load the log directories, bind the listeners, join the cluster, accept connections.

        Clients that connect early wait in the backlog. Raises StorageError, ConfigError, KafkaError
        or OSError if the start fails, LoadingStoppedError after ``interrupt``.
        """
        core = self._core
        advertised = self._config.advertised()
        core.log_manager.lock()
        self._tls = self._new_tls()
        backend = self._backend = metadata_backend(
            core, self._loop, self._wait, self._tls_between_brokers(), self._machine
        )
        backend.open()
        ConnectionRates(core.metadata.entities, self._config, self._quotas)
        self._wait(spawn(core.load_logs()))
        node = self.node = self._bind(advertised)
        backend.join(node)
        core.begin()
        self._started = True
        core.dynamic.on_change(self._on_settings)
        services = core.services(
            node,
            store=backend.store,
            controller=backend.controller,
            ensure_topic=backend.ensure_topic,
            member=backend.member,
        )
        self._services = services
        self._authentication = self._new_authentication(services)
        self._dispatcher = Dispatcher(services, self._authentication, self._machine.around)
        if self._config.delegation_token_secret_key:
            from millstream.runtime.authentication.delegation_tokens import TokenExpiry

            self._token_expiry = TokenExpiry(core.dynamic, core.clock, backend.controller)
        self._log_limit.attach()
        if self._monitor is not None:
            self._monitor.begin(services, self._edges())
        for listener in self._listeners:
            listener.start(self.open_session)

    def _edges(self) -> Edges:
        """Return the parts of the broker that metrics are read from, beside its services."""
        from millstream.server.metrics.collector import Edges

        authentication, dispatcher = self._authentication, self._dispatcher
        assert dispatcher is not None
        return Edges(
            listeners=self._listeners,
            budget=self._budget,
            tls=self._tls,
            authentications=None if authentication is None else authentication.counts,
            cleaner=self._core.cleaner,
            maintenance=self._core.maintenance,
            meter=lambda: dispatcher.monitoring.meter,
        )

    def open_session(self, peer: Peer) -> Session:
        """Return the session that serves one connection, once the broker has started.

        The listeners call it for every connection; a caller in the same process needs no socket.
        """
        assert self._dispatcher is not None
        return self._dispatcher.open_session(peer)

    def hang_up(self) -> bool:
        """Read the files of key stores and trust stores again that have changed, and open the file
        of the audit log again; False where there is neither. What is wrong is logged, and
        connections that are open stay. A signal handler may call it.
        """
        if not self._config.outlives_hang_up:
            return False
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._reload)
        return True

    def diagnose(self) -> None:
        """Write into the log what the broker does and waits for. A signal handler may call it: a
        thread does it all, for what a handler imports fails where it has interrupted an import.
        """
        if not self._is_diagnosing:
            self._is_diagnosing = True
            threading.Thread(target=self._diagnose, name="diagnosis", daemon=True).start()

    def _diagnose(self) -> None:
        from millstream.server.diagnosis import diagnose, waits_of

        def waits() -> Iterator[str]:
            return waits_of(self._services, self._machine.offload, tuple(self._listeners))

        try:
            diagnose(self._loop, waits)
        finally:
            self._is_diagnosing = False

    def _reload(self) -> None:
        if self._tls is not None:
            self._tls.reload()
        audit = self._audit_log()
        if audit is not None:
            audit.reopen()

    def _audit_log(self) -> AuditLog | None:
        """Return the audit log, also one that is off and has something to write yet."""
        return None if self._dispatcher is None else self._dispatcher.audit.log

    def _new_tls(self) -> BrokerTls | None:
        """Return the TLS of the listeners; None, and nothing of it is loaded, where none has it."""
        config = self._config
        if not config.has_tls:
            return None
        from millstream.server.broker_tls import BrokerTls

        tls = BrokerTls(config, config.inter_broker_listener() if config.is_in_cluster else None)
        self._core.dynamic.on_check(tls.check)
        self._core.dynamic.on_change(lambda _, after: tls.update(after))
        return tls

    def _tls_between_brokers(self) -> ClientTls | None:
        """Return how connections to other brokers are encrypted; None where they are not."""
        if self._tls is None or not self._config.is_in_cluster:
            return None
        listener = self._tls.of(self._config.inter_broker_listener())
        if listener is None:
            return None
        from millstream.net.channel import ClientTls

        return ClientTls(lambda: listener.client_context, self._scratch)

    def _protection(self, listener: config_listeners.Listener) -> Protection | None:
        """Return what a listener asks of a peer before it serves it; None where that is nothing."""
        if listener.protocol == "PLAINTEXT":
            return None
        from millstream.net.peer_authentication import Protection

        tls = None if self._tls is None else self._tls.of(listener.name)
        return Protection(
            listener.protocol,
            self._half_open,
            self._scratch,
            self._turns,
            tls,
            self._authentication_ended,
        )

    def _authentication_ended(self, peer: Peer, reason: str) -> None:
        """Tell the audit log, if there is one, of a certificate or of a peer that gave up."""
        audit = None if self._services is None else self._services.audit
        if audit is None:
            return
        if reason:
            audit.did_not_authenticate(peer.host, peer.port, peer.listener, reason)
        else:
            audit.shook_hands(str(peer.principal), peer.host, peer.port, peer.listener)

    def _new_authentication(self, services: Services) -> ListenerAuthentication | None:
        """Return how clients authenticate; None, and nothing of it is loaded, where none has to."""
        if all(each.protocol not in SASL_PROTOCOLS for each in self._config.listening()):
            return None
        from millstream.runtime.authentication.listener_authentication import (
            ListenerAuthentication,
        )

        core = self._core
        return ListenerAuthentication(
            core.dynamic,
            entities=core.metadata.entities,
            cluster_id=core.metadata.cluster_id,
            random_bytes=os.urandom,
            clock=core.clock,
            offload=core.offload,
            tokens=services.delegation_tokens,
        )

    def interrupt(self) -> None:
        """Abort the start, see ``BrokerCore``. A signal handler may call it."""
        self._core.interrupt()

    def until_known(self) -> Deferred[None]:
        """Return a Deferred that is completed once the controller may assign partitions to this
        broker.
        """
        assert self._backend is not None
        return self._backend.until_known()

    def stop(self) -> None:
        """Stop accepting, flush everything, and mark the shutdown as clean.

        A broker whose start has failed leaves its directories as they were.
        """
        audit = self._audit_log()
        if self._monitor is not None:
            self._monitor.stopping()
        if self._backend is not None and self._started:
            if audit is not None:  # as long as its partitions are where they are
                self._wait(audit.settle(_AUDIT_SETTLES_MS))
            self._wait(self._core.settle())
            self._backend.move_leaderships_away()
        for listener in self._listeners:
            listener.close()
        if audit is not None:
            self._wait(audit.settle(_AUDIT_SETTLES_MS))
            audit.close()
        self._close_watchers()
        self._wait(spawn(self._core.stop()))
        if self._backend is not None:
            self._backend.close()
        self._core.offload.close()
        if not self._started:
            self._core.log_manager.give_back()
            return
        try:
            self._core.log_manager.close()
        except StorageError:
            log.exception("the logs were not closed cleanly")
            self.failed = True

    def _close_watchers(self) -> None:
        """Close what observes the broker or ends by time."""
        self._log_limit.detach()
        if self._monitor is not None:
            self._monitor.close()
        if self._authentication is not None:
            self._authentication.close()
        if self._token_expiry is not None:
            self._token_expiry.close()

    def _bind(self, advertised: tuple[config_listeners.Listener, ...]) -> BrokerNode:
        """Bind the listeners, and return the broker's advertised endpoints."""
        config = self._config
        policy = ConnectionPolicy(
            PIPELINED, max_unsent_bytes=config.socket_unsent_max_bytes, questions=QUESTIONS
        )
        endpoints = []
        new_connection = Connection if self._monitor is None else self._monitor.new_connection
        for_brokers = config.inter_broker_listener() if len(advertised) > 1 else None
        for listening, told in zip(config.listening(), advertised, strict=True):
            listener = Listener(
                listening.name,
                loop=self._loop,
                quotas=self._quotas,
                budget=self._budget,
                policy=policy,
                for_brokers=listening.name == for_brokers,
                protection=self._protection(listening),
                new_connection=new_connection,
            )
            self._listeners.append(listener)
            port = _bind(listener, listening)
            if not self.bound[0]:
                self.bound = (listening.host or "0.0.0.0", port)
            host = told.host or _default_host(listening.host)
            endpoints.append(Endpoint(told.name, host, told.port or port))
        return BrokerNode(config.broker, tuple(endpoints), config.broker_rack)

    def _wait(self, outcome: Deferred[T]) -> T:
        """Run the loop until a step of the start or the stop is done."""
        if not outcome.done:
            outcome.on_done(lambda _: self._loop.stop())
        while not outcome.done:
            self._loop.run_forever()
        return outcome.result()

    def _on_settings(self, before: BrokerConfig, after: BrokerConfig) -> None:
        """Apply dynamic settings that are not read at each use."""
        self._core.environment.producer_id_expiration_ms = after.producer_id_expiration_ms
        overrides = self._quotas.limits.max_connections_per_ip_overrides
        if after.max_connections_per_ip_overrides != before.max_connections_per_ip_overrides:
            overrides = _limits_of_addresses(after)
        self._quotas.set_limits(_connection_limits(after, overrides))
        self._core.cordon(after)

    def _directory_failed(self, directory: str) -> None:
        if not self._core.log_manager.directories and not self.failed:
            log.critical("no log directory is left: stopping")
            self.failed = True
            self._on_fatal()


def _machine(
    config: BrokerConfig, loop: AbstractEventLoop, environment: LogEnvironment | None
) -> Machine:
    clock = LoopClock(loop)
    return Machine(
        clock=clock,
        cluster_clock=clock,
        offload=ThreadOffload(loop.call_soon_threadsafe),
        environment=environment
        or broker_environment(producer_id_expiration_ms=config.producer_id_expiration_ms),
    )


def _monitor(config: BrokerConfig, loop: AbstractEventLoop, offload: Offload) -> Monitor | None:
    """Return what serves metrics and health; None, and nothing of it is loaded, where it is off."""
    if not config.metrics_port:
        return None
    from millstream.server.metrics.monitor import Monitor

    return Monitor(config, loop, LoopClock(loop), offload)


def _default_host(host: str) -> str:
    """Return the default host of `advertised.listeners`."""
    return host if host not in ("", "0.0.0.0") else socket.getfqdn()


def _bind(listener: Listener, wanted: config_listeners.Listener) -> int:
    """Bind the listener and return its port; an OSError names the address that cannot be bound."""
    host = f"[{wanted.host}]" if ":" in wanted.host else wanted.host
    where = f"{wanted.name}://{host}:{wanted.port}"
    try:
        return listener.bind(wanted.host, wanted.port)
    except OSError as error:
        raise OSError(error.errno, error.strerror, where) from error
    except ValueError as error:  # no part of a name may be empty, or longer than 63 letters
        raise ConfigError(f"listeners: {where} has no name of a host") from error


def _connection_limits(
    config: BrokerConfig, overrides: tuple[tuple[str, int], ...]
) -> ConnectionLimits:
    return ConnectionLimits(
        max_frame_bytes=config.socket_request_max_bytes,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=overrides,
        max_creation_rate=config.max_connection_creation_rate,
        idle_ms=config.connections_max_idle_ms,
        frame_deadline_ms=config.socket_request_read_timeout_ms,
        authentication_ms=config.connections_authentication_timeout_ms,
        last_descriptor=last_descriptor_of_clients(),
        backlog=config.socket_listen_backlog_size,
        send_buffer_bytes=_if_given(config, "socket.send.buffer.bytes"),
        receive_buffer_bytes=_if_given(config, "socket.receive.buffer.bytes"),
    )


def _limits_of_addresses(config: BrokerConfig) -> tuple[tuple[str, int], ...]:
    """Return `max.connections.per.ip.overrides` by address. Host names are resolved, which blocks
    the loop.
    """
    pairs = config.max_connections_per_ip_overrides.split(",")
    return tuple(
        (address, int(count))
        for host, _, count in (pair.rpartition(":") for pair in pairs if pair)
        for address in _addresses(host.strip())
    )


def _if_given(config: BrokerConfig, name: str) -> int:
    """Return the configured size of a socket buffer, else −1: the kernel adjusts it."""
    return int(config.overrides[name]) if name in config.overrides else -1


def _addresses(host: str) -> set[str]:
    """Return the addresses of a host in the form of peer addresses."""
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host.strip("[]"), None)}
    except (OSError, ValueError) as error:
        log.warning("max.connections.per.ip.overrides: %s has no address: %s", host, error)
        return set()
