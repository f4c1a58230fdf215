"""Unity Catalog by its REST API: the open-source server's and Databricks'.

A name maps to a table's directory, and the server lends keys for its store that end after a while.
Tables are made as external ones: of a managed table Unity Catalog makes the commits itself.
"""

from __future__ import annotations

import http.client
import json
import logging
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

from millstream.model.errors import ConfigError, MillstreamError
from millstream.spark.lakehouse.table_catalog import (
    MANAGED_FEATURES,
    Listed,
    refused,
    refused_managed,
)
from millstream.spark.lakehouse.unity_columns import unity_column
from millstream.spark.locations.location import StoreError

log = logging.getLogger(__name__)

_API: Final = "/api/2.1/unity-catalog"
_TIMEOUT_S: Final = 30.0
_PAUSES_S: Final = (0.0, 0.3, 1.0)
"""Before each attempt to reach the server."""
_MOST_BYTES: Final = 32 << 20
_PASSING: Final = frozenset({408, 425, 429})
_REFUSALS: Final = frozenset({401, 403})
_FORMAT: Final = "DELTA"


class _MissingError(MillstreamError):
    """The server has nothing of that name."""


class _ThereError(MillstreamError):
    """Something of that name is there already."""


class _RefusedError(ConfigError):
    """The server refuses to do it for this token."""


