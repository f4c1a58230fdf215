"""Who is the controller: one broker claims the seat, the others watch it.

::

    following --claimed--> loading --context loaded--> leading
        ^                     |                           |
        +---------------------+------- resigned ----------+

* **claim**: one multi makes `/controller` (ephemeral) and raises `/controller_epoch` at the version
  that was read. When its answer is lost, both are read again: the claim holds if the node is of our
  session and the epoch is the one that we wrote.
* **resigned**: on a write that another epoch refused, on a store that is silent or whose session
  has expired, and when another controller is heard of. What waits in the queue is refused.
* A seat is taken from a controller that is *known to be gone*: nobody listens any more where it
  did. Epochs make that safe even if it were wrong: the old controller's writes fail.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from millstream.controller import paths, payloads
from millstream.model.broker import BrokerId
from millstream.model.deferred import Deferred, spawn
from millstream.model.errors import KafkaError, MillstreamError
from millstream.model.metadata_store import (
    ConnectionLossError,
    Create,
    Delete,
    MetadataStoreError,
    Node,
    NoNodeError,
    Operation,
    SessionEvent,
    SessionExpiredError,
    SetData,
)
from millstream.runtime.controlling.controller_desk import ControllerDesk
from millstream.runtime.pauses import pause

log = logging.getLogger(__name__)

RETRY_MS: Final = 100

Load = Callable[[int, int], Coroutine[Deferred[Any], None, None]]
"""Given the new controller epoch and the version of its node: loads the context and begins."""


class ControllerSeat:
    """This broker's part in the election of a controller. ``on_change(leading)`` hears of it."""

    def __init__(
        self,
        desk: ControllerDesk,
        broker_id: BrokerId,
        *,
        load: Load,
        on_resigned: Callable[[], None],
    ) -> None:
        self._desk = desk
        self._broker_id = broker_id
        self._load = load
        self._on_resigned = on_resigned
        self._running = False
        self._again = False
        self._stopped = False
        self._gone: int | None = None
        """The creation id of a `/controller` whose owner is known to be gone."""
        self._leading = False
        self._has_read = False
        self._retrying = False
        self._said = ""
        self.claims = 0
        """How often this broker became the controller."""
        self.holder: tuple[BrokerId, int] | None = None
        """Who held the seat when it was looked at last, and the creation id of its node."""

    def start(self) -> None:
        """Claim the seat if it is free; watch it from now on."""
        self._desk.on_fenced = self.resign
        self._desk.store.watch(paths.CONTROLLER, lambda _: self.look())
        self._desk.store.watch_session(self._session_changed)
        self.look()

    def stop(self) -> Deferred[None]:
        """Leave the seat for good, and free it for another broker."""
        self._stopped = True
        was_leading = self._leading
        self._leave()
        return spawn(self._free()) if was_leading else Deferred.of(None)

    @property
    def leads(self) -> bool:
        """True while this broker is the controller and has read the cluster's metadata."""
        return self._leading and self._has_read

    def evict(self, creation_id: int) -> None:
        """Claim the seat although it is taken: its holder is known to be gone."""
        self._gone = creation_id
        self.look()

    def resign(self) -> None:
        """Decide nothing more; look again who is to."""
        if self._leading or self._desk.active:
            log.warning("broker %d is no longer the controller", self._broker_id)
            self._leave()
            self._look_later()

    def _leave(self) -> None:
        leading, self._leading = self._leading, False
        if self._desk.active:
            self._desk.leave_seat()
        if leading:
            self._on_resigned()

    async def _free(self) -> None:
        store = self._desk.store
        try:
            node = await store.get(paths.CONTROLLER)
            if node.owner == store.session_id:
                await store.multi([Delete(paths.CONTROLLER, node.version)])
        except MetadataStoreError:
            return  # the end of the session frees it

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self.look()
        else:
            self.resign()

    # --- looking and claiming ------------------------------------------------------------------

    def look(self) -> None:
        """See who holds the seat, and claim it if nobody does."""
        if self._stopped:
            return
        if self._running:
            self._again = True
            return
        self._running = True
        spawn(self._look()).on_done(self._looked)

    def _looked(self, done: Deferred[None]) -> None:
        self._running = False
        again, self._again = self._again, False
        try:
            done.result()
        except MillstreamError as error:
            text = str(error)
            if text != self._said:
                log.info("the controller's seat could not be claimed: %s", text)
            self._said = text
            self._look_later()
            return
        self._said = ""
        if again:
            self.look()

    def _look_later(self) -> None:
        if not self._retrying:
            self._retrying = True
            self._desk.clock.call_later(RETRY_MS, self._retry)

    def _retry(self) -> None:
        self._retrying = False
        self.look()

    async def _look(self) -> None:
        store = self._desk.store
        # The epoch before the seat: whoever claims it in between raises the epoch, and a claim that
        # rests on the old one fails. The other way round it would take the seat from them.
        epoch = await store.get(paths.CONTROLLER_EPOCH)
        current = await self._current()
        if current is not None:
            holder = payloads.read_controller(paths.CONTROLLER, current.data)
            self.holder = (holder, current.creation_id)
            mine = current.owner == store.session_id
            if mine and self._leading:
                return
            if self._leading:
                self.resign()
                return
            # What is of this broker and of another session is of a process that is no more.
            if not mine and holder != self._broker_id and current.creation_id != self._gone:
                return
        elif self._leading:
            self.resign()
            return
        await self._claim(current, epoch)

    async def _current(self) -> Node | None:
        try:
            return await self._desk.store.get(paths.CONTROLLER)
        except NoNodeError:
            return None

    async def _claim(self, current: Node | None, epoch_node: Node) -> None:
        store = self._desk.store
        epoch = payloads.read_controller_epoch(paths.CONTROLLER_EPOCH, epoch_node.data) + 1
        data = payloads.controller(self._broker_id, self._desk.clock.now_ms())
        operations: list[Operation] = []
        if current is not None:
            operations.append(Delete(paths.CONTROLLER, current.version))
        operations += [
            Create(paths.CONTROLLER, data, ephemeral=True),
            SetData(paths.CONTROLLER_EPOCH, b"%d" % epoch, epoch_node.version),
        ]
        try:
            await store.multi(operations)
        except ConnectionLossError:
            if not await self._is_claimed(epoch):
                raise
        await self._lead(epoch, epoch_node.version + 1)

    async def _is_claimed(self, epoch: int) -> bool:
        """Find out what became of a claim whose answer was lost."""
        store = self._desk.store
        while True:
            try:
                found = await self._current()
                node = await store.get(paths.CONTROLLER_EPOCH)
            except ConnectionLossError:
                await pause(self._desk.clock, RETRY_MS)
                continue
            except SessionExpiredError:
                return False
            if found is None or found.owner != store.session_id:
                return False
            return payloads.read_controller_epoch(paths.CONTROLLER_EPOCH, node.data) == epoch

    async def _lead(self, epoch: int, epoch_version: int) -> None:
        if self._stopped:
            return
        log.info("broker %d is the controller, epoch %d", self._broker_id, epoch)
        self.claims += 1
        self._leading = True
        self._has_read = False
        self._gone = None
        self._desk.take_seat()
        loaded = self._desk.submit(lambda: self._load(epoch, epoch_version))
        loaded.on_done(self._loaded)

    def _loaded(self, done: Deferred[None]) -> None:
        try:
            done.result()
        except KafkaError as error:
            log.warning("the controller could not begin: %s", error)
            self.resign()
        except MillstreamError:
            log.exception("the controller could not read the metadata")
            self.resign()
        else:
            self._has_read = True
