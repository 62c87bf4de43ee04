"""The load generator and its records; benchmark, ``bench`` and the proofs use it."""

from __future__ import annotations
