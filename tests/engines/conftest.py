"""The fixtures that run real servers."""

from server_lives import rehearsal, start

__all__ = ["rehearsal", "start"]
