"""Connections that are not authenticated yet, bounded in all and for each address.

At a bound the oldest gives way to the new one: of peers that only hold connections open the oldest
is one, and whoever means to be served needs a fraction of a second.

An address of IPv6 counts with all others of its /64: that is what one subscriber is given, and who
has one has as many addresses as he likes.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv6Address

GiveUp = Callable[[], None]
"""Closes a connection that has to give way; it calls ``remove`` for it."""


class HalfOpen:
    """The unauthenticated connections of all listeners, by a number each."""

    def __init__(self, *, limit: int, limit_per_address: int) -> None:
        self.limit = limit
        self.limit_per_address = limit_per_address
        self._all: dict[int, tuple[str, GiveUp]] = {}
        self._by_address: dict[str, dict[int, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, number: int, address: str, give_up: GiveUp) -> None:
        """Count a connection; the oldest one of its address, or of all, is closed at a limit."""
        address = address_group(address)
        of_address = self._by_address.get(address, {})
        if len(of_address) >= self.limit_per_address:
            self._evict(next(iter(of_address)))
        if len(self._all) >= self.limit:
            self._evict(next(iter(self._all)))
        self._all[number] = (address, give_up)
        self._by_address.setdefault(address, {})[number] = None

    def remove(self, number: int) -> None:
        """Count out a connection that is authenticated or gone; twice is harmless."""
        address, _ = self._all.pop(number, ("", None))
        of_address = self._by_address.get(address)
        if of_address is not None:
            of_address.pop(number, None)
            if not of_address:
                del self._by_address[address]

    def _evict(self, number: int) -> None:
        _, give_up = self._all[number]
        self.remove(number)
        give_up()


def address_group(host: str) -> str:
    """Return what an address is counted as: itself, of IPv6 its /64, and what is IPv4 within IPv6
    as IPv4.
    """
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"
