"""The exit codes that all commands share; docs/commands.md says what each means for each command."""

from kvota.model.errors import KvotaError, NegativeError, UsageError

DONE = 0
NEGATIVE = 1  # the question has an answer, and the answer is no
WRONG_USE = 2
UNREACHABLE = 3  # something outside could not be reached, or did not work: a broker, a disk, Spark
BROKEN = 70  # a fault of kvota itself, with a stack trace
INTERRUPTED = 130  # by Ctrl-C, as shells say it

# The first kind that fits.
CODE_OF_ERROR: dict[type[KvotaError], int] = {
    UsageError: WRONG_USE,
    NegativeError: NEGATIVE,
    KvotaError: UNREACHABLE,
}
