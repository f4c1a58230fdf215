"""Who is the controller: one broker creates `/controller`, the others watch it.

::

    following --elected--> loading --context loaded--> ready
        ^                     |                          |
        +---------------------+------- resigned ---------+

* **elected**: one multi makes `/controller` (ephemeral) and raises `/controller_epoch` at the
  version that was read. When its answer is lost, both are read again: the broker is elected if the
  node is of its session and the epoch is the one that it wrote.
* **resigned**: on a write that another epoch refused, on a store that is silent or whose session
  has expired, and when another controller is found.
* A controller that is *known to be gone* (its address refuses connections) is replaced before its
  session ends. Epochs make that safe even if it were wrong: the old controller's writes fail.

Kafka: ``KafkaController.elect``, ``KafkaZkClient.registerControllerAndIncrementControllerEpoch``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from millstream.controller import paths, payloads
from millstream.model.broker import BrokerId
from millstream.model.clock import Clock
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError, MillstreamError
from millstream.model.metadata_store import (
    ConnectionLossError,
    Create,
    Delete,
    MetadataStore,
    MetadataStoreError,
    Node,
    NoNodeError,
    Operation,
    SessionEvent,
    SessionExpiredError,
    SetData,
)
from millstream.runtime.pauses import pause

log = logging.getLogger(__name__)

RETRY_MS: Final = 100


@dataclass(frozen=True, slots=True)
class RegisteredController:
    """Who `/controller` named when it was read last. ``creation_id`` tells one node from the next
    of the same broker. ``controller_epoch`` is no higher than the controller's own: the epoch is
    read first.
    """

    broker_id: BrokerId
    creation_id: int
    controller_epoch: int = field(compare=False)


class ControllerElection:
    """This broker's part in the election of a controller.

    ``on_elected(controller_epoch, version of its node)`` begins a term; the Deferred that it
    returns is filled when the context is loaded, and a failure of it makes this broker resign.
    ``on_resigned`` ends the term.
    """

    def __init__(
        self,
        store: MetadataStore,
        clock: Clock,
        broker_id: BrokerId,
        *,
        on_elected: Callable[[int, int], Deferred[None]],
        on_resigned: Callable[[], None],
    ) -> None:
        self._store = store
        self._clock = clock
        self._broker_id = broker_id
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._running = False
        self._again = False
        self._stopped = False
        self._gone: int | None = None
        """The creation id of a `/controller` whose owner is known to be gone."""
        self._is_elected = False
        self._is_loaded = False
        self._retrying = False
        self._logged = ""
        self.wins = 0
        """How often this broker has been elected."""
        self.registered: RegisteredController | None = None
        """The controller that was found last; None before the first."""

    def start(self) -> None:
        """Stand for election now and whenever there is no controller."""
        self._store.watch(paths.CONTROLLER, lambda _: self.elect())
        self._store.watch_session(self._session_changed)
        self.elect()

    def stop(self) -> Deferred[None]:
        """Resign for good, and delete `/controller` so that another broker is elected at once."""
        self._stopped = True
        was_elected = self._is_elected
        self._end_term()
        return spawn(self._delete_registration()) if was_elected else Deferred.of(None)

    @property
    def is_ready(self) -> bool:
        """True while this broker is the controller and has read the cluster's metadata."""
        return self._is_elected and self._is_loaded

    def replace(self, gone: RegisteredController) -> None:
        """Stand for election although there is a controller: that one is known to be gone."""
        self._gone = gone.creation_id
        self.elect()

    def resign(self) -> None:
        """Decide nothing more; look again who is to be the controller."""
        if self._is_elected:
            log.warning("broker %d is no longer the controller", self._broker_id)
            self._end_term()
            self._elect_later()

    def _end_term(self) -> None:
        if self._is_elected:
            self._is_elected = False
            self._on_resigned()

    async def _delete_registration(self) -> None:
        store = self._store
        try:
            node = await store.get(paths.CONTROLLER)
            if node.owner == store.session_id:
                await store.multi([Delete(paths.CONTROLLER, node.version)])
        except MetadataStoreError:
            return  # the end of the session deletes it

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self.elect()
        else:
            self.resign()

    # --- one election --------------------------------------------------------------------------

    def elect(self) -> None:
        """See who is the controller, and become it if there is none. What happens meanwhile is
        looked at afterwards.
        """
        if self._stopped:
            return
        if self._running:
            self._again = True
            return
        self._running = True
        spawn(self._elect()).on_done(self._elected)

    def _elected(self, done: Deferred[None]) -> None:
        self._running = False
        again, self._again = self._again, False
        try:
            done.result()
        except MillstreamError as error:
            text = str(error)
            if text != self._logged:
                log.info("the election of a controller failed: %s", text)
            self._logged = text
            self._elect_later()
            return
        self._logged = ""
        if again:
            self.elect()

    def _elect_later(self) -> None:
        if not self._retrying:
            self._retrying = True
            self._clock.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        self.elect()

    async def _elect(self) -> None:
        store = self._store
        # The epoch before the registration: whoever is elected in between raises the epoch, and a
        # write that rests on the old one fails. The other way round it would replace them.
        epoch = await store.get(paths.CONTROLLER_EPOCH)
        current = await self._current()
        if current is not None:
            controller = payloads.read_controller(paths.CONTROLLER, current.data)
            self.registered = RegisteredController(
                controller,
                current.creation_id,
                payloads.read_controller_epoch(paths.CONTROLLER_EPOCH, epoch.data),
            )
            mine = current.owner == store.session_id
            if mine and self._is_elected:
                return
            if self._is_elected:
                self.resign()
                return
            # What is of this broker and of another session is of a process that is no more.
            if not mine and controller != self._broker_id and current.creation_id != self._gone:
                return
        elif self._is_elected:
            self.resign()
            return
        await self._register(current, epoch)

    async def _current(self) -> Node | None:
        try:
            return await self._store.get(paths.CONTROLLER)
        except NoNodeError:
            return None

    async def _register(self, current: Node | None, epoch_node: Node) -> None:
        epoch = payloads.read_controller_epoch(paths.CONTROLLER_EPOCH, epoch_node.data) + 1
        data = payloads.controller(self._broker_id, self._clock.now_ms())
        operations: list[Operation] = []
        if current is not None:
            operations.append(Delete(paths.CONTROLLER, current.version))
        operations += [
            Create(paths.CONTROLLER, data, ephemeral=True),
            SetData(paths.CONTROLLER_EPOCH, b"%d" % epoch, epoch_node.version),
        ]
        try:
            await self._store.multi(operations)
        except ConnectionLossError:
            if not await self._is_registered(epoch):
                raise
        self._begin_term(epoch, epoch_node.version + 1)

    async def _is_registered(self, epoch: int) -> bool:
        """Find out what became of a registration whose answer was lost."""
        store = self._store
        while True:
            try:
                found = await self._current()
                node = await store.get(paths.CONTROLLER_EPOCH)
            except ConnectionLossError:
                await pause(self._clock, RETRY_MS)
                continue
            except SessionExpiredError:
                return False
            if found is None or found.owner != store.session_id:
                return False
            return payloads.read_controller_epoch(paths.CONTROLLER_EPOCH, node.data) == epoch

    def _begin_term(self, epoch: int, epoch_version: int) -> None:
        if self._stopped:
            return
        log.info("broker %d is the controller, epoch %d", self._broker_id, epoch)
        self.wins += 1
        self._is_elected = True
        self._is_loaded = False
        self._gone = None
        term = self.wins
        self._on_elected(epoch, epoch_version).on_done(lambda done: self._loaded(term, done))

    def _loaded(self, term: int, done: Deferred[None]) -> None:
        if term != self.wins:
            return  # a term that another one has followed
        try:
            done.result()
        except KafkaError as error:
            log.warning("the controller could not begin: %s", error)
            self.resign()
        except MillstreamError:
            log.exception("the controller could not read the metadata")
            self.resign()
        else:
            self._is_loaded = True
