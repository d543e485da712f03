"""What a broker has refused."""

from kio.schema.errors import ErrorCode

from kvota.model.errors import KvotaError, UsageError


class BrokerError(KvotaError):
    """A broker has answered with an error of Kafka's.

    Attributes:
        code: Kafka's number.
        name: Kafka's name of it, in small letters; ``unknown_…`` for a number that is not known.
        message: the broker's own words, where it has any.
        is_retriable: whether Kafka's clients try again.
    """

    def __init__(self, what: str, code: int, message: str | None = None) -> None:
        try:
            known = ErrorCode(code)
            self.name, self.is_retriable = known.name, known.retriable
        except ValueError:
            self.name, self.is_retriable = f"unknown_error_{code}", False
        self.code = int(code)
        self.message = message
        said = f": {message}" if message else ""
        super().__init__(f"{what}: {self.name} ({self.code}){said}")


class UnsupportedVersionError(UsageError):
    """A broker does not offer an API, or no version of it that is spoken here."""
