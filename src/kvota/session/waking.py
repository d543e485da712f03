"""Who waits is woken by a call, which does nothing once its connection has ended."""


def nobody() -> None:
    """Wake nobody: a method of the driver in its place would tie the two into a cycle."""
