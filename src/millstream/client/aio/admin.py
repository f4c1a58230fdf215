"""The administrator for asyncio programs; see :mod:`millstream.client.admin`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from millstream.client.aio.loop import AsyncioLoop
from millstream.client.closing import AsyncClosing
from millstream.client.core.admin.core import AdminCore
from millstream.client.core.keywords import AdminKeywords
from millstream.client.core.settings import AdminSettings
from millstream.client.errors import ClosedError
from millstream.client.references import read_given
from millstream.client.security import open_security
from millstream.model.deferred import Deferred, spawn

T = TypeVar("T")
P = ParamSpec("P")


def _asks(
    ask: Callable[Concatenate[AdminCore, P], Coroutine[Deferred[Any], None, T]],
) -> Callable[Concatenate[Admin, P], Awaitable[T]]:
    """Return an asynchronous version of a method of the core, where it is described."""

    @wraps(ask)
    async def method(self: Admin, /, *args: P.args, **keywords: P.kwargs) -> T:
        loop, core = self._started()
        loop.check_process()
        return await loop.future(spawn(ask(core, *args, **keywords)))

    return method


class Admin(AsyncClosing):
    """``async with Admin(bootstrap_servers="…") as admin``; bound to the running event loop."""

    def __init__(
        self, settings: Mapping[str, object] | None = None, **keywords: Unpack[AdminKeywords]
    ) -> None:
        self._settings = read_given(AdminSettings, settings, keywords)
        self._security = open_security(self._settings)
        self._running: tuple[AsyncioLoop, AdminCore] | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def start(self) -> None:
        """Bind to the running event loop; connections are made when they are needed."""
        if self._running is None:
            loop = AsyncioLoop(
                send_bytes=self._settings.send_buffer_bytes,
                receive_bytes=self._settings.receive_buffer_bytes,
                security=self._security,
            )
            self._running = loop, AdminCore(loop, self._settings)

    def _started(self) -> tuple[AsyncioLoop, AdminCore]:
        if self._running is None:
            raise ClosedError("the admin was not started: use 'async with' or await start()")
        return self._running

    async def close(self) -> None:
        """Close every connection; pending calls fail."""
        if self._running is not None:
            loop, core = self._running
            core.close()
            await loop.close()

    # --- topics ----------------------------------------------------------------------------------

    create_topics = _asks(AdminCore.create_topics)
    delete_topics = _asks(AdminCore.delete_topics)
    delete_topics_by_id = _asks(AdminCore.delete_topics_by_id)
    create_partitions = _asks(AdminCore.create_partitions)
    list_topics = _asks(AdminCore.list_topics)
    describe_topics = _asks(AdminCore.describe_topics)
    delete_records = _asks(AdminCore.delete_records)

    # --- configs ---------------------------------------------------------------------------------

    describe_configs = _asks(AdminCore.describe_configs)
    incremental_alter_configs = _asks(AdminCore.incremental_alter_configs)
    alter_configs = _asks(AdminCore.alter_configs)
    list_config_resources = _asks(AdminCore.list_config_resources)

    # --- cluster ---------------------------------------------------------------------------------

    describe_cluster = _asks(AdminCore.describe_cluster)
    describe_features = _asks(AdminCore.describe_features)
    update_features = _asks(AdminCore.update_features)
    describe_quorum = _asks(AdminCore.describe_quorum)
    unregister_broker = _asks(AdminCore.unregister_broker)

    # --- groups ----------------------------------------------------------------------------------

    list_groups = _asks(AdminCore.list_groups)
    describe_groups = _asks(AdminCore.describe_groups)
    delete_groups = _asks(AdminCore.delete_groups)
    remove_members = _asks(AdminCore.remove_members)
    list_group_offsets = _asks(AdminCore.list_group_offsets)
    alter_group_offsets = _asks(AdminCore.alter_group_offsets)
    delete_group_offsets = _asks(AdminCore.delete_group_offsets)
    describe_share_groups = _asks(AdminCore.describe_share_groups)
    list_share_group_offsets = _asks(AdminCore.list_share_group_offsets)
    alter_share_group_offsets = _asks(AdminCore.alter_share_group_offsets)
    delete_share_group_offsets = _asks(AdminCore.delete_share_group_offsets)

    # --- offsets ---------------------------------------------------------------------------------

    list_offsets = _asks(AdminCore.list_offsets)

    # --- replicas --------------------------------------------------------------------------------

    describe_partitions = _asks(AdminCore.describe_partitions)
    describe_log_dirs = _asks(AdminCore.describe_log_dirs)
    alter_replica_log_dirs = _asks(AdminCore.alter_replica_log_dirs)
    elect_leaders = _asks(AdminCore.elect_leaders)
    alter_partition_reassignments = _asks(AdminCore.alter_partition_reassignments)
    list_partition_reassignments = _asks(AdminCore.list_partition_reassignments)

    # --- producers -------------------------------------------------------------------------------

    describe_producers = _asks(AdminCore.describe_producers)
    list_transactions = _asks(AdminCore.list_transactions)
    describe_transactions = _asks(AdminCore.describe_transactions)
    fence_producers = _asks(AdminCore.fence_producers)
    end_transactions = _asks(AdminCore.end_transactions)
    abort_transaction = _asks(AdminCore.abort_transaction)
    find_open_transaction = _asks(AdminCore.find_open_transaction)
    find_hanging_transactions = _asks(AdminCore.find_hanging_transactions)

    # --- access ----------------------------------------------------------------------------------

    describe_acls = _asks(AdminCore.describe_acls)
    create_acls = _asks(AdminCore.create_acls)
    delete_acls = _asks(AdminCore.delete_acls)
    describe_client_quotas = _asks(AdminCore.describe_client_quotas)
    alter_client_quotas = _asks(AdminCore.alter_client_quotas)
    describe_user_scram_credentials = _asks(AdminCore.describe_user_scram_credentials)
    alter_user_scram_credentials = _asks(AdminCore.alter_user_scram_credentials)
    create_delegation_token = _asks(AdminCore.create_delegation_token)
    renew_delegation_token = _asks(AdminCore.renew_delegation_token)
    expire_delegation_token = _asks(AdminCore.expire_delegation_token)
    describe_delegation_tokens = _asks(AdminCore.describe_delegation_tokens)
