"""What a console is started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from millstream.console.schema_values import SchemaValues
from millstream.console.table_views import ShownTable

LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleOptions:
    """``client`` are settings of the client; ``hosts`` the names that browsers may call it by.

    With ``login`` each browser acts as a user of the cluster, and ``client`` needs none.
    ``is_secure`` tells that browsers come over TLS. ``source`` are options of the Spark source, for
    the positions of ``tables``.
    """

    client: Mapping[str, object] = field(repr=False)
    allows_writes: bool = False
    login: bool = False
    is_secure: bool = False
    log_directories: Sequence[Path] = ()
    schemas: SchemaValues | None = None
    tables: Sequence[ShownTable] = ()
    source: Mapping[str, str] = field(default_factory=dict, repr=False)
    hosts: Sequence[str] = LOCAL_NAMES
