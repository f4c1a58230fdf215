"""Lines that are too long for a topic: found before they are sent, and told with what lifts the
limit.

A record may take ``max.request.size`` of the producer, before compression, and the batch that it
makes ``max.message.bytes`` of the topic, after it.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from millstream.cli.arguments import open_admin
from millstream.cli.client_options import settings_of
from millstream.cli.failures import complain
from millstream.client import Admin
from millstream.client.core.admin.configs import Resource, ResourceType, Setting
from millstream.client.core.admin.outcome import Outcome
from millstream.client.core.settings import ProducerSettings
from millstream.model.errors import ErrorCode, MillstreamError
from millstream.records.batch import HEADER_SIZE
from millstream.records.builder import BatchOptions, encode_batch
from millstream.records.compression import Codec
from millstream.records.record import Header, Record

_OVERHEAD_BYTES: Final = HEADER_SIZE + 64
"""What a record without headers takes at most beside its key and value, with its batch's header."""

_MOST_TOLD: Final = 20
"""Lines that are left out are told one by one up to so many."""

_DEFAULT_REQUEST_BYTES: Final = 1_048_576
"""``max.request.size`` of a producer."""

_SETTING: Final = "max.message.bytes"
_BROKER_SETTING: Final = "message.max.bytes"
"""What a topic has for it that a broker makes by itself."""


class OnError(StrEnum):
    """What becomes of a line that cannot be a record of the topic."""

    STOP = "stop"
    SKIP = "skip"


class BadLineError(MillstreamError):
    """A line cannot be a record of the topic; the text names it and says why."""


class LineLimits:
    """What a producer and a topic take."""

    def __init__(
        self,
        topic: str,
        *,
        request_bytes: int,
        topic_bytes: int | None,
        codec: Codec,
        is_new: bool = False,
    ) -> None:
        """A topic ``is_new`` that the first record makes."""
        self._topic = topic
        self._is_new = is_new
        self._request_bytes = request_bytes
        self._topic_bytes = topic_bytes
        self._codec = codec
        least = request_bytes if topic_bytes is None else min(request_bytes, topic_bytes)
        self.surely_fits = least - _OVERHEAD_BYTES
        """A record with so many bytes of key and value, and without headers, is not too long."""

    @property
    def topic_bytes(self) -> int | None:
        """The topic's ``max.message.bytes``; None where the broker does not tell."""
        return self._topic_bytes

    def refusal(
        self, value: bytes | None, key: bytes | None = None, headers: Sequence[Header] = ()
    ) -> str | None:
        """Return why a record is too long, with what lifts the limit; None if it is not."""
        given = len(value or b"") + len(key or b"")
        if given <= self.surely_fits and not headers:
            return None
        record = Record(0, 0, key, value, tuple(headers))
        wanted = len(encode_batch([record])) + 64  # the producer asks for room to spare
        limits = []
        if wanted > self._request_bytes:
            limits.append(
                f"max.request.size is {self._request_bytes:,} (-X max.request.size={wanted})"
            )
        stored = self._stored_bytes(record)
        if self._topic_bytes is not None and stored > self._topic_bytes:
            command = f"millstream topic {'create' if self._is_new else 'alter'}"
            limits.append(
                f"{_SETTING} of topic {self._topic!r} is {self._topic_bytes:,} "
                f"({command} {shlex.quote(self._topic)} --config {_SETTING}={stored})"
            )
        if not limits:
            return None
        return f"{given:,} bytes are too long for a record: {', and '.join(limits)}"

    def _stored_bytes(self, record: Record) -> int:
        return len(encode_batch([record], BatchOptions(codec=self._codec)))


def limits_of(
    bootstrap: str, topic: str, codec: Codec, *, request_bytes: int | None = None
) -> LineLimits:
    """Return the limits of a topic, and of a producer with the settings that were given.

    ``request_bytes`` is the command's own ``max.request.size``.
    """
    given = settings_of(ProducerSettings).get("max.request.size")
    if given is not None and given.isdecimal():
        request_bytes = int(given)
    with open_admin(bootstrap) as admin:
        found = _outcome(admin, ResourceType.TOPIC, topic, _SETTING)
        error = found.error
        is_new = error is not None and error.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        name = _SETTING
        if is_new:
            broker = str(admin.describe_cluster().brokers[0].broker_id)
            name = _BROKER_SETTING
            found = _outcome(admin, ResourceType.BROKER, broker, name)
    return LineLimits(
        topic,
        request_bytes=request_bytes or _DEFAULT_REQUEST_BYTES,
        topic_bytes=_number(found, name),
        codec=codec,
        is_new=is_new,
    )


def _outcome(admin: Admin, kind: ResourceType, resource: str, name: str) -> Outcome[list[Setting]]:
    wanted = Resource(kind, resource)
    return admin.describe_configs({wanted: [name]})[wanted]


def _number(outcome: Outcome[list[Setting]], name: str) -> int | None:
    """Return the value of a setting; None where it may not be asked for."""
    for each in outcome.value or ():
        if each.name == name and each.value is not None:
            return int(each.value)
    return None


class LineGate:
    """Lets through what the topic takes. Another line ends the command, or is told and left out."""

    def __init__(self, limits: LineLimits, on_error: OnError) -> None:
        self.limits = limits
        self.skipped = 0
        """Lines that were left out."""
        self._skips = on_error is OnError.SKIP

    def reject(self, where: str, reason: str) -> None:
        """Raise BadLineError for a line, or tell that it is left out."""
        if not self._skips:
            raise BadLineError(f"{where}: {reason}; --on-error skip skips such lines")
        self.skipped += 1
        if self.skipped <= _MOST_TOLD:
            complain(f"{where} is skipped: {reason}")
        elif self.skipped == _MOST_TOLD + 1:
            complain("further skipped lines are counted, and not reported one by one")

    def passed(
        self, lines: list[bytes], file: str, first: int
    ) -> tuple[list[bytes], BadLineError | None]:
        """Return the lines that go to the topic, and the error that ends the command after them.

        ``first`` is the number of the first of these lines in its file.
        """
        if not lines or max(map(len, lines)) <= self.limits.surely_fits:
            return lines, None
        passed: list[bytes] = []
        for number, line in enumerate(lines, first):
            reason = self.limits.refusal(line)
            if reason is None:
                passed.append(line)
                continue
            try:
                self.reject(f"line {number:,} of {file}", reason)
            except BadLineError as error:
                return passed, error
        return passed, None
