"""The administrator for programs with threads: ask a cluster to change, and what it holds.

Calls for several items return :class:`Outcomes`: a mapping from each item to its own value or
error, so that one that fails does not hide the others. ``get()`` of an outcome, or ``get_all()`` of
all of them, raises instead.
"""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from millstream.client.core.admin.access import (
    Acl,
    AclFilter,
    QuotaEntity,
    ScramCredential,
    ScramMechanism,
)
from millstream.client.core.admin.cluster import ClusterDescription, Features, Quorum, UpgradeType
from millstream.client.core.admin.configs import Change, Resource, ResourceType, Setting
from millstream.client.core.admin.core import AdminCore
from millstream.client.core.admin.groups import Committed, GroupDescription, ListedGroup
from millstream.client.core.admin.offsets import FoundOffset
from millstream.client.core.admin.outcome import Outcomes
from millstream.client.core.admin.producers import (
    ActiveProducer,
    ListedTransaction,
    TransactionDescription,
)
from millstream.client.core.admin.replicas import ElectionType, LogDirectory, Reassignment
from millstream.client.core.admin.topics import CreatedTopic, NewTopic
from millstream.client.core.settings import AdminSettings, read_settings
from millstream.client.errors import ClosedError, ForkedError, WaitInCallbackError
from millstream.client.metadata import Topic
from millstream.client.thread_loop import ThreadLoop, check_may_wait
from millstream.model.deferred import Deferred, spawn
from millstream.model.offsets import Offset
from millstream.model.topic import TopicId, TopicPartition

T = TypeVar("T")


