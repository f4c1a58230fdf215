"""DuckDB's errors as one sentence that names what there is, or as the error of the system that they
tell of.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Mapping
from typing import Final

from millstream.query.topic_table import TopicTable

_KIND: Final = re.compile(r"^[A-Z][A-Za-z ]* Error: ")
_NO_COLUMN: Final = re.compile(
    r'Referenced column "(?P<one>[^"]+)" not found'
    r'|does not have a column named "(?P<other>[^"]+)"'
)

_DOTTED: Final = re.compile(
    r'Table with name "(?P<name>[^"]+)" does not exist because (?:schema|catalog) '
)
_OF_A_FILE: Final = re.compile(
    r"""(?:Could not|Cannot|Failed to) [a-z ]*file \\?"(?P<path>[^"\n]*?)\\?"[^:"\n]*: """
    r"""(?P<why>[A-Z][A-Za-z ]+)"""
)
"""As it is told, or within the JSON that DuckDB makes of it where it writes on other threads."""
_NUMBERS: Final = {os.strerror(number): number for number in errno.errorcode}


def error_of_a_file(error: Exception) -> OSError | None:
    """Return the error of the system that DuckDB met with a file, if that is what it tells of."""
    found = _OF_A_FILE.search(str(error))
    number = None if found is None else _NUMBERS.get(found["why"].strip())
    if found is None or number is None:
        return None
    return OSError(number, os.strerror(number), found["path"])


def sentence_of(error: Exception, tables: Mapping[str, TopicTable]) -> str:
    """Return what is wrong in one line, without the place in the query, which has several."""
    text = str(error).split("\n\nLINE ")[0]
    found = _NO_COLUMN.search(text)
    if found is not None and tables:
        return _no_column(found["one"] or found["other"], tables)
    dotted = _DOTTED.search(text)
    if dotted is not None:
        return f'a topic whose name has dots is written in double quotes: "{dotted["name"]}"'
    return " ".join(_KIND.sub("", text).split())


def _no_column(name: str, tables: Mapping[str, TopicTable]) -> str:
    columns = {column: topic for topic, table in tables.items() for column in table.schema().names}
    near = difflib.get_close_matches(name, columns, n=3, cutoff=0.6)
    there = f"columns: {', '.join(columns)}"
    hint = f"did you mean {' or '.join(near)}?" if near else there
    formats = ", ".join(f"{topic} as {table.format.name}" for topic, table in tables.items())
    return f"there is no column {name}; {hint} (read {formats}: --format and --schema change that)"
