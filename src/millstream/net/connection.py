"""One client connection: frames in, answers out in the order of the requests.

Requests are handled one after the other, as Kafka does by muting a channel, with one exception: a
request of a *pipelined* API (Produce) may be handled while earlier ones of such APIs still wait for
their commit, so a connection keeps appending while acks=all is on its way. Everything else waits in
the buffer, and the kernel's window holds the peer back; so does an answer the peer is slow to read.
"""

from __future__ import annotations

import logging
import socket
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from millstream.model.deferred import Deferred
from millstream.model.errors import ConnectionClosedError, ProtocolError
from millstream.net.receive_budget import ReceiveBudget
from millstream.net.writer import SocketWriter
from millstream.protocol.framing import FrameReader
from millstream.protocol.outgoing import Outgoing, Records

log = logging.getLogger(__name__)

Served: TypeAlias = Outgoing | Deferred[Outgoing | None] | None
"""An answer, nothing to answer, or one of both later."""


@dataclass(frozen=True, slots=True)
class ConnectionPolicy:
    """What holds for every connection: which APIs may overlap, how much may lie unsent."""

    pipelined_keys: frozenset[int]
    max_unsent_bytes: int = 256 * 1024 * 1024


_SEND_AT_BYTES: Final = 1 << 20


class _Slot:
    """The place of one answer in the order of requests."""

    __slots__ = ("outgoing", "pipelined", "ready")

    def __init__(self, *, pipelined: bool) -> None:
        self.pipelined = pipelined
        self.ready = False
        self.outgoing: Outgoing | None = None


class Connection:
    """A non-blocking socket on the loop; ``serve`` turns a frame into an answer.

    ``serve`` raises ProtocolError for a frame that is no request and ConnectionClosedError to
    hang up.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        loop: AbstractEventLoop,
        serve: Callable[[memoryview], Served],
        frames: FrameReader,
        budget: ReceiveBudget,
        policy: ConnectionPolicy,
        on_closed: Callable[[Connection], None],
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._serve = serve
        self._frames = frames
        self._budget = budget
        self._policy = policy
        self._on_closed = on_closed
        self._writer = SocketWriter(sock, zero_copy=True)
        self._answers: deque[_Slot] = deque()
        self._held: memoryview | None = None
        self._reading = False
        self._writing = False
        self.closed = False
        self.frames_served = 0
        """Grows by one with each frame: the listener's sweep sees one that never gets whole."""
        self.touched = True
        """Set by every byte that moves; the listener's sweep clears it to find idle peers."""

    def start(self) -> None:
        """Begin to read."""
        self._resume_reading()

    def close(self) -> None:
        """Hang up now; answers that are still to come are dropped."""
        if self.closed:
            return
        self.closed = True
        self._pause_reading()
        if self._writing:
            self._loop.remove_writer(self._fd)
            self._writing = False
        self._answers.clear()
        self._held = None
        self._socket.close()
        if self._budget.limits:
            self._budget.forget(self)
        self._on_closed(self)

    def resume(self) -> None:
        """Read on after the broker's memory for requests was used up (``ReceiveBudget``)."""
        if not self.closed and not self._writing and self._held is None:
            self._resume_reading()

    @property
    def partial_frame_bytes(self) -> int:
        """How much of a frame has come whose rest has not; 0 between frames."""
        return 0 if self._held is not None else self._frames.frame_pending

    @property
    def waits_for_reader(self) -> bool:
        """True while the peer leaves an answer unread."""
        return self._writing

    @property
    def busy(self) -> bool:
        """True while an answer is owed."""
        return bool(self._answers) or self._held is not None

    def _on_readable(self) -> None:
        if self._writing or self._held is not None:
            self._pause_reading()
            return
        frames = self._frames
        try:
            count = self._socket.recv_into(frames.writable())
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.close()
            return
        if count == 0:
            self.close()
            return
        self.touched = True
        frames.received(count)
        self._serve_frames()
        if self._budget.limits and not self.closed:
            held = 0 if self._held is not None else frames.frame_pending
            if not self._budget.note(self, held):
                self._pause_reading()

    def _serve_frames(self) -> None:
        """Handle every whole frame in the buffer, then send what can be answered at once."""
        out: list[Records] = []
        size = 0
        next_frame = self._frames.next_frame
        try:
            while (frame := self._held or next_frame()) is not None:
                self._held = None
                self.frames_served += 1
                if self._answers and not self._may_overtake(frame):
                    self._held = frame
                    break
                answer = self._serve(frame)
                if self._answers or not isinstance(answer, Outgoing):
                    self._queue(answer, frame)
                    continue
                out += answer.pieces
                size += answer.size
                if size >= _SEND_AT_BYTES:
                    # A peer that asks for much at once gets it in the order it reads.
                    self._send(out)
                    out, size = [], 0
                    if self._writing or self.closed:
                        return
        except ProtocolError as error:
            log.info("closing the connection on fd %d: %s", self._fd, error)
            self._finish(out)
            return
        except ConnectionClosedError:
            self._finish(out)
            return
        if out:
            self._send(out)

    def _may_overtake(self, frame: memoryview) -> bool:
        """Tell whether this request may be handled while the one before it is unanswered."""
        key = frame[0] << 8 | frame[1] if len(frame) > 1 else -1
        return key in self._policy.pipelined_keys and self._answers[-1].pipelined

    def _queue(self, answer: Served, frame: memoryview) -> None:
        """Keep the place of an answer that cannot leave now."""
        if answer is None:
            return
        key = frame[0] << 8 | frame[1]
        slot = _Slot(pipelined=key in self._policy.pipelined_keys)
        self._answers.append(slot)
        if isinstance(answer, Outgoing):
            slot.outgoing = answer
            slot.ready = True
            return

        def fill(ready: Deferred[Outgoing | None]) -> None:
            if self.closed:
                return
            try:
                slot.outgoing = ready.result()
            except ConnectionClosedError:
                self.close()
                return
            slot.ready = True
            if self._answers[0] is slot:
                self._release()

        answer.on_done(fill)

    def _release(self) -> None:
        """Send the answers at the head of the order, then go on with the frame that waited."""
        out: list[Records] = []
        answers = self._answers
        while answers and answers[0].ready:
            outgoing = answers.popleft().outgoing
            if outgoing is not None:
                out += outgoing.pieces
        if out:
            self._send(out)
        if self._held is not None and not self.closed and not self._writing:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Handle what was held back, unless something holds it still."""
        if self.closed or self._writing:
            return
        self._serve_frames()
        if self._held is None and not self._writing and not self.closed:
            self._resume_reading()

    def _send(self, out: list[Records]) -> None:
        try:
            done = self._writer.send(out)
        except OSError:
            self.close()
            return
        if self._writer.pending_bytes > self._policy.max_unsent_bytes:
            log.info("closing fd %d: it leaves its answers unread", self._fd)
            self.close()
        elif not done and not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _on_writable(self) -> None:
        try:
            done = self._writer.flush()
        except OSError:
            self.close()
            return
        self.touched = True
        if done:
            self._loop.remove_writer(self._fd)
            self._writing = False
            self._go_on()

    def _finish(self, out: list[Records]) -> None:
        """Send what was answered before the fault, as far as the socket takes it, and hang up."""
        if out:
            self._send(out)
        self.close()

    def _resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)
