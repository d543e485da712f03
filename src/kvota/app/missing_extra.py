"""What is said where a part of kvota is needed that was not installed."""


def needs_extra(error: ModuleNotFoundError, extra: str) -> str:
    """E.g. ``this needs kio, which is not installed. pip install 'kvota[client]'``."""
    return f"this needs {error.name}, which is not installed. pip install 'kvota[{extra}]'"
