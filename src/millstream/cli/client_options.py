"""Settings of the client under a command: ``--profile``, ``--command-config``, ``-X`` and the
environment.

Every command that takes ``--bootstrap-server``, or a pipeline, takes them
(:func:`add_client_options`). A name that
another kind of client has is left out where this kind has it not, so that one file serves all
commands; one that no client has is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from millstream.cli.failures import complain
from millstream.cli.profiles import PROFILE_VARIABLE, profile_settings
from millstream.client.core.security_settings import ALIASES, SecuritySettings
from millstream.client.core.settings import AdminSettings, ClientSettings, ProducerSettings
from millstream.config.properties import CLIENT_PREFIX, is_of_kubernetes, parse_properties
from millstream.config.quantities import parse_duration_ms
from millstream.config.references import resolve
from millstream.model.errors import ConfigError
from millstream.schemas.settings import NAMES as REGISTRY_NAMES
from millstream.schemas.settings import PREFIX as REGISTRY_PREFIX
from millstream.schemas.settings import URL as REGISTRY_URL
from millstream.schemas.settings import is_registry_setting

_FILE_VARIABLE: Final = f"{CLIENT_PREFIX}CONFIG"
_PROTECTS: Final = ("security.", "sasl.", "ssl.")
_BOOTSTRAP: Final = "bootstrap.servers"
_LOOKS_LIKE_A_NAME: Final = re.compile(r"[a-z]+(?:[._-][a-z0-9]+)+", re.ASCII)
_WAITS: Final = ("default.api.timeout.ms", "max.block.ms")
"""Settings that ``--timeout`` stands for."""
_PARAMETERS: Final = frozenset(
    {"bootstrap", "bootstrap_server", "pipeline_file", "schema_registry"}
)


class _Given:
    """What the command line gave; one command runs in a process."""

    profile: str | None = None
    file: str | None = None
    items: tuple[str, ...] = ()
    timeout_ms: int | None = None


def _take_profile(value: str | None) -> None:
    _Given.profile = value


def _take_file(value: str | None) -> None:
    _Given.file = value


def _take_items(value: list[str] | None) -> None:
    _Given.items = tuple(value or ())


def _take_timeout(value: str | None) -> None:
    try:
        _Given.timeout_ms = None if value is None else parse_duration_ms(value)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from None


def _declare_timeout(
    client_timeout: Annotated[
        str | None,
        typer.Option(
            "--timeout",
            metavar="TIME",
            callback=_take_timeout,
            help="How long to wait for brokers, for example 30s.",
            show_default="10s; 1s where all refuse connections",
        ),
    ] = None,
) -> None:
    """Declare the option for commands that have none of their own."""


def _declare(
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            callback=_take_profile,
            help="Settings of the client from a profile of ~/.config/millstream/profiles.toml. "
            f"[env var: {PROFILE_VARIABLE}]",
            show_default=False,
        ),
    ] = None,
    command_config: Annotated[
        str | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            callback=_take_file,
            help=f"Settings of the client, as NAME=VALUE lines. [env var: {_FILE_VARIABLE}]",
            show_default=False,
        ),
    ] = None,
    client_setting: Annotated[
        list[str] | None,
        typer.Option(
            "-X",
            metavar="NAME=VALUE",
            callback=_take_items,
            help=f"A setting of the client; may be repeated. [env var: {CLIENT_PREFIX}NAME]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Declare the options; their values go to the callbacks and to no command."""


def add_client_options(command: Any) -> None:
    """Give the options to a command of typer, and to all commands of a group."""
    for each in getattr(command, "commands", {}).values():
        add_client_options(each)
    names = {each.name for each in command.params}
    if not names & _PARAMETERS:
        return
    if names & {"bootstrap", "bootstrap_server"} and "timeout" not in names:
        _add(command, _declare_timeout)
    _add(command, _declare)


def _add(command: Any, declaration: Callable[..., None]) -> None:
    app = typer.Typer(add_completion=False)
    app.command()(declaration)
    for option in typer.main.get_command(app).params:
        option.expose_value = False
        command.params.append(option)


def given_settings(
    environment: Mapping[str, str] = os.environ, *, looked_up: bool = True
) -> dict[str, str]:
    """Return the settings of the client under Kafka's names: the command line counts more than the
    environment, that more than the file, and that more than the profile. References are replaced
    if ``looked_up``.

    CommandFailedError and BadParameter say which of them is wrong.
    """
    path = _Given.file or environment.get(_FILE_VARIABLE)
    profile = _Given.profile or environment.get(PROFILE_VARIABLE)
    found = {} if profile is None else _of_profile(profile, environment)
    if looked_up:
        found = _resolved(found, "--profile", environment)
    of_file = {} if path is None else _of_file(path)
    found |= _resolved(of_file, "--command-config", environment) if looked_up else of_file
    if any(map(_is_ours, environment)):
        found |= _of_environment(environment)
    items = _of_items()
    return found | (_resolved(items, "-X", environment) if looked_up else items)


def settings_of(kind: type[ClientSettings]) -> dict[str, str]:
    """Return the settings that this kind of client has."""
    names = _names(kind)
    given = {name: text for name, text in given_settings().items() if _field(name) in names}
    if _Given.timeout_ms is None:
        return given
    waits = {name: str(_Given.timeout_ms) for name in _WAITS if _field(name) in names}
    return waits | given


