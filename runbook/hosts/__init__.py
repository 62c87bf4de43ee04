"""Where commands run and files lie: this machine, a throw-away systemd (box), or ssh."""

from __future__ import annotations
