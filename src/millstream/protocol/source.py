"""A program being written line by line, with the objects its lines refer to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct as Format
from typing import Any, Final, cast

MAX_STRING_BYTES: Final = 0x7FFF
"""What the two-byte length of old versions can say; newer versions keep the limit."""

FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
    "uuid": "16s",
}
"""The kinds of fixed width, by their letter in :mod:`struct`."""

WIDTHS: Final = {
    "?": 1, "b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16,
}  # fmt: skip


class NumberFormats(dict[int, Format]):
    """Formats of runs of numbers by count, created at first use; the short ones are cached."""

    def __init__(self, letter: str) -> None:
        super().__init__()
        self._letter = letter

    def __missing__(self, count: int) -> Format:
        made = Format(f">{count}{self._letter}")
        if count <= MAX_KEPT_FORMAT:
            self[count] = made
        return made


MAX_KEPT_FORMAT: Final = 64
NUMBERS: Final = {letter: NumberFormats(letter) for letter in "?bhiqHId"}


class Source:
    """Lines at an indent, names that do not clash, and constants bound to names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, object] = {}
        self._indent = 0
        self._names = 0

    def line(self, text: str) -> None:
        """Add one line at the present indent."""
        self.lines.append("    " * self._indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add ``head`` and indent what follows inside the ``with``."""
        self.line(head)
        self._indent += 1
        yield
        self._indent -= 1

    def name(self, stem: str) -> str:
        """Return a local name that nothing else has."""
        self._names += 1
        return f"{stem}{self._names}"

    def constant(self, stem: str, value: object) -> str:
        """Return a name under which the program sees ``value``."""
        for name, known in self.constants.items():
            if known is value:
                return name
        name = self.name(stem)
        self.constants[name] = value
        return name

    def function(self, name: str, title: str) -> Callable[..., Any]:
        """Compile the program and return the function ``name`` that it defines."""
        namespace = dict(self.constants)
        code = compile("\n".join(self.lines) + "\n", f"<{title}>", "exec")
        exec(code, namespace)
        return cast("Callable[..., Any]", namespace[name])