def given_timeout_ms() -> int | None:
    """Return what ``--timeout`` says, of a command that has no such option of its own."""
    return _Given.timeout_ms


def names_on_command_line() -> frozenset[str]:
    """Return the names that ``-X`` gives."""
    return frozenset(item.partition("=")[0].strip() for item in _Given.items)


def source_settings() -> dict[str, str]:
    """Return the settings that protect a connection, as options of Spark's source and sink.

    References are left in them: Spark may show options, and source and sink look them up.
    """
    names = _names(SecuritySettings)
    given = given_settings(looked_up=False)
    return {f"kafka.{name}": text for name, text in given.items() if _field(name) in names}


def registry_settings(url: str | None) -> dict[str, str]:
    """Return the settings of the schema registry, with the address that an option gives.

    References are left in them, as in :func:`source_settings`.
    """
    given = given_settings(looked_up=False)
    found = {name: text for name, text in given.items() if is_registry_setting(name)}
    return found if url is None else {**found, REGISTRY_URL: url}


def given_bootstrap() -> str | None:
    """Return the brokers that the settings name."""
    return given_settings().get(_BOOTSTRAP)


def _of_profile(name: str, environment: Mapping[str, str]) -> dict[str, str]:
    found = profile_settings(name, environment)
    for setting in found:
        if not _is_known(setting):
            raise typer.BadParameter(_unknown(setting), param_hint=f"--profile {name}")
    return found


def _of_file(path: str) -> dict[str, str]:
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise typer.BadParameter(f"{path}: {reason}", param_hint="--command-config") from None
    known: dict[str, str] = {}
    for name, value in parse_properties(text).items():
        if _is_known(name):
            known[name] = value.strip()
        elif name.startswith(_PROTECTS):
            # Left out it would leave the connection less protected than the file says.
            raise typer.BadParameter(_unknown(name), param_hint=f"--command-config {path}")
        elif _LOOKS_LIKE_A_NAME.fullmatch(name):
            complain(f"{path}: {name} is ignored: it is not a setting of this client")
        else:  # The file may be something else, a password for one: it is not repeated.
            complain(f"{path}: a line that is not NAME=VALUE is ignored")
    return known


def _of_environment(environment: Mapping[str, str]) -> dict[str, str]:
    by_variable = {
        CLIENT_PREFIX + name.upper(): name.replace("_", ".")
        for name in (*frozenset().union(*map(_names, _kinds())), *ALIASES)
    }
    by_variable |= {
        CLIENT_PREFIX + name.upper().replace(".", "_"): name for name in _registry_names()
    }
    found = {}
    for variable, value in environment.items():
        if variable in by_variable:
            found[by_variable[variable]] = value
        elif _is_ours(variable) and not is_of_kubernetes(variable, value):
            from difflib import get_close_matches

            near = get_close_matches(variable, by_variable, n=1, cutoff=0.7)
            hint = f"; the nearest is {near[0]}" if near else ""
            raise ConfigError(f"{variable} sets nothing{hint}")
    return found


def _of_items() -> dict[str, str]:
    found: dict[str, str] = {}
    for item in _Given.items:
        name, equals, value = item.partition("=")
        name = name.strip()
        if not equals or not name:
            raise typer.BadParameter("it takes NAME=VALUE", param_hint="-X")
        if not _is_known(name):
            raise typer.BadParameter(_unknown(name), param_hint="-X")
        found[name] = value.strip()
    return found


def _resolved(
    settings: dict[str, str], option: str, environment: Mapping[str, str]
) -> dict[str, str]:
    try:
        return resolve(settings, environment)
    except ConfigError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None


def _kinds() -> tuple[type[ClientSettings], ...]:
    # Loaded here: most commands are given nothing, and need one of them at most.
    from millstream.client.core.consumer.settings import ConsumerSettings
    from millstream.client.core.share.settings import ShareConsumerSettings

    return AdminSettings, ConsumerSettings, ProducerSettings, ShareConsumerSettings


def _registry_names() -> set[str]:
    tls = (name for name in _names(SecuritySettings) if name.startswith("ssl_"))
    return {*REGISTRY_NAMES, *(f"{REGISTRY_PREFIX}{name.replace('_', '.')}" for name in tls)}


def _is_ours(variable: str) -> bool:
    return variable.startswith(CLIENT_PREFIX) and variable != _FILE_VARIABLE


def _names(kind: type[SecuritySettings]) -> frozenset[str]:
    return frozenset(each.name for each in fields(kind) if "reader" in each.metadata)


def _field(name: str) -> str:
    spelt = name.replace(".", "_")
    return ALIASES.get(spelt, spelt)


def _is_known(name: str) -> bool:
    if "_" in name:
        return False
    return is_registry_setting(name) or any(_field(name) in _names(kind) for kind in _kinds())


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    known = sorted({each.replace("_", ".") for kind in _kinds() for each in _names(kind)})
    near = get_close_matches(name.lower(), known, n=1)
    return f"there is no setting {name!r}" + (f"; the nearest is {near[0]!r}" if near else "")
