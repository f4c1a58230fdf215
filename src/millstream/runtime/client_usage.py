"""What the clients of this broker have used of their quotas, and how long they have to wait.

``Services.quotas`` is None while no quota is set.
"""

from __future__ import annotations

from millstream.model.clock import Clock
from millstream.model.errors import ErrorCode, KafkaError
from millstream.security.quotas import ClientQuotas, Quotas, QuotaType


class ClientUsage:
    """Records what clients use; ``quotas`` says how much they may. A client is its user's name and
    its client id.
    """

    def __init__(self, quotas: Quotas, clock: Clock) -> None:
        self.quotas = quotas
        self._clock = clock
        self._produce = quotas.by_type[QuotaType.PRODUCE]
        self._fetch = quotas.by_type[QuotaType.FETCH]
        self._request = quotas.by_type[QuotaType.REQUEST]
        self._mutations = quotas.by_type[QuotaType.CONTROLLER_MUTATION]

    def produced(self, user: str, client_id: str | None, size: int) -> int:
        """Record the bytes of a Produce request; return how long to wait."""
        quotas = self._produce
        if not quotas.is_limited:
            return 0
        return quotas.record(user, client_id or "", size, self._clock.monotonic_ms())

    def handled(self, user: str, client_id: str | None, percent: float) -> int:
        """Record the time that a request took, as a share of a second in percent; return how long
        to wait.
        """
        now_ms = self._clock.monotonic_ms()
        throttle_ms = self._request.record(user, client_id or "", percent, now_ms)
        return min(throttle_ms, self.quotas.max_request_throttle_ms)

    def max_fetch_bytes(self, user: str, client_id: str | None, max_bytes: int) -> int:
        """Return how many bytes a consumer may be given at once."""
        quotas = self._fetch
        if not quotas.is_limited:
            return max_bytes
        found = quotas.max_in_windows(user, client_id or "", self._clock.monotonic_ms())
        return max_bytes if found is None or found >= max_bytes else int(found)

    def fetched(self, user: str, client_id: str | None, size: int) -> int:
        """Record the bytes of records that a consumer would be given; return how long it has to
        wait instead, 0 if it has not. Then nothing counts as given.
        """
        quotas = self._fetch
        if not quotas.is_limited:
            return 0
        now_ms = self._clock.monotonic_ms()
        throttle_ms = quotas.record(user, client_id or "", size, now_ms)
        if throttle_ms:
            quotas.take_back(user, client_id or "", size, now_ms)
        return throttle_ms

    def mutations(self, user: str, client_id: str | None, *, is_strict: bool) -> Mutations | None:
        """Return what counts the partitions that a request makes or deletes; None where nothing
        limits them. A client that is not strict does not know of refusals: it waits afterwards.
        """
        if not self._mutations.is_limited:
            return None
        return Mutations(self._mutations, self._clock, user, client_id or "", is_strict=is_strict)


class Mutations:
    """The partitions that one request makes or deletes (KIP-599)."""

    def __init__(
        self, quotas: ClientQuotas, clock: Clock, user: str, client_id: str, *, is_strict: bool
    ) -> None:
        self._quotas = quotas
        self._clock = clock
        self._user = user
        self._client_id = client_id
        self._is_strict = is_strict
        self._until_ms = 0.0

    @property
    def throttle_ms(self) -> int:
        """How long the client has to wait by now."""
        return max(0, round(self._until_ms - self._clock.monotonic_ms()))

    def charge(self, count: int) -> None:
        """Count partitions; THROTTLING_QUOTA_EXCEEDED refuses them."""
        now_ms = self._clock.monotonic_ms()
        throttle_ms = self._quotas.take_tokens(
            self._user, self._client_id, count, now_ms, is_strict=self._is_strict
        )
        if throttle_ms:
            self._until_ms = now_ms + throttle_ms
            if self._is_strict:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )
