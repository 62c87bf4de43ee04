"""The fixtures of the service's tests."""

from boxes import box
from standin_service import deployment

__all__ = ["box", "deployment"]
