"""Keeps this broker registered: an ephemeral node under `/brokers/ids`, for each session anew.

The creation id of that node is the *broker epoch* (KIP-380). What a start may find in its place:

==========================================  ====================================================
nothing                                     make it
a node of this session                      an answer was lost: it is ours
a node of another session with our          our own, of a process that was killed or a session that
directory id                                expired: replace it (KAFKA-14845). The directories are
                                            locked, so its owner is no more
anybody else's                              wait for one session time-out, then refuse to start
==========================================  ====================================================
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from millstream.controller import paths, payloads
from millstream.controller.payloads import PayloadError, Registration
from millstream.model.broker import BrokerNode
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import ErrorCode, KafkaError
from millstream.model.metadata_store import (
    BadVersionError,
    ConnectionLossError,
    Create,
    Delete,
    MetadataStore,
    MetadataStoreError,
    Node,
    NodeExistsError,
    NoNodeError,
    SessionEvent,
    SessionExpiredError,
)
from millstream.runtime.metadata.broker_metadata import BrokerMetadata
from millstream.runtime.pauses import pause

log = logging.getLogger(__name__)

RETRY_MS: Final = 100


class BrokerRegistration:
    """One broker's registration. Each new broker epoch is written into ``metadata``;
    ``on_registered(continuity)`` is called with the broker epoch since which this broker has kept
    everything.
    """

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        metadata: BrokerMetadata,
        *,
        session_timeout_ms: int,
        on_registered: Callable[[int], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._metadata = metadata
        self._session_timeout_ms = session_timeout_ms
        self._on_registered = on_registered
        self._node: BrokerNode | None = None
        self._registration = Registration()
        self._path = ""
        self._running = False
        self._again = False
        self._stopped = False
        self._started = False
        self._failures = 0
        self.epoch: int | None = None
        store.watch_session(self._session_changed)

    def start(self, node: BrokerNode, registration: Registration) -> Deferred[int]:
        """Register ``node``; the Deferred is filled with the broker epoch. ``registration`` is what
        the broker says of itself; a continuity of None begins with its first epoch and stays.

        Fails with DUPLICATE_BROKER_REGISTRATION while another broker has the id.
        """
        self._node = node
        self._registration = registration
        self._path = paths.broker(node.broker_id)
        return spawn(self._start())

    async def _start(self) -> int:
        deadline_ms = self._clock.monotonic_ms() + 1.5 * self._session_timeout_ms
        self._running = True
        epoch = await self._register(deadline_ms)
        self._running = False
        self._started = True
        self._store.watch(self._path, lambda _: self._check())
        # A controller that evicts the process before may have taken this registration for that
        # one's, before anybody watched.
        self._check()
        return epoch

    @property
    def continuity(self) -> int | None:
        """The broker epoch since which this broker has kept everything; None before the first."""
        return self._registration.continuity

    def stop(self) -> None:
        """Do not register again."""
        self._stopped = True

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            # Nothing more is taken that is meant for a registration that has gone with its session:
            # a push that was late could make this broker believe that it leads still.
            self._metadata.broker_epoch = None
        elif event is SessionEvent.CONNECTED and self._started:
            self._check()

    def _check(self) -> None:
        """Register again if the registration is gone. What happens while that is looked up, or the
        broker registers, is looked at afterwards: the answer may be older.
        """
        if self._stopped:
            return
        if self._running:
            self._again = True
            return
        self._running = True
        spawn(self._check_and_register()).on_done(self._checked)

    async def _check_and_register(self) -> None:
        while not self._stopped:
            try:
                node = await self._store.get(self._path)
            except NoNodeError:
                pass
            else:
                if node.owner == self._store.session_id and node.creation_id == self.epoch:
                    return
            await self._register(None)

    def _checked(self, done: Deferred[None]) -> None:
        self._running = False
        again, self._again = self._again, False
        try:
            done.result()
        except (MetadataStoreError, KafkaError) as error:
            if not self._failures:  # those that follow until it is registered say the same
                log.warning("this broker is not registered: %s", error)
            self._failures += 1
            if not self._stopped:
                self._clock.call_later(RETRY_MS, self._check)
            return
        if self._failures:
            log.info("this broker is registered after %d attempts that failed", self._failures)
            self._failures = 0
        if again:
            self._check()

    async def _register(self, deadline_ms: float | None) -> int:
        while True:
            try:
                epoch = await self._try()
            except (ConnectionLossError, SessionExpiredError):
                if self._stopped:
                    raise
                epoch = None
            if epoch is not None:
                self._registered(epoch)
                return epoch
            if deadline_ms is not None and self._clock.monotonic_ms() > deadline_ms:
                raise KafkaError(
                    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                    f"another broker is registered as {self._path}",
                )
            await pause(self._clock, RETRY_MS)

    async def _try(self) -> int | None:
        """Register once; None when it has to be tried again."""
        assert self._node is not None
        data = payloads.broker(self._node, self._clock.now_ms(), self._registration)
        create = Create(self._path, data, ephemeral=True)
        try:
            done = await self._store.multi([create])
        except NodeExistsError:
            pass
        else:
            return done[0].creation_id
        try:
            node = await self._store.get(self._path)
        except NoNodeError:
            return None
        if node.owner == self._store.session_id:
            return node.creation_id
        if not self._is_own(node):
            return None
        try:
            done = await self._store.multi([Delete(self._path, node.version), create])
        except (NoNodeError, BadVersionError, NodeExistsError):
            return None
        return done[1].creation_id

    def _is_own(self, node: Node) -> bool:
        assert self._node is not None
        try:
            _, found = payloads.read_broker(
                self._path, node.data, broker_id=self._node.broker_id, epoch=node.creation_id
            )
        except PayloadError:
            return False
        mine = self._registration.directory_id
        return bool(mine) and found.directory_id == mine

    def _registered(self, epoch: int) -> None:
        assert self._node is not None
        log.info("registered with broker epoch %d", epoch)
        self.epoch = epoch
        if self._registration.continuity is None:
            self._registration = self._registration._replace(continuity=epoch)
        metadata = self._metadata
        metadata.broker_epoch = epoch
        metadata.cache.brokers[self._node.broker_id] = replace(self._node, epoch=epoch)
        assert self._registration.continuity is not None
        self._on_registered(self._registration.continuity)