class UnityCatalog:
    """See :class:`millstream.spark.lakehouse.table_catalog.TableCatalog`.

    With ``lends=False`` no keys are asked for, because others were given.
    """

    def __init__(
        self, name: str, uri: str, token: str | None, warehouse: str | None, *, lends: bool
    ) -> None:
        self._name = name
        self._address = _address(name, uri)
        self._token = token
        self._warehouse = warehouse
        self._lends = lends

    def find(self, identifier: Sequence[str]) -> Listed | None:
        """See :class:`TableCatalog`."""
        name = self._full_name(identifier)
        try:
            found = self._ask("GET", f"/tables/{quote(name, safe='')}")
        except _MissingError:
            return None
        kind, form = found.get("table_type"), found.get("data_source_format")
        if kind == "MANAGED" or any(
            each in (found.get("properties") or {}) for each in MANAGED_FEATURES
        ):
            raise refused_managed(name)
        if kind != "EXTERNAL":
            raise refused(name, f"a {str(kind).lower().replace('_', ' ')}")
        if form != _FORMAT:
            raise refused(name, f"a table of format {form}")
        return Listed(str(found["storage_location"]), str(found.get("table_id")))

    def home(self, identifier: Sequence[str]) -> str:
        """See :class:`TableCatalog`."""
        schema, table = self._full_name(identifier).split(".")[1:]
        if self._warehouse is None:
            raise ConfigError(
                f"{self._full_name(identifier)} does not exist. To create it as an external "
                "table, set the storage option warehouse=URI; the table is then URI/"
                f"{schema}/{table}"
            )
        try:
            self._ask("GET", f"/catalogs/{quote(self._name, safe='')}")
        except _MissingError:
            raise ConfigError(
                f"Unity Catalog at {_shown(self._address)} has no catalogue {self._name}"
            ) from None
        return f"{self._warehouse.rstrip('/')}/{schema}/{table}"

    def keys(self, place: Listed) -> Mapping[str, str]:
        """See :class:`TableCatalog`: to write with them, else only to read. {} if the server has
        none: then those of the environment count.
        """
        if not self._lends or place.uri.partition("://")[0].lower() not in _LENT:
            return {}
        if place.table_id is None:
            path, body = "/temporary-path-credentials", {"url": place.uri}
            operations = ("PATH_CREATE_TABLE", "PATH_READ")
        else:
            path, body = "/temporary-table-credentials", {"table_id": place.table_id}
            operations = ("READ_WRITE", "READ")
        for operation in operations:
            try:
                return _lent(self._ask("POST", path, {**body, "operation": operation}))
            except _RefusedError:
                if operation == operations[-1]:
                    raise
            except (_MissingError, ConfigError) as error:
                log.debug("no keys for %s: %s", place.uri, error)
                break
        return {}

    def add(
        self, identifier: Sequence[str], uri: str, columns: Sequence[Mapping[str, Any]]
    ) -> None:
        """See :class:`TableCatalog`."""
        schema, table = self._full_name(identifier).split(".")[1:]
        try:
            self._ask("GET", f"/schemas/{quote(f'{self._name}.{schema}', safe='')}")
        except _MissingError:
            self._make("/schemas", name=schema, catalog_name=self._name)
        self._make(
            "/tables",
            name=table,
            catalog_name=self._name,
            schema_name=schema,
            table_type="EXTERNAL",
            data_source_format=_FORMAT,
            storage_location=f"file://{uri}" if uri.startswith("/") else uri,
            columns=[unity_column(each, number) for number, each in enumerate(columns)],
        )

    def _make(self, path: str, **body: object) -> None:
        try:
            self._ask("POST", path, body)
        except _ThereError:  # another load was first
            log.debug("%s: %s is there", path, body["name"])

    def _full_name(self, identifier: Sequence[str]) -> str:
        if len(identifier) != 2:
            raise ConfigError(
                f"{'.'.join((self._name, *identifier))}: a table of Unity Catalog is named "
                "CATALOG.SCHEMA.TABLE"
            )
        return ".".join((self._name, *identifier))

    def _ask(self, method: str, path: str, body: object = None) -> Mapping[str, Any]:
        away: StoreError | None = None
        for pause in _PAUSES_S:
            time.sleep(pause)
            try:
                return self._ask_once(method, path, body)
            except StoreError as error:
                away = error
        assert away is not None
        raise away

    def _ask_once(self, method: str, path: str, body: object) -> Mapping[str, Any]:
        request = urllib.request.Request(
            self._address + path,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Accept": "application/json", "Content-Type": "application/json"},
            method=method,
        )
        if self._token:
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        where = f"Unity Catalog at {_shown(self._address)}"
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                return _value(answer.read(_MOST_BYTES), where)
        except urllib.error.HTTPError as error:
            with error:
                raise self._failure(error, error.read(_MOST_BYTES), where) from None
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise ConfigError(
                    f"{where} has a certificate that is not trusted "
                    f"({error.reason.verify_message}): SSL_CERT_FILE names those that are"
                ) from None
            raise StoreError(f"{where} cannot be reached: {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise StoreError(f"{where} cannot be reached: {error}") from None

    def _failure(self, error: urllib.error.HTTPError, body: bytes, where: str) -> MillstreamError:
        try:
            value: Any = json.loads(body)
            code, said = str(value["error_code"]), str(value.get("message", ""))[:300]
        except (ValueError, KeyError, TypeError, AttributeError):
            code, said = "", ""
        if error.code >= 500 or error.code in _PASSING:
            return StoreError(f"{where} answers {error.code} {said or error.reason}")
        if error.code in _REFUSALS:
            return _RefusedError(
                f"{where} refuses us ({error.code}{f': {said}' if said else ''}): check the token "
                f"of catalogue {self._name} (storage option token) and what it may do"
            )
        if not code:
            return ConfigError(f"what answers at {_shown(self._address)} is not Unity Catalog")
        if error.code == 404:
            return _MissingError(said)
        if code.endswith("ALREADY_EXISTS"):
            return _ThereError(said)
        return ConfigError(f"{where}: {said or code}")


_LENT: Final = ("s3", "s3a", "gs", "abfss", "abfs")
"""Schemes of stores for which the API has keys."""


def _lent(found: Mapping[str, Any]) -> dict[str, str]:
    """Return temporary credentials as storage options."""
    amazon = found.get("aws_temp_credentials") or {}
    azure = found.get("azure_user_delegation_sas") or {}
    google = found.get("gcp_oauth_token") or {}
    options = {
        "AWS_ACCESS_KEY_ID": amazon.get("access_key_id"),
        "AWS_SECRET_ACCESS_KEY": amazon.get("secret_access_key"),
        "AWS_SESSION_TOKEN": amazon.get("session_token"),
        "AZURE_STORAGE_SAS_TOKEN": azure.get("sas_token"),
        "GOOGLE_BEARER_TOKEN": google.get("oauth_token"),
    }
    return {name: str(text) for name, text in options.items() if text}


def _address(name: str, uri: str) -> str:
    """Return the address of the API; ConfigError for what is no address."""
    text = uri.rstrip("/")
    if "://" not in text:
        text = f"https://{text}"
    split = urlsplit(text)
    if split.scheme not in ("http", "https") or not split.hostname:
        raise ConfigError(f"catalogue {name}: uri {uri!r} is no address of Unity Catalog")
    return text if re.search(r"/api/\d", split.path) else text + _API


def _shown(address: str) -> str:
    """Return an address without what may be secret in it."""
    split = urlsplit(address)
    return f"{split.scheme}://{split.netloc.rpartition('@')[2]}"


def _value(body: bytes, where: str) -> Mapping[str, Any]:
    try:
        value: Any = json.loads(body)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ConfigError(f"what answers as {where} is not Unity Catalog")
    return value
