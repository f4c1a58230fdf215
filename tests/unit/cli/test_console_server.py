"""How the console's server ends."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette

from millstream.cli.console_server import listen, serve_app

SERVE = uvicorn.Server.serve
MAIN_LOOP = uvicorn.Server.main_loop


@pytest.fixture(autouse=True)
def as_the_command_has_it() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    yield
    signal.signal(signal.SIGTERM, before)


def served() -> Starlette:
    app = Starlette()
    app.state.ended = threading.Event()
    with listen("127.0.0.1", 0) as listening:
        serve_app(app, listening, None)
    return app


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_signal_ends_it_whenever_it_comes_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, number: int, when: str
) -> None:
    def begin(self: uvicorn.Server, sockets: Any = None) -> Coroutine[Any, Any, None]:
        coroutine = SERVE(self, sockets)
        signal.raise_signal(number)
        return coroutine

    async def run(self: uvicorn.Server) -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, number)
        await MAIN_LOOP(self)

    if when == "before":
        monkeypatch.setattr(uvicorn.Server, "serve", begin)
    else:
        monkeypatch.setattr(uvicorn.Server, "main_loop", run)
    served()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
