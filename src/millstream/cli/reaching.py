"""Whether anybody is there at all, asked before a command begins.

A client goes on trying for as long as its settings say, for a broker may be about to come back. Who
types a command wants to hear at once that nothing listens where it looks.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from typing import Final

from millstream.cli.failures import CommandFailedError
from millstream.client.settings import Address

PATIENCE_MS: Final = 1_000
"""For so long a broker that refuses connections is taken for one that is about to start."""

_ATTEMPT_S: Final = 1.0
_PAUSE_S: Final = 0.1


class NoBrokerError(CommandFailedError):
    """Nothing listens at any of the addresses."""


def wait_for_a_broker(addresses: Sequence[Address], patience_ms: float = PATIENCE_MS) -> None:
    """Return once one of the addresses may be that of a broker.

    Raises NoBrokerError when all of them refuse connections for so long, or have no address.
    One that does not answer at all is left to the client, which waits for it.
    """
    deadline = time.monotonic() + patience_ms / 1000
    while True:
        refusals = []
        for address in addresses:
            refusal = _refusal(address)
            if refusal is None:
                return
            refusals.append(f"{address}: {refusal}")
        if time.monotonic() >= deadline:
            raise NoBrokerError(
                f"no broker answers at {', '.join(refusals)} "
                "(-b or MILLSTREAM_BOOTSTRAP_SERVERS names other brokers)"
            )
        time.sleep(_PAUSE_S)


def _refusal(address: Address) -> str | None:
    try:
        socket.create_connection((address.host, address.port), _ATTEMPT_S).close()
    except ConnectionRefusedError:
        return "connection refused"
    except socket.gaierror as error:
        return (error.strerror or str(error)).lower()
    except UnicodeError:  # no part of a name may be empty, or longer than 63 letters
        return "not the name of a host"
    except OSError:
        return None
    return None
