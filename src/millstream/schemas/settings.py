"""The settings of a schema registry, under Confluent's names. Pure.

| name | what it is |
| --- | --- |
| ``schema.registry.url`` | addresses with commas between them, or a file (`file`) |
| ``schema.registry.basic.auth.user.info`` | ``USER:PASSWORD``; or in the address |
| ``schema.registry.bearer.auth.token`` | a token |
| ``schema.registry.ssl.…`` | as a client's ``ssl.…``: trust store, key store, host names |
| ``schema.registry.request.timeout.ms`` | for one whole answer; 10,000 |

``basic.auth.…`` and ``bearer.auth.…`` are taken without the prefix too, as Java's are. Secrets are
in no text of the settings and in no error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from millstream.model.errors import ConfigError

PREFIX: Final = "schema.registry."
URL: Final = "schema.registry.url"
DEFAULT_TIMEOUT_MS: Final = 10_000
_SSL: Final = "ssl."
_BASIC: Final = "basic.auth.user.info"
_BASIC_SOURCE: Final = "basic.auth.credentials.source"
_BEARER: Final = "bearer.auth.token"
_BEARER_SOURCE: Final = "bearer.auth.credentials.source"
_TIMEOUT: Final = "request.timeout.ms"
_SOURCES: Final[Mapping[str, tuple[str, ...]]] = {
    _BASIC_SOURCE: ("URL", "USER_INFO"),
    _BEARER_SOURCE: ("STATIC_TOKEN",),
}
_WITHOUT_PREFIX: Final = (_BASIC, _BASIC_SOURCE, _BEARER, _BEARER_SOURCE)
NAMES: Final = frozenset(
    {URL, PREFIX + _TIMEOUT, *_WITHOUT_PREFIX, *(PREFIX + each for each in _WITHOUT_PREFIX)}
)
"""All names but those of TLS, which are ``schema.registry.`` and a client's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrySettings:
    """Where a registry is, and who asks it. Goes to executors as it is."""

    addresses: tuple[str, ...]
    """``http://…`` or ``https://…``, without credentials, or the path of a file."""
    user_info: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    tls: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """Settings ``ssl.…`` of a client."""
    timeout_ms: int = DEFAULT_TIMEOUT_MS

    @property
    def is_file(self) -> bool:
        """True where a file maps ids to schemas."""
        return not is_address(self.addresses[0])


def is_registry_setting(name: str) -> bool:
    """Tell whether a setting is one of a registry."""
    return name in NAMES or name.startswith(PREFIX)


def is_address(text: str) -> bool:
    """Tell an address from the path of a file."""
    return text.startswith(("http://", "https://"))


def read_registry_settings(given: Mapping[str, str]) -> RegistrySettings | None:
    """Return the settings, None without an address; ConfigError names the one that is wrong.

    References such as ``${env:NAME}`` have been replaced.
    """
    found, tls = _sorted(given)
    if not found.get("url"):
        if given:
            raise ConfigError(f"{URL} is missing: the address of the schema registry")
        return None
    addresses, from_url = _addresses(found["url"])
    user_info = found.get(_BASIC) or from_url
    token = found.get(_BEARER)
    _check_credentials(found, user_info, token)
    if tls and not any(each.startswith("https://") for each in addresses):
        raise ConfigError(f"{PREFIX}ssl.* needs an address that begins with https://")
    return RegistrySettings(
        addresses=addresses,
        user_info=user_info or None,
        token=token or None,
        tls=tuple(sorted(tls.items())),
        timeout_ms=_timeout(found.get(_TIMEOUT, str(DEFAULT_TIMEOUT_MS))),
    )


def _sorted(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings without their prefix, and those of TLS."""
    found: dict[str, str] = {}
    tls: dict[str, str] = {}
    for name, value in given.items():
        short = name.removeprefix(PREFIX)
        if name.startswith(PREFIX + _SSL):
            tls[short] = value.strip()
        elif name not in NAMES:
            raise ConfigError(_unknown(name))
        elif found.get(short, value) != value:
            raise ConfigError(f"{PREFIX}{short} is given twice")
        else:
            found[short] = value.strip()
    return found, tls


def _check_credentials(found: Mapping[str, str], user_info: str | None, token: str | None) -> None:
    for name, allowed in _SOURCES.items():
        if found.get(name, allowed[0]) not in allowed:
            raise ConfigError(f"{PREFIX}{name} takes {' or '.join(allowed)}")
    if user_info and token:
        raise ConfigError(f"only one of {PREFIX}{_BASIC} and {PREFIX}{_BEARER} can be given")
    if user_info and ":" not in user_info:
        raise ConfigError(f"{PREFIX}{_BASIC} takes USER:PASSWORD")
    for secret in filter(None, (user_info, token)):
        if any(character in secret for character in "\r\n"):
            raise ConfigError(f"the credentials of {URL} have a line break in them")


def _addresses(text: str) -> tuple[tuple[str, ...], str | None]:
    """Return the addresses without credentials, and those."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if len(parts) == 1 and not is_address(parts[0]):
        if "://" in parts[0]:
            raise ConfigError(f"{URL} takes http://…, https://… or the path of a file")
        return (parts[0],), None
    addresses, credentials = [], None
    for part in parts:
        split = urlsplit(part)
        if not is_address(part) or not split.hostname or split.query or split.fragment:
            raise ConfigError(f"{URL}: an address is http://HOST:PORT or https://HOST:PORT")
        if split.username:
            credentials = f"{unquote(split.username)}:{unquote(split.password or '')}"
        host = split.netloc.rpartition("@")[2]
        addresses.append(urlunsplit((split.scheme, host, split.path.rstrip("/"), "", "")))
    if not addresses:
        raise ConfigError(f"{URL} has no address")
    return tuple(addresses), credentials


def _timeout(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ConfigError(f"{PREFIX}{_TIMEOUT} takes milliseconds, not {text!r}")
    return int(text)


def _unknown(name: str) -> str:
    near = get_close_matches(name, sorted(NAMES), n=1)
    return f"there is no setting {name!r}" + (f"; the nearest is {near[0]!r}" if near else "")
