"""Quotas of clients: how much a user or a client id has used, and how long it has to wait.

Kafka: ``ClientQuotaManager``, ``ControllerMutationQuotaManager``, ``Rate``, ``SampledStat``,
``TokenBucket`` (KIP-13, KIP-55, KIP-124, KIP-599, KIP-612). A quota belongs to a user, to a client
id, to a client id of a user, or to the default of these. The most specific one counts:

=  =======================  ===============================
1  user, client id          its own usage
2  user, any client id      usage of each client id apart
3  user                     usage of all its client ids
4  any user, client id      usage of each user apart
5  any user, any client id  usage of each pair apart
6  any user                 usage of each user apart
7  client id                usage of all users together
8  any client id            usage of each client id apart
=  =======================  ===============================

Usage is the sum of the last windows, the one that runs included, over the time that they span. Who
is above waits as long as it would have to send nothing for the rate to be at the quota again.
Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from math import floor, inf, isnan
from typing import Final, TypeAlias

from millstream.model.entities import EntityKind, EntityValue
from millstream.model.entity_keys import decode_name, read_user_client_key

SENSOR_EXPIRY_MS: Final = 3_600_000
"""Usage that nothing was added to for so long is forgotten."""

MAX_SENSORS: Final = 50_000
"""How many users and client ids usage is kept for; beyond it the longest unused is forgotten."""

MAX_THROTTLE_MS: Final = (1 << 31) - 1
"""The longest time that an answer can tell of; a quota may be as small as a number can be."""

MAX_KEPT_NAME: Final = 255
"""Usage of a longer user and client id is kept by their digests: clients choose them."""

_PURGE_MS: Final = 30_000


class QuotaType(Enum):
    """What is limited; the value is the name of its setting."""

    PRODUCE = "producer_byte_rate"
    """Bytes of Produce requests in a second."""
    FETCH = "consumer_byte_rate"
    """Bytes of Fetch answers in a second."""
    REQUEST = "request_percentage"
    """The share of one thread's time, in percent."""
    CONTROLLER_MUTATION = "controller_mutation_rate"
    """Partitions made and deleted in a second; bursts are allowed (a token bucket)."""


CONNECTION_RATE: Final = "connection_creation_rate"
"""The setting of an address: new connections in a second."""


@dataclass(frozen=True, slots=True)
class Windows:
    """How usage is sampled (``quota.window.num``, ``quota.window.size.seconds``)."""

    count: int = 11
    window_ms: int = 1_000

    @property
    def full_ms(self) -> int:
        """The time that all windows but the one that runs span: no rate is over less."""
        return (self.count - 1) * self.window_ms

    @property
    def pause_ms(self) -> int:
        """How long somebody waits who is allowed nothing at all."""
        return max(self.full_ms, self.window_ms)


