"""The administrator for programs with threads: describes and changes a cluster.

Calls for several items return :class:`Outcomes`: a mapping from each item to its own value or
error, so that one that fails does not hide the others. ``get()`` of an outcome, or ``get_all()`` of
all of them, raises instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Coroutine, Mapping
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from millstream.client.closing import Closing
from millstream.client.core.admin.core import AdminCore
from millstream.client.core.keywords import AdminKeywords
from millstream.client.core.settings import AdminSettings
from millstream.client.errors import ClosedError, ForkedError
from millstream.client.references import read_given
from millstream.client.security import open_security
from millstream.client.thread_loop import ThreadLoop, check_may_wait
from millstream.model.deferred import Deferred, spawn

T = TypeVar("T")
P = ParamSpec("P")


def _asks(
    ask: Callable[Concatenate[AdminCore, P], Coroutine[Deferred[Any], None, T]],
) -> Callable[Concatenate[Admin, P], T]:
    """Return a blocking version of a method of the core, where it is described."""

    @wraps(ask)
    def method(self: Admin, /, *args: P.args, **keywords: P.kwargs) -> T:
        check_may_wait()
        return self._loop.submit(lambda: spawn(ask(self._core, *args, **keywords))).result()

    return method


def _end(core: AdminCore) -> Deferred[None]:
    core.close()
    return Deferred.of(None)


class Admin(Closing):
    """One connection to each broker that is used; every method may be called from any thread.

    ``Admin(bootstrap_servers="…")``, or a mapping of settings under the Java client's names. A
    context manager that closes it. Calls take up to ``default.api.timeout.ms`` and raise
    ConnectionFailedError, TimedOutError, UnsupportedVersionError, ClosedError, ForkedError if the
    call as a whole fails.
    """

    def __init__(
        self, settings: Mapping[str, object] | None = None, **keywords: Unpack[AdminKeywords]
    ) -> None:
        read = read_given(AdminSettings, settings, keywords)
        self._loop = ThreadLoop(
            f"millstream-admin-{read.client_id}",
            send_bytes=read.send_buffer_bytes,
            receive_bytes=read.receive_buffer_bytes,
            security=open_security(read),
        )
        self._core = AdminCore(self._loop, read)
        self._is_closed = False
        self._loop.belongs_to(self, partial(_end, self._core))

    def close(self) -> None:
        """Close every connection; pending calls fail. No thread and no socket is left."""
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(ClosedError, ForkedError):
                self._loop.post(self._core.close)
            self._loop.close()

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
