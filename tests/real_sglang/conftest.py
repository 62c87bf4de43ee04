"""The fixture that runs real servers."""

from server_lives import start

__all__ = ["start"]
