"""What can be wrong with an operation of the admin client, beside what a broker says (``BrokerError``)."""

from kvota.client import BrokerError, UnreachableError
from kvota.wire.error_code import ErrorCode


class ThrottlingQuotaExceededError(BrokerError):
    """The client's quota on topic mutations is spent; nothing was carried out (KIP-599, error 89).

    Attributes:
        throttle_time_ms: how long to wait from now on before it is worth another try; 0: it may be tried at once.
    """

    def __init__(self, what: str, throttle_time_ms: int, message: str | None = None) -> None:
        said = message or "The throttling quota has been exceeded."
        text = f"{said.rstrip('.')}; wait {throttle_time_ms / 1000:g} s"
        super().__init__(what, ErrorCode.THROTTLING_QUOTA_EXCEEDED, text)
        self.throttle_time_ms = throttle_time_ms


class ApiTimeoutError(UnreachableError):
    """Time is up, and nothing was carried out: it was not sent, or each broker that was asked has refused it."""


class OutcomeUnknownError(UnreachableError):
    """It was sent, and what became of it is unknown; it may have been carried out. Look before you repeat it."""