class Admin:
    """One connection to each broker that is asked; every method may be called from any thread.

    ``Admin(bootstrap_servers="…")``, or a mapping of settings under the Java client's names. A
    context manager that closes it. Calls take up to ``default.api.timeout.ms`` and raise
    ConnectionFailedError, TimedOutError, UnsupportedVersionError, ClosedError, ForkedError for what
    concerns them as a whole.
    """

    def __init__(self, settings: Mapping[str, object] | None = None, **keywords: object) -> None:
        read = read_settings(AdminSettings, settings, keywords)
        self._loop = ThreadLoop(
            f"millstream-admin-{read.client_id}",
            send_bytes=read.send_buffer_bytes,
            receive_bytes=read.receive_buffer_bytes,
        )
        self._core = AdminCore(self._loop, read)
        self._is_closed = False

    def _run(self, asked: Coroutine[Deferred[Any], None, T]) -> T:
        try:
            check_may_wait()
            future = self._loop.submit(lambda: spawn(asked))
        except (ClosedError, ForkedError, WaitInCallbackError):
            asked.close()
            raise
        return future.result()

    def close(self) -> None:
        """Close every connection; calls under way fail. No thread and no socket is left."""
        if not self._is_closed:
            self._is_closed = True
            with contextlib.suppress(ClosedError):
                self._loop.post(self._core.close)
            self._loop.close()

    def __enter__(self) -> Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --- topics ----------------------------------------------------------------------------------

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> Outcomes[str, CreatedTopic]:
        """Create topics, or only say what would happen."""
        return self._run(self._core.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, names: Iterable[str]) -> Outcomes[str, None]:
        """Delete topics by name."""
        return self._run(self._core.delete_topics(names))

    def delete_topics_by_id(self, ids: Iterable[TopicId]) -> Outcomes[TopicId, None]:
        """Delete topics by id; UnsupportedVersionError where brokers know names only."""
        return self._run(self._core.delete_topics_by_id(ids))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> Outcomes[str, None]:
        """Raise the number of partitions of each topic to the count given.

        ``assignments`` names the brokers of each new partition of a topic.
        """
        return self._run(
            self._core.create_partitions(
                counts, assignments=assignments, validate_only=validate_only
            )
        )

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of all topics, in alphabetical order."""
        return self._run(self._core.list_topics(include_internal=include_internal))

    def describe_topics(self, names: Iterable[str]) -> Outcomes[str, Topic]:
        """Return id, partitions, leaders, replicas and ISR of topics."""
        return self._run(self._core.describe_topics(names))

    def delete_records(
        self, before: Mapping[TopicPartition, Offset]
    ) -> Outcomes[TopicPartition, Offset]:
        """Move each partition's log start to an offset, or to ``TO_HIGH_WATERMARK``.

        Returns where the logs start now.
        """
        return self._run(self._core.delete_records(before))

    # --- configs ---------------------------------------------------------------------------------

    def describe_configs(
        self,
        resources: Mapping[Resource, Sequence[str] | None] | Iterable[Resource],
        *,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> Outcomes[Resource, list[Setting]]:
        """Return settings in alphabetical order; a mapping says which ones, None is all."""
        return self._run(
            self._core.describe_configs(
                resources,
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
        )

    def incremental_alter_configs(
        self, changes: Mapping[Resource, Iterable[Change]], *, validate_only: bool = False
    ) -> Outcomes[Resource, None]:
        """Change settings of resources and leave the others as they are; all or none of each."""
        return self._run(self._core.incremental_alter_configs(changes, validate_only=validate_only))

    def alter_configs(
        self, configs: Mapping[Resource, Mapping[str, str | None]], *, validate_only: bool = False
    ) -> Outcomes[Resource, None]:
        """Replace all settings of resources (AlterConfigs): what is not named becomes default."""
        return self._run(self._core.alter_configs(configs, validate_only=validate_only))

    def list_config_resources(self, types: Iterable[ResourceType] = ()) -> list[Resource]:
        """Return what has settings of its own, of some types or of all (KIP-1142)."""
        return self._run(self._core.list_config_resources(types))

    # --- cluster ---------------------------------------------------------------------------------

    def describe_cluster(self, *, include_fenced: bool = False) -> ClusterDescription:
        """Return the cluster's id, its controller and its brokers."""
        return self._run(self._core.describe_cluster(include_fenced=include_fenced))

    def describe_features(self, broker_id: int | None = None) -> Features:
        """Return the features and the APIs of a broker, or of any."""
        return self._run(self._core.describe_features(broker_id))

    def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
    ) -> Outcomes[str, None]:
        """Change finalized features to these levels; 0 takes one back."""
        return self._run(
            self._core.update_features(
                levels, upgrade_type=upgrade_type, validate_only=validate_only
            )
        )

    def describe_quorum(self) -> Quorum:
        """Return who keeps the metadata of a KRaft cluster."""
        return self._run(self._core.describe_quorum())

    def unregister_broker(self, broker_id: int) -> None:
        """Make the cluster forget a broker that is gone."""
        return self._run(self._core.unregister_broker(broker_id))

    # --- groups ----------------------------------------------------------------------------------

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> list[ListedGroup]:
        """Return the groups of all brokers, by name; filters as the brokers know them."""
        return self._run(self._core.list_groups(states=states, types=types))

    def describe_groups(self, groups: Iterable[str]) -> Outcomes[str, GroupDescription]:
        """Return state and members of groups; GROUP_ID_NOT_FOUND for one that does not exist."""
        return self._run(self._core.describe_groups(groups))

    def delete_groups(self, groups: Iterable[str]) -> Outcomes[str, None]:
        """Delete groups without members."""
        return self._run(self._core.delete_groups(groups))

    def remove_members(
        self, group: str, instance_ids: Iterable[str], *, reason: str | None = None
    ) -> Outcomes[str, None]:
        """Take static members out of a group by their ``group.instance.id`` (KIP-345)."""
        return self._run(self._core.remove_members(group, instance_ids, reason=reason))

    def list_group_offsets(
        self, groups: Iterable[str]
    ) -> Outcomes[str, dict[TopicPartition, Committed]]:
        """Return every committed offset of groups; nothing for one that does not exist."""
        return self._run(self._core.list_group_offsets(groups))

    def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, Offset | Committed]
    ) -> Outcomes[TopicPartition, None]:
        """Set offsets of a group without members; UNKNOWN_MEMBER_ID when it has some."""
        return self._run(self._core.alter_group_offsets(group, offsets))

    def delete_group_offsets(
        self, group: str, places: Iterable[TopicPartition]
    ) -> Outcomes[TopicPartition, None]:
        """Forget the group's offsets of partitions."""
        return self._run(self._core.delete_group_offsets(group, places))

    # --- offsets ---------------------------------------------------------------------------------

    def list_offsets(
        self, timestamps: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> Outcomes[TopicPartition, FoundOffset | None]:
        """Return for each partition the first offset at or after a timestamp, None for none.

        Instead of a timestamp (ms) may stand EARLIEST, LATEST or MAX_TIMESTAMP.
        """
        return self._run(self._core.list_offsets(timestamps, read_committed=read_committed))

    # --- replicas --------------------------------------------------------------------------------

    def describe_log_dirs(
        self,
        brokers: Iterable[int] | None = None,
        *,
        places: Iterable[TopicPartition] | None = None,
    ) -> Outcomes[int, list[LogDirectory]]:
        """Return the log directories of brokers (None: all) with all replicas, or with some."""
        return self._run(self._core.describe_log_dirs(brokers, places=places))

    def alter_replica_log_dirs(
        self, moves: Mapping[tuple[TopicPartition, int], str]
    ) -> Outcomes[tuple[TopicPartition, int], None]:
        """Move replicas, given as (partition, broker id), to other directories of their broker."""
        return self._run(self._core.alter_replica_log_dirs(moves))

    def elect_leaders(
        self,
        places: Iterable[TopicPartition] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
    ) -> Outcomes[TopicPartition, None]:
        """Elect leaders of partitions, or with None of all that need it (KIP-460)."""
        return self._run(self._core.elect_leaders(places, election_type=election_type))

    def alter_partition_reassignments(
        self, assignments: Mapping[TopicPartition, Sequence[int] | None]
    ) -> Outcomes[TopicPartition, None]:
        """Move partitions to these brokers, the preferred leader first; None cancels a move."""
        return self._run(self._core.alter_partition_reassignments(assignments))

    def list_partition_reassignments(
        self, places: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments under way, of all partitions or of some."""
        return self._run(self._core.list_partition_reassignments(places))

    # --- producers -------------------------------------------------------------------------------

    def describe_producers(
        self, places: Iterable[TopicPartition]
    ) -> Outcomes[TopicPartition, list[ActiveProducer]]:
        """Return who produces to partitions, idempotently or in transactions (KIP-664)."""
        return self._run(self._core.describe_producers(places))

    def list_transactions(
        self, *, states: Sequence[str] = (), producer_ids: Sequence[int] = ()
    ) -> list[ListedTransaction]:
        """Return the transactions of all coordinators, by id."""
        return self._run(self._core.list_transactions(states=states, producer_ids=producer_ids))

    def describe_transactions(
        self, transactional_ids: Iterable[str]
    ) -> Outcomes[str, TransactionDescription]:
        """Return the state of transactions."""
        return self._run(self._core.describe_transactions(transactional_ids))

    # --- access ----------------------------------------------------------------------------------

    def describe_acls(self, matching: AclFilter) -> list[Acl]:
        """Return the rules that a filter matches."""
        return self._run(self._core.describe_acls(matching))

    def create_acls(self, acls: Iterable[Acl]) -> Outcomes[Acl, None]:
        """Add rules."""
        return self._run(self._core.create_acls(acls))

    def delete_acls(self, filters: Iterable[AclFilter]) -> Outcomes[AclFilter, list[Acl]]:
        """Delete the rules that filters match; return those that are gone."""
        return self._run(self._core.delete_acls(filters))

    def describe_client_quotas(
        self, entities: Mapping[str, str | None] | None = None, *, strict: bool = False
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Return quotas: of all entities, or of those with these parts.

        A name of ``"*"`` is any name and the default, None the default alone. ``strict`` leaves
        out entities with other parts beside.
        """
        return self._run(self._core.describe_client_quotas(entities, strict=strict))

    def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
    ) -> Outcomes[QuotaEntity, None]:
        """Set quotas of entities, as ``{"producer_byte_rate": 1e6}``; None takes one away."""
        return self._run(self._core.alter_client_quotas(changes, validate_only=validate_only))

    def describe_user_scram_credentials(
        self, users: Sequence[str] | None = None
    ) -> Outcomes[str, list[ScramCredential]]:
        """Return the mechanisms of users, or of all that have some."""
        return self._run(self._core.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(
        self,
        passwords: Mapping[str, str | None],
        *,
        mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_512,
        iterations: int = 8192,
    ) -> Outcomes[str, None]:
        """Set users' passwords for a mechanism; None takes the credential away.

        The password itself does not leave this process: brokers get salt and salted password.
        """
        return self._run(
            self._core.alter_user_scram_credentials(
                passwords, mechanism=mechanism, iterations=iterations
            )
        )
