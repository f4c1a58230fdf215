"""What clients have asked for: requests as they were recorded, and assertions about them."""

from __future__ import annotations

import fnmatch
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from millstream.protocol.api import APIS, ApiKey, request_class, response_class
from millstream.testing.errors import TestBrokerError
from millstream.testing.frames import Frame

_SHOWN: Final = 40
"""How many requests the text of a failed assertion lists."""


@dataclass
class RecordedRequest:
    """One request of a client."""

    broker: int
    key: int
    version: int
    client_id: str | None
    principal: str
    connection: int
    body_bytes: bytes = field(repr=False)
    answer_bytes: bytes | None = field(default=None, repr=False)
    error: str | None = None
    """Why it was not answered, or the error of the whole request."""

    @property
    def api(self) -> str:
        """Kafka's name of the API."""
        return APIS[self.key].name

    @cached_property
    def body(self) -> Any:
        """The request, with Kafka's fields in snake case."""
        return request_class(self.key).decode_body(self.version, self.body_bytes)

    @cached_property
    def answer(self) -> Any:
        """The response; None where there was none (yet), and for Fetch and ShareFetch."""
        if self.answer_bytes is None:
            return None
        return response_class(self.key).decode_body(self.version, self.answer_bytes)

    def __str__(self) -> str:
        text = f"{self.api} v{self.version} from {self.client_id!r} to broker {self.broker}"
        return text if self.error is None else f"{text}: {self.error}"


class Recording(Sequence[RecordedRequest]):
    """Requests in the order in which they came. Looking at it first waits for those that the
    brokers have taken before.
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync: Callable[[], None] | None = sync
        self._requests: list[RecordedRequest] = []
        self._open: dict[tuple[int, int], RecordedRequest] = {}
        self._lock = threading.Lock()

    def take(self, broker: int, frame: Frame) -> None:
        """Take what a broker tells."""
        with self._lock:
            key = (broker, frame["number"])
            if frame["event"] == "answer":
                request = self._open.pop(key, None)
                if request is not None:
                    request.answer_bytes, request.error = frame["body"], frame["error"]
                return
            request = self._open[key] = recorded(broker, frame)
            self._requests.append(request)

    def stop(self) -> None:
        """Take no more: what there is can be looked at without the brokers."""
        self._sync = None

    def all(
        self, api: str | None = None, client_id: str | None = None, broker: int | None = None
    ) -> list[RecordedRequest]:
        """Return the requests of an API, of clients whose id matches a pattern, to a broker."""
        if self._sync is not None:
            self._sync()
        key = None if api is None else api_key(api)
        with self._lock:
            return [
                each
                for each in self._requests
                if (key is None or each.key == key)
                and matches(client_id, each.client_id)
                and broker in (None, each.broker)
            ]

    def times(self, api: str, client_id: str | None = None, broker: int | None = None) -> int:
        """Return how many there are, see :meth:`all`."""
        return len(self.all(api, client_id, broker))

    def expect(
        self,
        api: str,
        times: int | None = None,
        *,
        at_least: int | None = None,
        client_id: str | None = None,
        broker: int | None = None,
        where: Callable[[Any], object] | None = None,
    ) -> list[RecordedRequest]:
        """Return the requests that match, whose bodies ``where`` accepts. AssertionError with what
        was asked instead unless there are ``times`` of them, or ``at_least`` so many; one at least
        without either.
        """
        found = self.all(api, client_id, broker)
        if where is not None:
            found = [each for each in found if where(each.body)]
        least = 1 if at_least is None else at_least
        if len(found) == times if times is not None else len(found) >= least:
            return found
        wanted = str(times) if times is not None else f"at least {least}"
        of = "" if client_id is None else f" from {client_id!r}"
        to = "" if broker is None else f" to broker {broker}"
        such = "" if where is None else " that match"
        raise AssertionError(
            f"expected {wanted} {APIS[api_key(api)].name} request(s){of}{to}{such}, "
            f"there were {len(found)}.\n{self.summary()}"
        )

    def expect_none(self, api: str, client_id: str | None = None) -> None:
        """Raise AssertionError if there was such a request."""
        self.expect(api, 0, client_id=client_id)

    def expect_order(self, *apis: str, client_id: str | None = None) -> None:
        """Raise AssertionError unless requests of these APIs arrived in this order; there may be
        others between them.
        """
        remaining = iter(self.all(client_id=client_id))
        for api in apis:
            key = api_key(api)
            if not any(each.key == key for each in remaining):
                wanted = " then ".join(apis)
                raise AssertionError(
                    f"expected {wanted}; there was no {api} at its place.\n{self.summary()}"
                )

    def summary(self) -> str:
        """Return how many requests there were of each API, and the last of them line by line."""
        found = self.all()
        if not found:
            return "No requests were recorded."
        counts = ", ".join(
            f"{api} ×{count}" for api, count in Counter(each.api for each in found).most_common()
        )
        lines = [f"  {number}. {each}" for number, each in enumerate(found, 1)]
        left = len(lines) - _SHOWN
        head = [f"Recorded: {counts}"] + ([f"  … {left} before these"] if left > 0 else [])
        return "\n".join([*head, *lines[-_SHOWN:]])

    def __len__(self) -> int:
        return len(self.all())

    def __iter__(self) -> Iterator[RecordedRequest]:
        return iter(self.all())

    def __getitem__(self, index: Any) -> Any:
        return self.all()[index]


def recorded(broker: int, frame: Frame) -> RecordedRequest:
    """Return a request from what a broker tells of it."""
    return RecordedRequest(
        broker,
        frame["key"],
        frame["version"],
        frame["client_id"],
        frame["principal"],
        frame["connection"],
        frame["body"],
    )


def api_key(api: str | int) -> int:
    """Return the key of an API by Kafka's name (``"FindCoordinator"``) or by its key."""
    if isinstance(api, int):
        return int(ApiKey(api))
    wanted = api.replace("_", "").lower()
    for key, row in APIS.items():
        if row.name.lower() == wanted:
            return int(key)
    raise TestBrokerError(f"there is no API {api!r}; one is called, for example, 'Produce'")


def matches(pattern: str | None, client_id: str | None) -> bool:
    """Tell whether a client id fits a pattern of the shell (``orders-*``); None fits all."""
    return pattern is None or fnmatch.fnmatchcase(client_id or "", pattern)
