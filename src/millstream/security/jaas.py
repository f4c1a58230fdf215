"""Read the texts of `sasl.jaas.config`: login modules and their options.

::

    <class of the login module> <control flag> (<option>=<value>)* ;

The tokens are those of Kafka's ``JaasConfig`` (``java.io.StreamTokenizer``): white space separates;
``=`` and ``;`` stand for themselves; a value may be in single or double quotes, with the escapes of
Java; ``/``, ``//`` and ``/* … */`` outside of quotes begin a comment, so that a value with a slash
needs quotes. No error shows a piece of the text, for it may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from millstream.model.errors import ConfigError

PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"

CONTROL_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})

_USER: Final = "user_"
_TOKEN: Final = re.compile(
    r"""(?P<skip>[\x00-\x20]+|/\*.*?(?:\*/|\Z)|/[^\r\n]*)
    |(?P<mark>[=;])
    |(?P<quote>["'])(?P<quoted>(?:\\[^\r\n]|(?!(?P=quote))[^\\\r\n])*)(?P<end>(?P=quote))?
    |(?P<word>[^\x00-\x20=;/"']+)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROLS: Final[Mapping[str, str]] = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One login module. The options hold secrets and are not part of the text of this object."""

    name: str
    control_flag: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def users(self) -> Mapping[str, str]:
        """Passwords by user: the options ``user_NAME="password"`` of a broker's PLAIN module."""
        return {
            name.removeprefix(_USER): value
            for name, value in self.options.items()
            if name.startswith(_USER)
        }


@dataclass(frozen=True, slots=True)
class _Token:
    """``text`` is None for ``=`` and ``;``."""

    mark: str
    text: str | None = field(repr=False)


def parse_jaas(text: str) -> tuple[LoginModule, ...]:
    """Read the login modules of a text; ConfigError says what is wrong with it."""
    tokens = _tokens(text)
    modules = []
    while (token := next(tokens, None)) is not None:
        modules.append(_module(token, tokens))
    if not modules:
        raise ConfigError("Login module not specified in JAAS config")
    return tuple(modules)


def parse_one_module(setting: str, text: str) -> LoginModule:
    """Read a text that has to have one login module, as Kafka wants it of `sasl.jaas.config`.

    ConfigError names the setting.
    """
    try:
        modules = parse_jaas(text)
    except ConfigError as error:
        raise ConfigError(f"{setting}: {error}") from None
    if len(modules) != 1:
        raise ConfigError(
            f"{setting}: JAAS config property contains {len(modules)} login modules, "
            "should be 1 module"
        )
    return modules[0]


def _module(first: _Token, tokens: Iterator[_Token]) -> LoginModule:
    if first.text is None:
        raise ConfigError("Login module not specified in JAAS config")
    flag = next(tokens, None)
    if flag is None:
        raise ConfigError("Login module control flag not specified in JAAS config")
    if flag.text is None:
        raise ConfigError("Login module control flag is not available in the JAAS config")
    if flag.text.lower() not in CONTROL_FLAGS:
        raise ConfigError("Invalid login module control flag in JAAS config")
    options: dict[str, str] = {}
    while (key := next(tokens, None)) is not None:
        if key.mark == ";":
            return LoginModule(first.text, flag.text.lower(), options)
        equals, value = next(tokens, None), next(tokens, None)
        if (
            key.text is None
            or equals is None
            or equals.mark != "="
            or value is None
            or value.text is None
        ):
            raise ConfigError(
                f"option {len(options) + 1} in JAAS config is not of the form name=value"
            )
        options[key.text] = value.text
    raise ConfigError("JAAS config entry not terminated by semi-colon")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise ConfigError("JAAS config has a quoted value that does not end")
        position = match.end()
        if match["skip"] is not None:
            continue
        if match["mark"] is not None:
            yield _Token(match["mark"], None)
        elif match["word"] is not None:
            yield _Token("", match["word"])
        elif match["end"] is None:
            raise ConfigError("JAAS config has a quoted value that does not end")
        else:
            yield _Token("", _ESCAPE.sub(_unescape, match["quoted"]))


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _CONTROLS.get(escaped, escaped)
