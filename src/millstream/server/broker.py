"""One broker process: the core, its listeners, and its metadata backend."""

from __future__ import annotations

import logging
import os
import socket
from asyncio import AbstractEventLoop
from collections.abc import Callable
from typing import TypeVar

from millstream.config import listeners as config_listeners
from millstream.config.broker import BrokerConfig
from millstream.handlers.routes import PIPELINED, QUESTIONS
from millstream.model.broker import BrokerNode, Endpoint
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ConfigError, StorageError
from millstream.net.connection import ConnectionPolicy
from millstream.net.connection_quotas import ConnectionLimits, ConnectionQuotas
from millstream.net.listener import Listener, Peer
from millstream.net.receive_budget import ReceiveBudget
from millstream.runtime.clock import LoopClock
from millstream.runtime.offload import ThreadOffload
from millstream.server.broker_core import BrokerCore
from millstream.server.dispatch import Dispatcher, DispatchSession
from millstream.server.metadata_backend import MetadataBackend, metadata_backend
from millstream.storage.environment import LogEnvironment, broker_environment
from millstream.storage.files import last_descriptor_of_clients

log = logging.getLogger(__name__)

T = TypeVar("T")


class Broker:
    """A broker, standalone or in a cluster. ``on_fatal`` ends the process.

    ``environment`` replaces the machine's files, for tests.
    """

    def __init__(
        self,
        config: BrokerConfig,
        loop: AbstractEventLoop,
        *,
        on_fatal: Callable[[], None],
        environment: LogEnvironment | None = None,
    ) -> None:
        self._config = config
        self._loop = loop
        self._on_fatal = on_fatal
        self._started = False
        self.failed = False
        """True once every log directory has failed."""
        self.bound: tuple[str, int] = ("", 0)
        """Host and port of the first listener, once started."""
        self._quotas = ConnectionQuotas(_connection_limits(config, _limits_of_addresses(config)))
        self._listeners: list[Listener] = []
        self._core = BrokerCore(
            config,
            clock=LoopClock(loop),
            offload=ThreadOffload(loop.call_soon_threadsafe),
            environment=environment
            or broker_environment(producer_id_expiration_ms=config.producer_id_expiration_ms),
            random_bytes=os.urandom,
            on_directory_failed=self._directory_failed,
        )
        self._backend: MetadataBackend | None = None
        self._dispatcher: Dispatcher | None = None

    def start(self) -> None:
        """Load the log directories, bind the listeners, join the cluster, accept connections.

        Clients that connect early wait in the backlog. Raises StorageError, ConfigError, KafkaError
        or OSError if the start fails, LoadingStoppedError after ``interrupt``.
        """
        core = self._core
        advertised = self._config.advertised()
        core.log_manager.lock()
        backend = self._backend = metadata_backend(core, self._loop, self._wait)
        backend.open()
        self._wait(spawn(core.load_logs()))
        node = self._bind(advertised)
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
        self._dispatcher = Dispatcher(services)
        for listener in self._listeners:
            listener.start(self.open_session)

    def open_session(self, peer: Peer) -> DispatchSession:
        """Return the session that serves one connection, once the broker has started.

        The listeners call it for every connection; a caller in the same process needs no socket.
        """
        assert self._dispatcher is not None
        return self._dispatcher.open_session(peer)

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
        if self._backend is not None and self._started:
            self._backend.move_leaderships_away()
        for listener in self._listeners:
            listener.close()
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

    def _bind(self, advertised: tuple[config_listeners.Listener, ...]) -> BrokerNode:
        """Bind the listeners, and return the broker's advertised endpoints."""
        config = self._config
        budget = ReceiveBudget(config.queued_max_request_bytes)
        policy = ConnectionPolicy(
            PIPELINED, max_unsent_bytes=config.socket_unsent_max_bytes, questions=QUESTIONS
        )
        endpoints = []
        for_brokers = config.inter_broker_listener() if len(advertised) > 1 else None
        for listening, told in zip(config.listening(), advertised, strict=True):
            listener = Listener(
                listening.name,
                loop=self._loop,
                quotas=self._quotas,
                budget=budget,
                policy=policy,
                for_brokers=listening.name == for_brokers,
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
