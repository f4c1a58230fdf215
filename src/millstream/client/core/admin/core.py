"""All operations of the administrator, in one object."""

from __future__ import annotations

from millstream.client.core.admin.access import Access
from millstream.client.core.admin.cluster import Cluster
from millstream.client.core.admin.configs import Configs
from millstream.client.core.admin.offsets import Offsets
from millstream.client.core.admin.replicas import Replicas
from millstream.client.core.admin.share_groups import ShareGroups
from millstream.client.core.admin.tokens import DelegationTokens
from millstream.client.core.admin.topics import Topics
from millstream.client.core.admin.transactions import Transactions


class AdminCore(
    Topics, Configs, Cluster, ShareGroups, Offsets, Replicas, Transactions, Access, DelegationTokens
):
    """The admin client on a client's loop: what the blocking and the asyncio API share."""
