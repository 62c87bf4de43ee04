"""What differs between servers, behind one small protocol."""

from __future__ import annotations

from runbook.engines.base import Counters, Engine, ServerInfo
from runbook.errors import BadInput

__all__ = ["Counters", "Engine", "ServerInfo", "engine_named"]


def engine_named(name: str) -> Engine:
    """The engine of that name. Raises ``BadInput`` for one that is not built in."""
    if name == "llamacpp":
        from runbook.engines.llamacpp import LlamaCpp

        return LlamaCpp()
    raise BadInput(f"the engine {name} is not built in", "llamacpp", "set server.engine")
