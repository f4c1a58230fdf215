"""Locations in an object store, through `obstore`: S3, Google Cloud Storage, Azure Data Lake.

Names and meanings of options are those of `deltalake` and of the environment: ``AWS_REGION``,
``AWS_ENDPOINT_URL``, ``AWS_ACCESS_KEY_ID``, ``GOOGLE_SERVICE_ACCOUNT``,
``AZURE_STORAGE_ACCOUNT_NAME`` and so on. Where neither names a key, S3 takes the profile of
``~/.aws`` (``AWS_PROFILE``) if `boto3` is installed, and then the role of the machine.
"""

from __future__ import annotations

import io
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from millstream.config.quantities import parse_duration_ms
from millstream.model.errors import ConfigError
from millstream.spark.locations.location import (
    FoundFile,
    Location,
    StoreError,
    StoreRefusedError,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import ObjectStore

_CLIENT_OPTIONS: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
"""Options that tell the client of a store how to connect, whatever the store."""

_UNSAFE: Final[Mapping[str, str]] = {
    "conditional_put": "disabled",
    "s3_allow_unsafe_rename": "true",
}
_OF_DELTALAKE: Final = frozenset(
    {
        "backoff_config.base",
        "backoff_config.init_backoff",
        "backoff_config.max_backoff",
        "s3_allow_unsafe_rename",
        "s3_locking_provider",
    }
)
"""Options that are for that library alone."""

_UPLOAD_BYTES: Final = 8 << 20
_READ_AHEAD: Final = 1 << 20
_URI: Final = re.compile(r"([a-z0-9]+)://([^/]+)(?:/(.*))?")
T = TypeVar("T")

_from_url: Callable[..., Any] = from_url
"""Without its overloads, one for each store."""


def parse_store_path(text: str, storage_options: Mapping[str, str]) -> StorePath:
    """Read a URI; ConfigError says what is wrong."""
    scheme, slashes, rest = text.partition("://")
    found = _URI.fullmatch(f"{scheme.lower()}{slashes}{rest}".rstrip("/"))
    if found is None:
        raise ConfigError(f"{text}: a place in a store is named SCHEME://BUCKET/PATH")
    key = found[3] or ""
    if any(part in ("", ".", "..") for part in key.split("/")):
        raise ConfigError(f"{text}: a table in a store needs a path, without empty parts, . and ..")
    scheme = "s3" if found[1] == "s3a" else "gs" if found[1] == "gcs" else found[1]
    for name, text_of in storage_options.items():
        bare = name.lower().removeprefix("aws_")
        if _UNSAFE.get(bare) == text_of.lower():
            raise ConfigError(
                f"storage option {name}={text_of}: commits are made by conditional puts; without "
                "them two loads could both commit, and no record would be exactly once"
            )
    return StorePath(f"{scheme}://{found[2]}", key, tuple(sorted(storage_options.items())))


@dataclass(frozen=True, slots=True)
class StorePath:
    """One key of a store, or the prefix of many."""

    root: str
    """The bucket or container: ``s3://bucket``."""
    key: str
    """The path in it, without a slash at either end."""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    @property
    def name(self) -> str:
        """See :class:`Location`."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """See :class:`Location`."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def parent(self) -> StorePath:
        """See :class:`Location`; that of a bucket is the bucket."""
        return replace(self, key=self.key.rpartition("/")[0])

    @property
    def parents(self) -> Sequence[StorePath]:
        """See :class:`Location`."""
        parts = self.key.split("/")
        return [replace(self, key="/".join(parts[:n])) for n in range(len(parts) - 1, -1, -1)]

    @property
    def is_local(self) -> bool:
        """False."""
        return False

    @property
    def storage_options(self) -> Mapping[str, str]:
        """See :class:`Location`."""
        return dict(self.options)

    def __truediv__(self, name: str) -> StorePath:
        """Return what lies below, or what a URI names."""
        if name.startswith(f"{self.root}/"):
            return replace(self, key=name.removeprefix(f"{self.root}/"))
        return replace(self, key=f"{self.key}/{name}" if self.key else name)

    def with_name(self, name: str) -> StorePath:
        """See :class:`Location`."""
        return self.parent / name

    def filled(self, field: str, text: str) -> StorePath:
        """See :class:`Location`."""
        return replace(self, key=self.key.replace(field, text))

    def uri(self) -> str:
        """Return the store's URI."""
        return str(self)

    def is_file(self) -> bool:
        """See :class:`Location`."""
        try:
            self.size_bytes()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """See :class:`Location`."""
        found = self._do(lambda: next(iter(obstore.list(self._store, f"{self.key}/")), None))
        return bool(found)

    def entries(self) -> list[str]:
        """See :class:`Location`."""
        found = self._do(lambda: obstore.list_with_delimiter(self._store, f"{self.key}/"))
        paths = [each["path"] for each in found["objects"]] + list(found["common_prefixes"])
        return [path.rstrip("/").rpartition("/")[2] for path in paths]

    def found_files(self) -> Iterator[FoundFile]:
        """See :class:`Location`."""
        start = len(self.key) + 1
        pages = iter(obstore.list(self._store, f"{self.key}/"))
        while (page := self._do(lambda: next(pages, None))) is not None:
            for each in page:
                modified_s = each["last_modified"].timestamp()
                yield FoundFile(each["path"][start:], each["size"], modified_s)

    def size_bytes(self) -> int:
        """See :class:`Location`."""
        return int(self._do(lambda: obstore.head(self._store, self.key))["size"])

    def read_bytes(self) -> bytes:
        """See :class:`Location`."""
        return bytes(self._do(lambda: obstore.get(self._store, self.key).bytes()))

    def replace_with(self, data: bytes) -> None:
        """See :class:`Location`."""
        self._do(lambda: obstore.put(self._store, self.key, data))

    def create(self, data: bytes) -> None:
        """See :class:`Location`. A conditional put (``If-None-Match: *``)."""
        # In one piece: the parts of a larger upload would be put together without the condition.
        self._do(
            lambda: obstore.put(self._store, self.key, data, mode="create", use_multipart=False)
        )

    def rename_to(self, target: Location) -> None:
        """See :class:`Location`."""
        assert isinstance(target, StorePath)
        assert target.root == self.root
        self._do(lambda: obstore.copy(self._store, self.key, target.key))
        self.unlink(missing_ok=True)

    def unlink(self, missing_ok: bool = False) -> None:
        """See :class:`Location`."""
        try:
            self._do(lambda: obstore.delete(self._store, self.key))
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove_all(self) -> None:
        """See :class:`Location`."""
        for each in list(self.found_files()):
            (self / each.path).unlink(missing_ok=True)

    def renew(self) -> None:
        """See :class:`Location`: nothing, a file that is moved is a new one."""

    def open_input(self) -> pa.NativeFile:
        """See :class:`Location`."""
        import pyarrow as pa

        return pa.PythonFile(_Reader(self), mode="r")

    def open_output(self) -> pa.NativeFile:
        """See :class:`Location`."""
        import pyarrow as pa

        return pa.PythonFile(_Writer(self), mode="w")

    def settle(self) -> None:
        """See :class:`Location`: what is closed is durable."""

    def make_directory(self) -> None:
        """See :class:`Location`."""

    def check_commits(self) -> None:
        """See :class:`Location`. Some stores take the condition of a put and do not keep it: it is
        tried.
        """
        if (self.root, self.options) not in _checked:
            _check_conditional_put(self / f"probe-{secrets.token_hex(8)}")
            _checked.add((self.root, self.options))

    def write_in_parts(self) -> Any:
        """Return a file object that uploads what is written to it, whole when it is closed."""
        return self._do(
            lambda: obstore.open_writer(self._store, self.key, buffer_size=_UPLOAD_BYTES)
        )

    def read_range(self, start: int, length: int) -> bytes:
        """Return a part of a file."""
        part = obstore.get_range
        return bytes(self._do(lambda: part(self._store, self.key, start=start, length=length)))

    @property
    def _store(self) -> ObjectStore:
        return _store(os.getpid(), self.root, self.options)

    def _do(self, act: Callable[[], T]) -> T:
        """Make a request; its errors become those of :class:`Location`."""
        try:
            return act()
        except (AlreadyExistsError, PreconditionError):
            raise FileExistsError(f"{self} is there") from None
        except FileNotFoundError:
            raise FileNotFoundError(f"{self} is not there") from None
        except (PermissionDeniedError, UnauthenticatedError) as error:
            raise StoreRefusedError(f"{self}: the store refuses it: {_reason(error)}") from error
        except (BaseError, OSError) as error:
            raise StoreError(f"{self}: {_reason(error)}") from error


@lru_cache(maxsize=64)
def _store(process: int, root: str, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """Return the client of a bucket; each process has its own."""
    config: dict[str, Any] = {}
    client: dict[str, Any] = {}
    retries: dict[str, Any] = {}
    for name, text in options:
        bare = re.sub(r"^(aws|azure|google)_", "", name.lower())
        if bare in _CLIENT_OPTIONS:
            is_switch = text.lower() in ("true", "false")
            client[bare] = text.lower() == "true" if is_switch else text
        elif bare == "max_retries":
            retries[bare] = int(text)
        elif bare == "retry_timeout":
            retries[bare] = timedelta(milliseconds=parse_duration_ms(text))
        elif bare not in _OF_DELTALAKE:
            config[name.lower()] = text
    if root.startswith("s3://") and _env_allows_http():
        client.setdefault("allow_http", True)
    more: dict[str, Any] = {"retry_config": retries} if retries else {}
    if root.startswith("s3://") and (provider := _profile(config)) is not None:
        more["credential_provider"] = provider
    try:
        made: ObjectStore = _from_url(root, config=config, client_options=client, **more)
    except (BaseError, ValueError) as error:
        raise ConfigError(f"{root}: storage options: {_reason(error)}") from error
    return made


def _env_allows_http() -> bool:
    return os.environ.get("AWS_ALLOW_HTTP", "").lower() == "true"


def _profile(config: Mapping[str, str]) -> Any:
    """Return the credentials of a profile of ``~/.aws``; None if keys are given, or there is no
    profile.
    """
    given = {each.removeprefix("aws_") for each in config}
    if given & {"access_key_id", "skip_signature"} or "AWS_ACCESS_KEY_ID" in os.environ:
        return None
    files = ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE")
    paths = [os.environ.get(name) for name in files]
    paths += [str(Path("~/.aws/credentials").expanduser()), str(Path("~/.aws/config").expanduser())]
    if "AWS_PROFILE" not in os.environ and not any(each and Path(each).is_file() for each in paths):
        return None
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        if "AWS_PROFILE" in os.environ:
            raise ConfigError("AWS_PROFILE needs boto3: pip install boto3") from None
        return None
    return Boto3CredentialProvider()


_checked: Final[set[tuple[str, tuple[tuple[str, str], ...]]]] = set()
"""Buckets that keep the condition of a put."""


def _check_conditional_put(probe: StorePath) -> None:
    try:
        probe.create(b"1")
        try:
            probe.create(b"2")
        except FileExistsError:
            return
        finally:
            probe.unlink(missing_ok=True)
    except StoreError as error:
        if "NotImplemented" not in str(error) and "501" not in str(error):
            raise
    raise ConfigError(
        f"{probe.root}: the store does not keep the condition of a put (If-None-Match), so two "
        "loads could both commit: records cannot be exactly once there. Use a store that keeps "
        "it, or an Iceberg table in a catalogue"
    )


def _reason(error: BaseException) -> str:
    """Return the first line of an error: behind it the client's own structures are printed."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


class _Reader(io.RawIOBase):
    """A file of a store, for pyarrow: what is read at the end of a file is kept, because a Parquet
    footer is asked for in pieces.
    """

    def __init__(self, location: StorePath) -> None:
        self._location = location
        self._size = location.size_bytes()
        self._position = 0
        self._start, self._held = 0, b""

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def size(self) -> int:
        """Return the size in bytes."""
        return self._size

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return the bytes at the position, and go behind them."""
        rest = max(self._size - self._position, 0)
        count = rest if size is None or size < 0 else min(size, rest)
        if not count:
            return b""
        begin = self._position - self._start
        if begin < 0 or begin + count > len(self._held):
            self._start = self._position
            length = min(max(count, _READ_AHEAD), rest)
            self._held = self._location.read_range(self._start, length)
            begin = 0
        self._position += count
        return self._held[begin : begin + count]

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer; return the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Writer(io.RawIOBase):
    """A new file of a store. It is there once it is closed, and never if the process dies."""

    def __init__(self, location: StorePath) -> None:
        self._location = location
        self._upload = location.write_in_parts()
        self._size = 0

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size

    def write(self, data: Any) -> int:
        """Upload bytes, or keep them for the next part."""
        size = memoryview(data).nbytes
        self._location._do(lambda: self._upload.write(data))
        self._size += size
        return size

    def flush(self) -> None:
        """Do nothing: parts are uploaded as they are full."""

    def close(self) -> None:
        """Finish the upload."""
        if not self.closed:
            self._location._do(self._upload.close)
            super().close()
