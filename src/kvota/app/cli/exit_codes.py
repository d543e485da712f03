"""The exit codes that all commands share."""

DONE = 0
NEGATIVE = 1  # the question has an answer, and the answer is no
WRONG_USE = 2
UNREACHABLE = 3
INTERRUPTED = 130  # by Ctrl-C, as shells say it