class Rate:
    """What was used in the last windows, per second (Kafka: ``Rate`` over ``WindowedSum``).

    Windows are in a ring of one more than are asked for, because the oldest one may reach back
    beyond the time that counts. One that is too old is begun anew where it lies.
    """

    __slots__ = ("_at_most", "_current", "_ends_ms", "_samples", "_window", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: list[list[float]] = []
        """Begin, last use, and sum of each window."""
        self._current = 0
        self._window: list[float] = []
        """The sample of the window that runs."""
        self._ends_ms = -inf
        """Until when a use is counted in that window, whatever happens to the others."""
        self._at_most = 0.0

    def record(self, value: float, now_ms: float) -> float:
        """Add to the window that runs. Return the most that can have been used in all windows: what
        is too old may still be in it.
        """
        if now_ms >= self._ends_ms:
            self._begin(now_ms)
        window = self._window
        window[1] = now_ms
        window[2] += value
        self._at_most = at_most = self._at_most + value
        return at_most

    def _begin(self, now_ms: float) -> None:
        """Find the window that runs, and begin it where the one before is over."""
        samples = self._samples
        if samples and now_ms - samples[self._current][0] >= self._windows.window_ms:
            self._current = (self._current + 1) % (self._windows.count + 1)
            if self._current < len(samples):
                samples[self._current] = [now_ms, now_ms, 0.0]
        if self._current >= len(samples):
            samples.append([now_ms, now_ms, 0.0])
        self._window = window = samples[self._current]
        self._ends_ms = window[0] + self._windows.window_ms
        # A sum below zero, of what was taken back, goes with its window and leaves more.
        others = sum(max(0.0, sample[2]) for sample in samples if sample is not window)
        self._at_most = others + window[2]

    def span_ms(self, now_ms: float) -> float:
        """Return the time that the rate is over."""
        windows, begin_ms = self._windows, now_ms
        expired_ms = now_ms - windows.count * windows.window_ms
        for sample in self._samples:
            if sample[1] <= expired_ms:
                sample[:] = now_ms, now_ms, 0.0
            begin_ms = min(begin_ms, sample[0])
        elapsed_ms = now_ms - begin_ms
        missing = windows.count - 1 - int(elapsed_ms // windows.window_ms)
        return max(1.0, elapsed_ms + max(0, missing) * windows.window_ms)

    def measure(self, now_ms: float) -> float:
        """Return the usage in a second."""
        span_ms = self.span_ms(now_ms)
        return sum(sample[2] for sample in self._samples) / (span_ms / 1_000)

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """Return how long to wait for the rate to be at a limit."""
        rate = self.measure(now_ms)
        if rate <= limit:
            return 0
        if limit <= 0:
            return self._windows.pause_ms
        return _whole_ms((rate - limit) / limit * self.span_ms(now_ms))


class TokenBucket:
    """Tokens that come at a rate, up to a burst; it may run into debt (KIP-599)."""

    __slots__ = ("_last_ms", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = 0.0
        self._last_ms: float | None = None

    def tokens(self, limit: float, now_ms: float) -> float:
        """Return how many tokens there are; a debt is negative."""
        burst = self._windows.count * self._windows.window_ms / 1_000 * limit
        if self._last_ms is None:
            self._tokens = burst  # nothing was used for as long as anybody knows
        else:
            self._tokens = min(burst, self._tokens + limit * (now_ms - self._last_ms) / 1_000)
        self._last_ms = now_ms
        return self._tokens

    def record(self, value: float, limit: float, now_ms: float) -> None:
        """Take tokens, whether or not there are as many."""
        self.tokens(limit, now_ms)
        self._tokens -= value

    def throttle_ms(self, limit: float, now_ms: float) -> int:
        """Return how long it takes for a debt to be paid."""
        tokens = self.tokens(limit, now_ms)
        if tokens >= 0:
            return 0
        if limit <= 0:
            return self._windows.pause_ms
        return _whole_ms(-tokens / limit * 1_000)


def _whole_ms(time_ms: float) -> int:
    return floor(min(time_ms, MAX_THROTTLE_MS) + 0.5)


_Level: TypeAlias = tuple[str | None, str | None]
"""User and client id as the usage is kept by; None where all together are meant."""

_DEFAULT: Final = ""
"""Stands for the default of users or client ids: no quota is for an empty name."""


class QuotaLimits:
    """The quotas of one type by user and client id; see the table above. ``on_changed`` is called
    after each change.
    """

    def __init__(self, on_changed: Callable[[], None] = lambda: None) -> None:
        self._limits: dict[_Level, float] = {}
        self._default: float | None = None
        self._on_changed = on_changed

    def __bool__(self) -> bool:
        return bool(self._limits) or self._default is not None

    def set_default(self, limit: float) -> None:
        """Set the quota of each client id where no other one counts."""
        self._default = limit
        self._on_changed()

    def set(self, user: str | None, client_id: str | None, limit: float | None) -> None:
        """Set the quota of an entity; None for the entity's part that it does not have, ``""`` for
        the default. A ``limit`` of None removes the quota.
        """
        if limit is None:
            self._limits.pop((user, client_id), None)
        else:
            self._limits[user, client_id] = limit
        self._on_changed()

    def find(self, user: str, client_id: str) -> tuple[_Level, float] | None:
        """Return by what the usage of a client is kept, and its quota; None without one."""
        limits = self._limits
        apart = (user, client_id)
        for entity, level in (
            ((user, client_id), apart),
            ((user, _DEFAULT), apart),
            ((user, None), (user, None)),
            ((_DEFAULT, client_id), apart),
            ((_DEFAULT, _DEFAULT), apart),
            ((_DEFAULT, None), (user, None)),
            ((None, client_id), (None, client_id)),
            ((None, _DEFAULT), (None, client_id)),
        ):
            limit = limits.get(entity)
            if limit is not None and (client_id or entity[1] != client_id):
                return level, limit
        return None if self._default is None else ((None, client_id), self._default)


class _Sensor:
    """The usage of one level, and when it was last added to."""

    __slots__ = ("last_ms", "rate", "tokens")

    def __init__(self, windows: Windows) -> None:
        self.last_ms = 0.0
        self.rate = Rate(windows)
        self.tokens = TokenBucket(windows)


@dataclass(frozen=True, slots=True)
class _Limited:
    """What is known of a client that has a quota."""

    sensor: _Sensor
    limit: float
    in_windows: float
    """The most that can be used at once without having to wait."""
    free: float
    """Who cannot have used more than this in all windows does not wait, however long they span."""


class ClientQuotas:
    """Quotas of one type, and what clients have used. A client that has no quota costs a look-up,
    and nothing is kept of its usage.
    """

    def __init__(self, windows: Windows) -> None:
        self.limits = QuotaLimits(self._limits_changed)
        self.is_limited = False
        """True while any quota of this type is set."""
        self._windows = windows
        self._sensors: dict[_Level, _Sensor] = {}
        self._purged_ms = 0.0
        self._found: dict[tuple[str, str], _Limited | None] = {}
        """What was found for users and client ids, until a quota changes or usage is forgotten."""

    @property
    def sensor_count(self) -> int:
        """For how many users and client ids usage is kept."""
        return len(self._sensors)

    def max_in_windows(self, user: str, client_id: str, now_ms: float) -> float | None:
        """Return the most that can be used at once without having to wait; None without a quota."""
        limited = self._limited(user, client_id, now_ms)
        return None if limited is None else limited.in_windows

    def record(self, user: str, client_id: str, value: float, now_ms: float) -> int:
        """Add to the usage of a client; return how long it has to wait, 0 if it has not."""
        limited = self._limited(user, client_id, now_ms)
        if limited is None:
            return 0
        sensor = limited.sensor
        sensor.last_ms = now_ms
        if sensor.rate.record(value, now_ms) <= limited.free:
            return 0
        return sensor.rate.throttle_ms(limited.limit, now_ms)

    def take_back(self, user: str, client_id: str, value: float, now_ms: float) -> None:
        """Subtract what was recorded and not used after all."""
        limited = self._limited(user, client_id, now_ms)
        if limited is not None:
            limited.sensor.rate.record(-value, now_ms)

    def take_tokens(
        self, user: str, client_id: str, value: float, now_ms: float, *, is_strict: bool
    ) -> int:
        """Take tokens of a client's bucket; return how long it has to wait. A strict client in debt
        is given nothing.
        """
        limited = self._limited(user, client_id, now_ms)
        if limited is None:
            return 0
        limited.sensor.last_ms = now_ms
        bucket, limit = limited.sensor.tokens, limited.limit
        debt_ms = bucket.throttle_ms(limit, now_ms)
        if is_strict and debt_ms:
            return debt_ms
        bucket.record(value, limit, now_ms)
        return 0 if is_strict else bucket.throttle_ms(limit, now_ms)

    def _limited(self, user: str, client_id: str, now_ms: float) -> _Limited | None:
        """Return the usage and the quota of a client; None without a quota."""
        client = (user, client_id)
        try:
            return self._found[client]
        except KeyError:
            found = self.limits.find(user, client_id)
        limited = None
        if found is not None:
            level, limit = found
            in_windows = limit * self._windows.full_ms / 1_000
            free = in_windows if limit > 0 else -inf
            limited = _Limited(self._sensor(level, now_ms), limit, in_windows, free)
        if len(user) + len(client_id) <= MAX_KEPT_NAME:
            if len(self._found) >= MAX_SENSORS:
                self._found.clear()
            self._found[client] = limited
        return limited

    def _limits_changed(self) -> None:
        self.is_limited = bool(self.limits)
        self._found.clear()

    def _sensor(self, level: _Level, now_ms: float) -> _Sensor:
        user, client_id = level
        if len(user or "") + len(client_id or "") > MAX_KEPT_NAME:
            level = _digest(user), _digest(client_id)
        sensor = self._sensors.get(level)
        if sensor is None:
            self._purge(now_ms)
            sensor = self._sensors[level] = _Sensor(self._windows)
        sensor.last_ms = now_ms
        return sensor

    def _purge(self, now_ms: float) -> None:
        sensors = self._sensors
        is_full = len(sensors) >= MAX_SENSORS
        if not is_full and now_ms - self._purged_ms < _PURGE_MS:
            return
        self._purged_ms = now_ms
        self._found.clear()
        for level in [
            level for level, each in sensors.items() if now_ms - each.last_ms >= SENSOR_EXPIRY_MS
        ]:
            del sensors[level]
        if len(sensors) >= MAX_SENSORS:
            by_use = sorted(sensors, key=lambda level: sensors[level].last_ms)
            for level in by_use[: MAX_SENSORS // 10 + 1]:
                del sensors[level]


def _digest(name: str | None) -> str | None:
    return None if name is None else sha256(name.encode(errors="surrogatepass")).hexdigest()


def quota_entity(kind: EntityKind, key: str) -> tuple[str | None, str | None] | None:
    """Return the user and the client id of an entity's key as ``QuotaLimits.set`` takes them; None
    for an entity of another kind.
    """
    if kind is EntityKind.USER:
        return decode_name(key) or _DEFAULT, None
    if kind is EntityKind.CLIENT:
        return None, decode_name(key) or _DEFAULT
    if kind is EntityKind.USER_CLIENT:
        user, client_id = read_user_client_key(key)
        return user or _DEFAULT, client_id or _DEFAULT
    return None


def quota_number(value: EntityValue | None, name: str) -> float | None:
    """Return a quota of an entity; None where it has none, or no number."""
    text = None if value is None else value.get(name)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return None if isnan(number) else number


class Quotas:
    """The quotas of clients of all types."""

    def __init__(self, windows: Windows, controller_windows: Windows) -> None:
        self.by_type = {
            type_: ClientQuotas(
                controller_windows if type_ is QuotaType.CONTROLLER_MUTATION else windows
            )
            for type_ in QuotaType
        }
        self.max_request_throttle_ms = windows.window_ms
        """Nobody waits longer for its share of time than one window."""

    def __bool__(self) -> bool:
        """True while any quota is set."""
        return any(each.is_limited for each in self.by_type.values())

    def update(
        self, kind: EntityKind, keys: Iterable[str], entities: Mapping[str, EntityValue]
    ) -> None:
        """Take over the quotas of entities that have changed, or are gone."""
        for key in keys:
            named = quota_entity(kind, key)
            if named is not None:
                value = entities.get(key)
                for type_, quotas in self.by_type.items():
                    quotas.limits.set(*named, quota_number(value, type_.value))


class AddressRates:
    """New connections in a second of each address (KIP-612). One that is too many does not count,
    so that whoever tries again and again is let in at its rate.
    """

    def __init__(self, windows: Windows) -> None:
        self._quotas = ClientQuotas(windows)
        self._max_throttle_ms = windows.window_ms

    def __bool__(self) -> bool:
        """True while any address has a quota."""
        return self._quotas.is_limited

    def set(self, address: str | None, limit: float | None) -> None:
        """Set the quota of an address, or (None) of all without their own; no limit removes it."""
        self._quotas.limits.set(address or _DEFAULT, None, limit)

    def connected(self, address: str, now_ms: float) -> int:
        """Count a new connection; return how long it is to be held back, 0 for one that is let
        in.
        """
        throttle_ms = self._quotas.record(address, "", 1, now_ms)
        if throttle_ms:
            self._quotas.take_back(address, "", 1, now_ms)
        return min(throttle_ms, self._max_throttle_ms)
