"""Connections of a broker under test that a test cuts: to other brokers, and to the store.

A cut loses nothing and refuses nothing: what is sent, received or opened waits until the cut is
healed or a time-out gives up, as on a network whose packets are dropped and sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import TypeAlias

from millstream.keeper.links import Link, LinkOwner, OpenLink
from millstream.protocol.outgoing import Outgoing
from millstream.runtime.broker_channels import Network, Transport, TransportOwner

Address: TypeAlias = tuple[str, int]


class Gate:
    """Lets calls pass in their order, or keeps them while it is shut."""

    def __init__(self) -> None:
        self.is_shut = False
        self._kept: deque[Callable[[], None]] = deque()

    def passes(self, call: Callable[[], None]) -> None:
        """Make the call, now or when the gate is opened."""
        if self.is_shut or self._kept:
            self._kept.append(call)
        else:
            call()

    def open(self) -> None:
        """Make the calls that were kept."""
        self.is_shut = False
        while self._kept and not self.is_shut:
            self._kept.popleft()()

    def drop(self) -> None:
        """Forget the calls that were kept."""
        self._kept.clear()


class _Owner:
    """Between a connection and whom it tells, both ways through one gate each."""

    def __init__(self, owner: TransportOwner | LinkOwner, gates: set[_Owner]) -> None:
        self._owner = owner
        self._gates = gates
        self.inwards = Gate()
        self.outwards = Gate()

    def connected(self) -> None:
        self.inwards.passes(self._owner.connected)

    def frame_received(self, frame: memoryview) -> None:
        if not self.inwards.is_shut:
            self._owner.frame_received(frame)
            return
        kept = memoryview(bytearray(frame))
        self.inwards.passes(lambda: self._owner.frame_received(kept))

    def closed(self, reason: str, **by_peer: bool) -> None:
        """A connection that a peer has closed is not known to be closed while it is cut."""

        def tell() -> None:
            self._gates.discard(self)
            self._owner.closed(reason, **by_peer)

        self.inwards.passes(tell)

    def shut(self) -> None:
        self.inwards.is_shut = self.outwards.is_shut = True

    def open(self) -> None:
        self.outwards.open()
        self.inwards.open()

    def forget(self) -> None:
        self._gates.discard(self)
        self.inwards.drop()
        self.outwards.drop()


class _Transport:
    """A connection of which the way out has a gate (``broker_channels.Transport``)."""

    def __init__(self, owner: _Owner, begin: Callable[[], Transport], is_cut: bool) -> None:
        self._owner = owner
        self._transport: Transport | None = None
        self._begin = begin
        if is_cut:
            owner.shut()
            owner.outwards.passes(self._open)
        else:
            self._open()

    @property
    def received_size(self) -> int:
        return 0 if self._transport is None else self._transport.received_size

    def send(self, outgoing: Outgoing) -> None:
        if not self._owner.outwards.is_shut:
            assert self._transport is not None
            self._transport.send(outgoing)
            return
        self._owner.outwards.passes(lambda: self._send_later(outgoing))

    def _send_later(self, outgoing: Outgoing) -> None:
        if self._transport is not None:
            self._transport.send(outgoing)

    def close(self) -> None:
        self._owner.forget()
        if self._transport is not None:
            self._transport.close()

    def _open(self) -> None:
        self._transport = self._begin()


class CuttableNetwork:
    """The connections to other brokers (``broker_channels.Network``)."""

    def __init__(self) -> None:
        self._network: Network | None = None
        self._cut: frozenset[Address] = frozenset()
        self._open: dict[Address, set[_Owner]] = {}

    def around(self, network: Network) -> Network:
        """Take the connections of ``network``."""
        self._network = network
        return self

    def open(self, host: str, port: int, owner: TransportOwner) -> Transport:
        """Begin to connect."""
        network = self._network
        assert network is not None
        address = (host, port)
        gates = self._open.setdefault(address, set())
        between = _Owner(owner, gates)
        gates.add(between)
        return _Transport(
            between, lambda: network.open(host, port, between), is_cut=address in self._cut
        )

    def cut(self, addresses: Collection[Address]) -> None:
        """Cut the connections to these addresses, and no others."""
        before, self._cut = self._cut, frozenset(addresses)
        for address in self._cut - before:
            for each in tuple(self._open.get(address, ())):
                each.shut()
        for address in before - self._cut:
            for each in tuple(self._open.get(address, ())):
                each.open()


class _Link:
    """A connection to the keeper of which the way out has a gate (``keeper.links.Link``)."""

    def __init__(self, owner: _Owner, begin: Callable[[], Link], is_cut: bool) -> None:
        self._owner = owner
        self._link: Link | None = None
        self._begin = begin
        if is_cut:
            owner.shut()
            owner.outwards.passes(self._open)
        else:
            self._open()

    @property
    def pending_bytes(self) -> int:
        return 0 if self._link is None else self._link.pending_bytes

    def send(self, outgoing: Outgoing) -> None:
        self._owner.outwards.passes(lambda: self._send(outgoing))

    def _send(self, outgoing: Outgoing) -> None:
        if self._link is not None:
            self._link.send(outgoing)

    def close(self) -> None:
        self._owner.forget()
        if self._link is not None:
            self._link.close()

    def _open(self) -> None:
        self._link = self._begin()


class CuttableLinks:
    """The connections to the store."""

    def __init__(self) -> None:
        self._is_cut = False
        self._open: set[_Owner] = set()

    def around(self, open_link: OpenLink) -> OpenLink:
        """Return what opens connections that can be cut."""

        def open_cuttable(owner: LinkOwner) -> Link:
            between = _Owner(owner, self._open)
            self._open.add(between)
            return _Link(between, lambda: open_link(between), self._is_cut)

        return open_cuttable

    def cut(self, *, is_cut: bool) -> None:
        """Cut the connections to the store, or heal them."""
        if is_cut == self._is_cut:
            return
        self._is_cut = is_cut
        for each in tuple(self._open):
            if is_cut:
                each.shut()
            else:
                each.open()
