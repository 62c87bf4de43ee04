"""Production traffic: a log of requests read, and the share of time at each load in it."""

from __future__ import annotations

from runbook.traffic.log import Log, Served, read_log
from runbook.traffic.mix import Traffic, derive_mix
from runbook.traffic.units import parse_units

__all__ = ["Log", "Served", "Traffic", "derive_mix", "parse_units", "read_log"]
