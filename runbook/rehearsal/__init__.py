"""The embedded default: a small model, prepared once, and a real server for it on the CPU."""

from __future__ import annotations
