"""Who loads wait for while brokers cannot be reached."""

from __future__ import annotations

from millstream.cli.waiting import Waiting
from millstream.client.cluster import out_of_reach
from millstream.client.settings import Address


def load_waiting() -> Waiting:
    """Return what tells, while loads run in this process, which brokers they wait for."""
    return Waiting(LastOutOfReach())


class LastOutOfReach:
    """The brokers that loads cannot connect to.

    A load that begins again has closed its connections, and pauses before it makes new ones. Until
    it has connected, it waits for those that it has last tried.
    """

    def __init__(self) -> None:
        self._away: list[Address] = []

    def __call__(self) -> list[Address]:
        """Return them, as they are now."""
        found = out_of_reach()
        if found is not None:
            self._away = found
        return self._away
