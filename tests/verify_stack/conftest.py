"""The fixtures that boot real boxes."""

from boxes import box

__all__ = ["box"]
