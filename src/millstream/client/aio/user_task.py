"""The user's task at an asyncio consumer: waits for the core, and runs callbacks of the user."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

from millstream.client.aio.loop import AsyncioLoop
from millstream.client.core.consumer.user_calls import UserCall
from millstream.client.core.consumer.user_side import UserSide
from millstream.model.deferred import Deferred, spawn

T = TypeVar("T")


class UserTask:
    """Waits for one core."""

    def __init__(self, loop: AsyncioLoop, user: UserSide) -> None:
        self._loop = loop
        self._user = user

    async def run(self, coroutine: Coroutine[Deferred[Any], None, T]) -> T:
        """Run a coroutine of the core."""
        return await self._loop.future(spawn(coroutine))

    async def visit(self, cell: Deferred[UserCall | None]) -> None:
        """Wait for a poll of the core, and run the callback that it returns."""
        self._loop.check_process()
        call = await self._next_call(cell)
        if call is not None:
            await self._serve(call)

    async def drive(self, coroutine: Coroutine[Deferred[Any], None, None]) -> None:
        """Run a coroutine of the core that may need callbacks of the user.

        Raises its error, else the first one of the callbacks, once it has ended.
        """
        target = spawn(coroutine)
        failure: Exception | None = None
        while True:
            call = await self._next_call(self._user.serve(target))
            if call is None:
                break
            try:
                await self._serve(call)
            except Exception as error:
                # A callback that fails must not keep the consumer from closing.
                failure = failure or error
        target.result()
        if failure is not None:
            raise failure

    async def _next_call(self, cell: Deferred[UserCall | None]) -> UserCall | None:
        try:
            return await self._loop.future(cell)
        except asyncio.CancelledError:
            # A late result is kept for the next poll.
            self._user.abandon(cell)
            raise

    async def _serve(self, call: UserCall) -> None:
        try:
            returned = call.function()
            if inspect.isawaitable(returned):
                await returned
        finally:
            call.done.complete(None)
