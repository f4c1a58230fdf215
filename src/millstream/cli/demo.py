"""`millstream demo`."""


def demo() -> None:
    """Demo."""
