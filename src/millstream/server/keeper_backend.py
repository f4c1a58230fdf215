"""The metadata store of a cluster on one machine, at the keeper that a broker's settings name."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from pathlib import Path

from millstream.config.broker import BrokerConfig
from millstream.keeper.links import OpenLink
from millstream.keeper.messages import MAX_ANSWER_BYTES
from millstream.keeper.metadata_store import KeeperMetadataStore
from millstream.model.clock import Clock
from millstream.net.local_socket import LocalClient


def keeper_store(
    config: BrokerConfig,
    clock: Clock,
    loop: AbstractEventLoop,
    around: Callable[[OpenLink], OpenLink],
) -> KeeperMetadataStore:
    """Return the store that `metadata.keeper.socket` names, not connected yet. ``around`` is put
    around its connections.
    """
    assert config.metadata_keeper_socket is not None
    path = Path(config.metadata_keeper_socket)
    return KeeperMetadataStore(
        around(lambda owner: LocalClient(loop, path, owner, max_frame_bytes=MAX_ANSWER_BYTES)),
        clock=clock,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        name=f"broker {config.broker}",
    )
