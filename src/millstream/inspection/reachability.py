"""Why a client cannot connect: step by step, from the machine that asks.

For each address: the name, the port, and what speaks there (TLS, authentication, versions); then
the addresses that the brokers advertise, which is where clients go after the first answer.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from millstream.client.blocking_loop import BlockingLoop
from millstream.client.connection import Connection
from millstream.client.errors import (
    AuthenticationError,
    TlsError,
)
from millstream.client.metadata import Metadata, read_metadata
from millstream.client.settings import Address, ClientSettings
from millstream.model.errors import ErrorCode, KafkaError, MillstreamError
from millstream.protocol.messages.metadata import MetadataRequest, MetadataResponse

_LOCAL: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Outcome(Enum):
    """How a step ended."""

    OK = "ok"
    FAILED = "failed"
    NOT_REACHED = "not reached"
    """A step before it failed."""


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was tried. ``remedy`` is a command that mends it or tells more."""

    address: Address
    broker: int | None
    """None for an address that the user gave, the broker's id for one that was advertised."""
    name: str
    outcome: Outcome
    sentence: str = ""
    remedy: str = ""


STEPS: Final = ("name", "port", "tls", "authentication", "versions", "metadata")


def look_at(settings: ClientSettings, protocol: str = "PLAINTEXT") -> Iterator[Step]:
    """Yield the steps for each bootstrap address, and for each address that is advertised there.

    ``protocol`` is ``security.protocol``, for the remedies. Takes up to ``connect_timeout_ms`` for
    each step. Nothing is raised: what goes wrong is a step.
    """
    known: set[Address] = set()
    advertised: dict[int, Address] = {}
    for address in settings.bootstrap_servers:
        look = _Look(settings, address, None, protocol)
        yield from look.steps()
        known.add(address)
        if look.metadata is not None:
            advertised |= {each: found.address for each, found in look.metadata.brokers.items()}
    for broker, address in sorted(advertised.items()):
        if address not in known:
            yield from _Look(settings, address, broker, protocol).steps()


class _Look:
    """The steps for one address."""

    def __init__(
        self, settings: ClientSettings, address: Address, broker: int | None, protocol: str
    ) -> None:
        self._settings = replace(settings, bootstrap_servers=(address,))
        self._address = address
        self._broker = broker
        self._protocol = protocol
        self.metadata: Metadata | None = None

    def steps(self) -> Iterator[Step]:
        """Yield them all; what follows a step that failed is not reached."""
        left_out = self._left_out()
        for step in self._tried():
            yield step
            if step.outcome is Outcome.FAILED:
                for name in STEPS[STEPS.index(step.name) + 1 :]:
                    if name not in left_out:
                        yield self._step(name, Outcome.NOT_REACHED)

    def _left_out(self) -> set[str]:
        out = set() if self._protocol.endswith("SSL") else {"tls"}
        return out if self._protocol.startswith("SASL") else out | {"authentication"}

    def _tried(self) -> Iterator[Step]:
        host, port = self._address.host, self._address.port
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            reason = _reason(error)
            yield self._failed("name", f"this machine does not know the name {host}: {reason}")
            return
        numbers = sorted({str(each[4][0]) for each in found})
        yield self._step("name", Outcome.OK, f"{host} is {', '.join(numbers)}")
        failure = self._connect_once()
        if failure is not None:
            yield failure
            return
        yield self._step("port", Outcome.OK, f"something listens on port {port}")
        yield from self._spoken()

    def _connect_once(self) -> Step | None:
        """Open a TCP connection and close it; None when that went well."""
        host, port = self._address.host, self._address.port
        try:
            socket.create_connection((host, port), self._settings.connect_timeout_ms / 1000).close()
        except ConnectionRefusedError:
            return self._failed("port", f"nothing listens on port {port} of {host}")
        except TimeoutError:
            seconds = self._settings.connect_timeout_ms / 1000
            text = f"{host}:{port} did not answer within {seconds:g} s: a firewall, or no such host"
            return self._failed("port", text)
        except OSError as error:
            return self._failed(
                "port", f"no connection to {host}:{port}: {error.strerror or error}"
            )
        return None

    def _spoken(self) -> Iterator[Step]:
        """Connect as a client does, and ask for metadata."""
        loop = BlockingLoop(security=self._settings.security)
        try:
            connection = Connection(self._address, self._settings, loop)
        except MillstreamError as error:
            yield from self._refused(error)
            return
        try:
            for name in ("tls", "authentication", "versions"):
                if name not in self._left_out():
                    yield self._step(name, Outcome.OK)
            request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            answer = connection.call(request, MetadataResponse)
            if answer.error_code:
                raise KafkaError(ErrorCode.of(answer.error_code), "metadata")
            self.metadata = metadata = read_metadata(answer)
        except MillstreamError as error:
            yield self._failed("metadata", str(error))
            return
        finally:
            connection.close()
        brokers = ", ".join(
            f"{each} at {b.address}" for each, b in sorted(metadata.brokers.items())
        )
        text = f"cluster {metadata.cluster_id or 'without an id'}; brokers: {brokers or 'none'}"
        yield self._step("metadata", Outcome.OK, text)

    def _refused(self, error: MillstreamError) -> Iterator[Step]:
        """Tell at which step a connection was refused, those before it being well."""
        name = "versions"
        # A peer that closes during the handshake may only be busy: clients try again, so its error
        # is none of TLS.
        if isinstance(error, TlsError) or "TLS handshake" in str(error):
            name = "tls"
        elif isinstance(error, AuthenticationError):
            name = "authentication"
        left_out = self._left_out()
        name = "versions" if name in left_out else name
        for each in ("tls", "authentication", "versions"):
            if each == name:
                break
            if each not in left_out:
                yield self._step(each, Outcome.OK)
        yield self._failed(name, str(error))

    def _failed(self, name: str, sentence: str) -> Step:
        return self._step(name, Outcome.FAILED, sentence, self._remedy(name))

    def _remedy(self, name: str) -> str:
        host, port = self._address.host, self._address.port
        if self._broker is not None and name in ("name", "port"):
            return f"millstream serve --advertise HOST:{port}"
        return {
            "name": f"getent hosts {host}",
            "port": f"millstream serve --port {port}"
            if host in _LOCAL
            else f"millstream serve --host 0.0.0.0 --port {port} --advertise {host}:{port}",
            "tls": "millstream doctor connect -X security.protocol=SSL -X ssl.ca.location=CA.pem",
            "authentication": "millstream doctor connect -X sasl.mechanism=SCRAM-SHA-256 "
            "-X sasl.username=NAME -X sasl.password=PASSWORD",
            "versions": f"millstream doctor connect -X security.protocol={self._other()}",
            "metadata": "millstream acl check User:NAME DESCRIBE --cluster",
        }[name]

    def _other(self) -> str:
        """Return the protocol with TLS for one without, and the other way round."""
        swapped = {"PLAINTEXT": "SSL", "SASL_PLAINTEXT": "SASL_SSL"}
        swapped |= {value: key for key, value in swapped.items()}
        return swapped[self._protocol]

    def _step(self, name: str, outcome: Outcome, sentence: str = "", remedy: str = "") -> Step:
        return Step(self._address, self._broker, name, outcome, sentence, remedy)


def _reason(error: Exception) -> str:
    """Return the words of an error of the system, without its number."""
    return getattr(error, "strerror", None) or str(error)
