"""Context managers that close a client, for the blocking and the asyncio API."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A context manager that closes itself."""

    @abstractmethod
    def close(self) -> None:
        """Close and release everything; further calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncClosing(ABC):
    """An asynchronous context manager that closes itself."""

    @abstractmethod
    async def close(self) -> None:
        """Close and release everything; further calls do nothing."""

    async def start(self) -> None:  # noqa: B027 - most have nothing to begin
        """Begin, which ``async with`` does too. A second call does nothing.

        Connections are made when they are needed, so nothing is waited for. Only a Producer has to
        be started before it is used: it may be made where no event loop runs.
        """

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
