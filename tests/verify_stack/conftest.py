"""The fixtures that boot real boxes."""

from boxes import box, machine

__all__ = ["box", "machine"]
