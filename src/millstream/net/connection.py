"""One client connection: frames in, answers out in the order of the requests.

Requests are handled one after the other, as Kafka does by muting a channel, with one exception: a
request of a *pipelined* API (Produce) may be handled while earlier ones of such APIs still wait for
their commit, so a connection keeps appending while acks=all waits for replicas. Everything else
waits in the buffer, and TCP flow control slows the peer down; so does an unread answer.

While a request waits for its answer and no later one may be handled, the connection reads ahead a
little, for two reasons: the next request is there at once, and a closed peer is noticed, so
that nothing waits for it any more. Requests that it had sent before are still handled.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop, TimerHandle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from millstream.model.deferred import Deferred
from millstream.model.errors import ConnectionClosedError, ProtocolError
from millstream.net.receive_budget import ReceiveBudget
from millstream.net.transport import Transport
from millstream.protocol.framing import FrameReader
from millstream.protocol.outgoing import Outgoing, Records

log = logging.getLogger(__name__)

Served: TypeAlias = Outgoing | Deferred[Outgoing | None] | None
"""An answer, nothing to answer, or one of both later."""


@dataclass(frozen=True, slots=True)
class ConnectionPolicy:
    """What holds for every connection: which APIs may overlap, and how much may pile up."""

    pipelined_keys: frozenset[int]
    max_unsent_bytes: int = 256 * 1024 * 1024
    """Bytes of answers in memory that the peer leaves unread; beyond, the connection is closed."""
    max_owed_answers: int = 1024
    """Requests that wait for their commit; with so many, nothing more is handled until one has."""
    max_owed_request_bytes: int = 16 * 1024 * 1024
    """The same, in bytes of the requests: what has to be recompressed is kept until then."""
    questions: frozenset[int] = frozenset()
    """APIs that change nothing and may wait long: not handled for a peer that has closed."""


class LastAnswerError(ConnectionClosedError):
    """A Deferred that fails with it closes the connection once ``answer``, if any, is sent: how a
    failed authentication is answered late, without a thread that waits.
    """

    def __init__(self, reason: str, answer: Outgoing | None) -> None:
        super().__init__(reason)
        self.answer = answer


_SEND_AT_BYTES: Final = 1 << 20
_READ_AHEAD_BYTES: Final = 16 * 1024


class _Slot:
    """One answer in the order of the requests."""

    __slots__ = ("outgoing", "pipelined", "ready", "request_bytes", "timer")

    def __init__(self, *, pipelined: bool, request_bytes: int) -> None:
        self.pipelined = pipelined
        self.request_bytes = request_bytes
        self.ready = False
        self.outgoing: Outgoing | None = None
        self.timer: TimerHandle | None = None
        """Ends the mute that this slot stands for."""


class Connection:
    """A transport on the loop; ``serve`` turns a frame into an answer.

    ``serve`` raises ProtocolError for a frame that is not a request and ConnectionClosedError to
    close the connection.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        loop: AbstractEventLoop,
        serve: Callable[[memoryview], Served],
        frames: FrameReader,
        budget: ReceiveBudget,
        policy: ConnectionPolicy,
        on_closed: Callable[[Connection], None],
    ) -> None:
        self._transport = transport
        self._receive_into = transport.receive_into
        self._loop = loop
        self._serve = serve
        self._frames = frames
        self._budget = budget
        self._policy = policy
        self._on_closed = on_closed
        self._answers: deque[_Slot] = deque()
        self._owed_bytes = 0
        self._held: memoryview | None = None
        self._stalled = False
        """True while bytes have come that wait for an answer before them."""
        self._mute_ms = 0.0
        """How long nothing is handled after the request that is served just now."""
        self._serving = False
        self._releasing = False
        """True while answers that are ready are sent at the end of this iteration of the loop."""
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
            self._transport.unwatch_writable()
            self._writing = False
        for slot in self._answers:
            if slot.timer is not None:
                slot.timer.cancel()
        self._answers.clear()
        self._held = None
        self._stalled = False
        self._transport.close()
        if self._budget.limits:
            self._budget.forget(self)
        self._on_closed(self)

    def mute(self, milliseconds: float) -> None:
        """Handle no later request for a while. ``serve`` may call it; then it answers by a
        Deferred, which is not held up.
        """
        if self.closed:
            return
        if self._serving:
            self._mute_ms = max(self._mute_ms, milliseconds)
        else:
            self._begin_mute(milliseconds)

    def _begin_mute(self, milliseconds: float) -> None:
        """Put an answer that nobody gets behind all that are owed: whatever comes waits for it, and
        is soon read no more.
        """
        slot = _Slot(pipelined=False, request_bytes=0)
        self._answers.append(slot)

        def end() -> None:
            if self.closed:
                return
            slot.ready = True
            if self._answers[0] is slot and not self._serving:
                self._release()

        slot.timer = self._loop.call_later(milliseconds / 1000, end)

    def resume(self) -> None:
        """Read on after the broker's memory for requests was used up (``ReceiveBudget``)."""
        if not self.closed and not self._writing and self._held is None:
            self._resume_reading()

    def rest(self) -> None:
        """Give back the memory of a buffer that nothing has come into for long."""
        if self._held is None:
            self._frames.shrink()

    @property
    def partial_frame_bytes(self) -> int:
        """How much of a frame has come whose rest the peer has yet to send; 0 between frames, and
        while it is the broker that does not read.
        """
        return self._held_bytes if self._reading else 0

    @property
    def _held_bytes(self) -> int:
        """Bytes that count in the budget: those of an unfinished frame. Frames that wait for an
        answer, or for the peer to read one, are small and do not count: such a connection must not
        hold back the connections that read.
        """
        return 0 if self._stalled or self._writing else self._frames.frame_pending

    @property
    def waits_for_reader(self) -> bool:
        """True while the peer leaves an answer unread."""
        return self._writing

    @property
    def busy(self) -> bool:
        """True while a request has no answer yet."""
        return bool(self._answers) or self._held is not None

    @property
    def _peer(self) -> str:
        """Who is on the other side, for the log; it is asked for seldom."""
        return self._transport.peer()

    def _on_readable(self) -> None:
        if self._writing:
            # Whoever asks for more has read something, so there is room again.
            self._on_writable()
            if self.closed:
                return
        if self._writing or self._held is not None:
            self._pause_reading()
            return
        if self._budget.limits and not self._has_memory():
            return
        space = self._space()
        if not space:
            self._pause_reading()
            return
        try:
            count = self._receive_into(space)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if count == 0:
            self._hear_out()
            return
        self.touched = True
        self._frames.received(count)
        self._serve_frames()
        if self._budget.limits and not self.closed:
            self._has_memory()

    def _space(self) -> memoryview:
        """Return where to receive; a small buffer while a request waits for its answer."""
        space = self._frames.writable()
        if self._stalled:
            return space[: max(0, _READ_AHEAD_BYTES - self._frames.frame_pending)]
        return space

    def _has_memory(self) -> bool:
        """Report the bytes held to the budget; pause until ``resume`` where it refuses more."""
        has = self._budget.note(self, self._held_bytes, self.frames_served)
        if not has:
            self._pause_reading()
        return has

    def _hear_out(self) -> None:
        """Hang up on a peer that has gone, and handle what it said behind a request that waits: a
        member that leaves its group does not always wait for the answers (Kafka: ``Selector``
        reads a closing channel to its end).
        """
        waits, frame = self._stalled, self._held
        self.close()
        if not waits:
            return
        try:
            while (frame := frame or self._frames.next_frame()) is not None:
                if _key_of(frame) not in self._policy.questions:
                    self._serve(frame)
                frame = None
        except (ProtocolError, ConnectionClosedError) as error:
            log.info("the rest of what a peer said is dropped: %s", error)
        except Exception:
            log.exception("a request of a peer that has gone could not be served")

    def _serve_frames(self) -> None:
        """Handle every whole frame in the buffer, then send what can be answered at once."""
        out: list[Records] = []
        self._serving = True
        try:
            self._serve_into(out)
        except ProtocolError as error:
            log.info("closing the connection of %s: %s", self._peer, error)
            self._finish(out)
        except ConnectionClosedError:
            self._finish(out)
        except Exception:
            log.exception("closing the connection of %s: a request failed", self._peer)
            self._finish(out)
        finally:
            self._serving = False
        if out and not self.closed:
            self._send(out)
        if self._answers and self._answers[0].ready:
            self._release()

    def _serve_into(self, out: list[Records]) -> None:
        """Handle frames; ``out`` gets the answers that come at once and have none before them."""
        answers = self._answers
        next_frame = self._frames.next_frame
        max_answers = self._policy.max_owed_answers
        max_bytes = self._policy.max_owed_request_bytes
        size = 0
        self._stalled = False
        while not answers or (
            answers[-1].pipelined and len(answers) < max_answers and self._owed_bytes < max_bytes
        ):
            frame = self._held or next_frame()
            if frame is None:
                return
            self._held = None
            overtakes = bool(answers)
            if overtakes and not self._is_pipelined(frame):
                self._held = frame
                self._stalled = True
                return
            self.frames_served += 1
            answer = self._serve(frame)
            if answers or not isinstance(answer, Outgoing):
                if answer is not None:
                    self._queue(answer, frame, pipelined=overtakes or self._is_pipelined(frame))
                if self.closed:
                    return
                continue
            out += answer.pieces
            size += answer.size
            if size >= _SEND_AT_BYTES:
                # A peer that asks for much at once gets it in the order it reads.
                self._send(out)
                out.clear()
                size = 0
                if self._writing or self.closed:
                    return
        self._stalled = self._frames.frame_pending > 0 or self._held is not None

    def _is_pipelined(self, frame: memoryview) -> bool:
        return _key_of(frame) in self._policy.pipelined_keys

    def _queue(
        self, answer: Outgoing | Deferred[Outgoing | None], frame: memoryview, *, pipelined: bool
    ) -> None:
        """Queue an answer that cannot be sent yet."""
        slot = _Slot(pipelined=pipelined, request_bytes=len(frame))
        self._answers.append(slot)
        self._owed_bytes += slot.request_bytes
        if self._mute_ms:
            self._begin_mute(self._mute_ms)
            self._mute_ms = 0.0
        if isinstance(answer, Outgoing):
            slot.outgoing = answer
            slot.ready = True
            return

        def fill(ready: Deferred[Outgoing | None]) -> None:
            if self.closed:
                return
            try:
                slot.outgoing = ready.result()
            except LastAnswerError as error:
                self._finish([] if error.answer is None else error.answer.pieces)
                return
            except ConnectionClosedError:
                self.close()
                return
            except Exception:
                log.exception("closing the connection of %s: an answer failed", self._peer)
                self.close()
                return
            slot.ready = True
            if self._answers[0] is slot and not self._serving:
                self._release_soon()

        answer.on_done(fill)

    def _release_soon(self) -> None:
        """Send an answer that others wait behind at the end of this iteration of the loop.

        What commits one write mostly commits the next ones too, and to wake the peer costs more
        than everything else about an answer.
        """
        if len(self._answers) == 1:
            self._release()
        elif not self._releasing:
            self._releasing = True
            self._loop.call_soon(self._release_together)

    def _release_together(self) -> None:
        self._releasing = False
        if not self.closed and not self._serving:
            self._release()

    def _release(self) -> None:
        """Send the answers at the head of the order, then go on with the frame that waited."""
        out: list[Records] = []
        answers = self._answers
        while answers and answers[0].ready:
            slot = answers.popleft()
            self._owed_bytes -= slot.request_bytes
            if slot.outgoing is not None:
                out += slot.outgoing.pieces
        if out:
            self._send(out)
        if self._stalled and not self.closed and not self._writing:
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Handle what was held back, unless something holds it still."""
        if self.closed or self._writing or self._serving:
            return
        self._serve_frames()
        if self._held is None and not self._writing and not self.closed:
            self._resume_reading()

    def _send(self, out: list[Records]) -> None:
        try:
            done = self._transport.send(out)
        except OSError:
            self.close()
            return
        if self._transport.pending_bytes > self._policy.max_unsent_bytes:
            log.info("closing the connection of %s: answers are left unread", self._peer)
            self.close()
        elif not done and not self._writing:
            self._writing = True
            self._transport.watch_writable(self._on_writable)
            if self._budget.limits:
                self._has_memory()

    def _on_writable(self) -> None:
        try:
            done = self._transport.flush()
        except OSError:
            self.close()
            return
        self.touched = True
        if done:
            self._transport.unwatch_writable()
            self._writing = False
            self._go_on()

    def _finish(self, out: list[Records]) -> None:
        """Send what was answered before the fault, as far as the socket takes it, and close."""
        if out:
            self._send(out)
        self.close()

    def _resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._transport.watch_readable(self._on_readable)

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._transport.unwatch_readable()


def _key_of(frame: memoryview) -> int:
    """Return the API of a request, -1 for a frame that is too short to be one."""
    return frame[0] << 8 | frame[1] if len(frame) > 1 else -1
