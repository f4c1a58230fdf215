"""Keys and values that name their schema in a registry: Avro, Protobuf and JSON Schema as JSON."""

from __future__ import annotations

import base64
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from millstream.model.errors import MillstreamError
from millstream.schemas.framing import FramingError, read_frame
from millstream.schemas.registry import SchemaRegistry, open_registry
from millstream.schemas.schema import RegistryAwayError
from millstream.schemas.settings import RegistrySettings
from millstream.schemas.values import ValueDecoder, header_of

Headers = Iterable[tuple[str, bytes | None]]
_PAUSE_S: Final = 5.0
"""A registry that does not answer is left alone for so long: a page has hundreds of records."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a key or value says: JSON and the name of its schema, or why it cannot be read."""

    kind: str = ""
    schema: str = ""
    json: Any = None
    error: str | None = None


class SchemaValues:
    """Decodes keys and values; threads may share it."""

    def __init__(
        self, registry: SchemaRegistry, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._registry = registry
        self._decoder = ValueDecoder(registry)
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._away: RegistryAwayError | None = None
        self._away_until_s = 0.0

    def decode(self, data: bytes, headers: Headers, *, is_key: bool) -> Decoded | None:
        """Return what the bytes say; None where they name no schema."""
        try:
            key = read_frame(data, has_indexes=False, header=header_of(headers, is_key=is_key)).key
        except FramingError:
            return None
        name = str(key)
        with self._lock:
            try:
                if self._away is not None and self._clock_s() < self._away_until_s:
                    raise self._away
                kind = self._registry.schema(key).kind.capitalize()
                shown = "JSON Schema" if kind == "Json" else kind
                value = self._decoder.decode(data, headers, is_key=is_key)
                return Decoded(shown, name, as_json(value))
            except RegistryAwayError as error:
                self._away, self._away_until_s = error, self._clock_s() + _PAUSE_S
                return Decoded(error=str(error))
            except ModuleNotFoundError as error:
                extra = "avro" if error.name == "fastavro" else "protobuf"
                return Decoded(error=f"{error.name} is missing: pip install 'millstream[{extra}]'")
            except (MillstreamError, ValueError, RecursionError) as error:
                return Decoded(error=f"schema {name}: {error}")


def open_schema_values(settings: RegistrySettings | None) -> SchemaValues | None:
    """Return the decoder for the settings of a registry; None without one.

    ConfigError for a file that is none.
    """
    return None if settings is None else SchemaValues(open_registry(settings))


def as_json(value: Any) -> Any:
    """Return a decoded value as JSON has it: bytes in base64, times in ISO 8601, and numbers that
    a double cannot have as text.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            is_exact = value.is_finite() and Decimal(repr(float(value))) == value
            return float(value) if is_exact else str(value)
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case datetime() | date() | time_of_day():
            return value.isoformat()
        case UUID():
            return str(value)
        case Mapping():
            return {str(name): as_json(each) for name, each in value.items()}
        case list() | tuple() | set():
            return [as_json(each) for each in value]
    return str(value)
