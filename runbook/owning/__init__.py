"""What is started and must end with its creator, also after ``kill -9``: ground of hosts and
launch."""

from __future__ import annotations
