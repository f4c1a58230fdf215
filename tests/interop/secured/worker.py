"""What a program of another client is asked and answers: one JSON object in a line, each way.

Every client has a worker, written with that client alone: `librdkafka_worker`,
`kafka_python_worker`, `aiokafka_worker`, ``Worker.java`` here, ``../go/secured/main.go`` and
``../js/worker.js``. A request is ``{"do": …, "settings": {…}, …}``:

=========  ============================  =======================================================
do         with                          answer
=========  ============================  =======================================================
hello                                    ``version``: of the client
produce    topic, values                 ``offsets``: of the acknowledged records, one each
consume    topic, group, count           ``values``: read in a group from the beginning, committed
describe   topic, group                  ``partitions`` of the topic, ``group``: its id again
=========  ============================  =======================================================

``settings`` are ``bootstrap``, ``protocol``, ``ca``, and as they apply ``mechanism``, ``username``,
``password``, ``is_token`` (they are those of a delegation token), ``token`` (of OAUTHBEARER),
``certificate`` and ``key``, and ``patience_s`` for a client that tries to connect for as long,
whatever it is answered. What the client raises is answered as ``error`` (its class, or its name of
the code) and ``told`` (its text, after it what the client has logged). Each request is a new
client, and takes at most TIMEOUT_S.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any, Protocol

TIMEOUT_S = 30.0
"""How long a worker tries before it gives up. What is refused is refused long before."""

Settings = dict[str, Any]


class Worker(Protocol):
    """One client of Python."""

    def hello(self, settings: Settings) -> dict[str, object]: ...

    def produce(self, settings: Settings, topic: str, values: list[str]) -> dict[str, object]: ...

    def consume(
        self, settings: Settings, topic: str, group: str, count: int
    ) -> dict[str, object]: ...

    def describe(self, settings: Settings, topic: str, group: str) -> dict[str, object]: ...


class RefusedError(Exception):
    """What a client reports as a code and not as an exception."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text)
        self.name = name


class Heard(logging.Handler):
    """Keeps what a client logs as a warning or worse: some say there alone why they are refused."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def serve(worker: Worker) -> None:
    """Answer the requests of standard input until it ends."""
    heard = Heard()
    logging.getLogger().addHandler(heard)
    for line in sys.stdin:
        request = json.loads(line)
        do = getattr(worker, request.pop("do"))
        heard.lines.clear()
        try:
            answer = do(**request)
        except RefusedError as error:
            answer = {"error": error.name, "told": str(error)}
        except Exception as error:
            told = " | ".join([str(error), *heard.lines])
            answer = {"error": type(error).__name__, "told": told[:5_000]}
        print(json.dumps(answer), flush=True)
