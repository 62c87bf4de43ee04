"""The fixtures of the service's tests."""

from boxes import box, machine
from far import far
from standin_service import deployment

__all__ = ["box", "deployment", "far", "machine"]
