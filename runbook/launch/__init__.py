"""How servers are started: one ``LaunchSpec``, rendered as a process, as a unit, as a command."""

from __future__ import annotations
