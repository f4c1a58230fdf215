"""Adds a user to a store that no broker uses at the moment: how a broker, or a cluster, whose
listeners all ask for a user gets its first one (Kafka: ``kafka-storage format --add-scram``).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.cli.failures import CommandFailedError
from millstream.controller.entity_nodes import USERS, data_of, path_of, read_value
from millstream.model.entities import EntityKind, EntityValue
from millstream.model.entity_keys import name_key
from millstream.model.errors import ConfigError, StorageError
from millstream.model.metadata_store import Create, Operation, SetData
from millstream.security.sasl.scram_credential import SCRAM_MECHANISMS, make_credential
from millstream.security.scram_changes import set_credential

if TYPE_CHECKING:
    from millstream.zookeeper.security import ZooKeeperSecurity

_SALT_BYTES: Final = 16
_CONNECT_SECONDS: Final = 10.0


def add_to_directory(
    directory: Path, name: str, password: str, mechanisms: Sequence[str], iterations: int
) -> None:
    """Add to the store in a broker's first log directory, which is made where there is none.

    CommandFailedError while a broker uses it.
    """
    from millstream.sqlite.database import Database
    from millstream.storage.log_directory import LOCK_FILE
    from millstream.storage.record_lock import LocalLock

    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        lock = LocalLock(f"{directory}/{LOCK_FILE}")
    except BlockingIOError:
        raise CommandFailedError(
            f"a broker is using {directory}: name it with --bootstrap-server"
        ) from None
    try:
        database = Database(directory)
        try:
            key = name_key(name)
            path = path_of(EntityKind.USER, key)
            present = database.present([*_above(USERS), path])
            before = present.get(path)
            value = read_value(EntityKind.USER, path, before.data) if before is not None else {}
            data = data_of(EntityKind.USER, _with_password(value, password, mechanisms, iterations))
            operations: list[Operation] = [
                Create(each, b"") for each in _above(USERS) if each not in present
            ]
            operations.append(Create(path, data) if before is None else SetData(path, data))
            database.multi(operations)
        finally:
            database.close()
    except StorageError as error:
        raise CommandFailedError(str(error)) from error
    finally:
        lock.release()


def _security_of_file(path: Path, digest: str | None, connect: str) -> ZooKeeperSecurity:
    """Return what the settings `zookeeper.ssl.*` of a file come to; other settings, such as those
    of a ``server.properties``, are left out. ConfigError names the one that is wrong.
    """
    from millstream.config.broker import BrokerConfig
    from millstream.config.properties import parse_properties
    from millstream.config.protection import refuse_unprotected
    from millstream.config.references import resolve
    from millstream.server.zookeeper_backend import zookeeper_security

    try:
        texts = parse_properties(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailedError(
            f"{path}: {getattr(error, 'strerror', None) or 'it is not UTF-8'}"
        ) from None
    settings = {name: text for name, text in texts.items() if name.startswith("zookeeper.ssl.")}
    for name in ("zookeeper.set.acl", "zookeeper.auth.digest"):
        if name in texts:
            settings[name] = texts[name]
    settings |= {"zookeeper.connect": connect, "zookeeper.ssl.client.enable": "true"}
    if digest is not None:
        settings["zookeeper.auth.digest"] = digest
    refuse_unprotected(settings)
    return zookeeper_security(BrokerConfig(resolve(settings, os.environ)))


def add_to_zookeeper(
    connect: str,
    name: str,
    password: str,
    mechanisms: Sequence[str],
    iterations: int,
    *,
    digest: str | None = None,
    tls_file: Path | None = None,
) -> None:
    """Add to the ensemble of a cluster. CommandFailedError while the cluster has a controller,
    which would not notice.

    With ``digest``, the brokers' `zookeeper.auth.digest`, what is made has the rules that brokers
    with `zookeeper.set.acl` give their nodes; without it anybody may read and change it.
    ``tls_file`` has the brokers' `zookeeper.ssl.*` (and `zookeeper.set.acl`), as
    ``--zk-tls-config-file`` of Kafka's tools.
    """
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    from millstream.zookeeper.security import ZooKeeperSecurity

    security = ZooKeeperSecurity(digest=digest, sets_acl=digest is not None)
    if tls_file is not None:
        found = _security_of_file(tls_file, digest, connect)
        security = replace(found, sets_acl=found.sets_acl or digest is not None)
    silent = logging.Logger("kazoo")  # what goes wrong is raised, and told in one sentence
    silent.addHandler(logging.NullHandler())
    client = KazooClient(
        hosts=connect, timeout=_CONNECT_SECONDS, logger=silent, **security.client_options()
    )
    try:
        client.start(timeout=_CONNECT_SECONDS)
        if client.exists("/controller"):
            raise CommandFailedError(
                "the cluster is running: name a broker with --bootstrap-server"
            )
        path = path_of(EntityKind.USER, name_key(name))
        for each in _above(USERS):
            client.ensure_path(each, acl=security.acl_of(each))
        value: EntityValue = {}
        is_there = client.exists(path) is not None
        if is_there:
            value = read_value(EntityKind.USER, path, client.get(path)[0])
        data = data_of(EntityKind.USER, _with_password(value, password, mechanisms, iterations))
        if is_there:
            client.set(path, data)
        else:
            client.create(path, data, acl=security.acl_of(path))
    except (KazooException, KazooTimeoutError, ConfigError) as error:
        raise CommandFailedError(
            f"ZooKeeper at {connect}: {error or type(error).__name__}"
        ) from error
    finally:
        client.stop()
        client.close()


def _with_password(
    value: EntityValue, password: str, mechanisms: Sequence[str], iterations: int
) -> EntityValue:
    for each in mechanisms:
        mechanism = SCRAM_MECHANISMS[each]
        salt = os.urandom(_SALT_BYTES)
        credential = make_credential(mechanism, password, salt=salt, iterations=iterations)
        value = set_credential(value, mechanism, credential)
    return value


def _above(path: str) -> list[str]:
    """Return a path and those above it, the topmost first."""
    parts = path.strip("/").split("/")
    return ["/" + "/".join(parts[: count + 1]) for count in range(len(parts))]
