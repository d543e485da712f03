"""The tree of errors.

KvotaError               something outside did not work                         (exit code 3)
 ├── UsageError          wrong option, value or file: the user can mend it      (exit code 2)
 │    └── ConfigurationError   all faults of one file at once
 ├── NegativeError       the answer is no                                       (exit code 1)
 ├── UnreachableError    a broker, a download, a disk could not be reached      (exit code 3)
 ├── CorruptDataError    a file or a table is damaged; names the place          (exit code 3)
 ├── CallbackError       a quota callback answered what is no answer
 └── ProtocolError       the peer's bytes are not Kafka's protocol; closes one connection
"""

from dataclasses import dataclass

from kvota.model.plain_text import shortened

# A value in an error's text is not longer than this.
_SHOWN_MAX = 80


class KvotaError(Exception):
    """Root of all errors kvota raises on purpose; the text is for people."""


class UsageError(KvotaError):
    """The user can mend it: names the place, the value, what was expected and the next step."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in a file a person wrote."""

    place: str  # "gateway.toml:14: gateway.bootstrap_port"
    problem: str  # '"abc" is not a port (1 to 65535)'
    remedy: str  # 'Write a number, e.g. 9092.'

    def __str__(self) -> str:
        """One line: place, problem, remedy."""
        return f"{self.place}: {self.problem}. {self.remedy}"


class ConfigurationError(UsageError):
    """All faults of one file at once."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


class NegativeError(KvotaError):
    """There is no such thing as the user speaks of, or it is there already; the text says which."""


class UnreachableError(KvotaError):
    """Something outside could not be reached; the text says what and what to try."""


class CorruptDataError(KvotaError):
    """Stored data is damaged; the text names the file and the place in it."""


class CallbackError(KvotaError):
    """A quota callback answered what is no answer.

    Attributes:
        method: which of its methods.
        cause: what is wrong with the answer, without the answer itself, which may name a client.
    """

    def __init__(
        self, callback: object, method: str, value: object, expected: str, *, more: str = ""
    ) -> None:
        of_class = type(callback)
        shown = shortened(repr(value), _SHOWN_MAX)
        name = f"{of_class.__module__}.{of_class.__qualname__}.{method}"
        super().__init__(f"{name} answered {shown}, not {expected}{more}")
        self.method = method
        self.cause = f"{type(value).__qualname__}, not {expected}"


class ProtocolError(KvotaError):
    """The peer's bytes are not Kafka's protocol, or are over a limit; the connection is closed.

    Attributes:
        kind: one word for what is wrong, for those who count.
    """

    def __init__(self, message: str, kind: str = "malformed") -> None:
        super().__init__(message)
        self.kind = kind
