"""What differs between servers, behind one small protocol."""

from __future__ import annotations

from runbook.engines.base import Counters, Engine, Seen, ServerInfo
from runbook.errors import BadInput
from runbook.params import Server

__all__ = ["Counters", "Engine", "Seen", "ServerInfo", "engine_for", "engine_named"]


def engine_named(name: str, key_file: str | None = None, server: Server | None = None) -> Engine:
    """The engine of that name. Raises ``BadInput`` for one that is not built in.

    ``key_file`` holds the API key for the control calls to servers that ask for one; ``server``
    is what all configurations share.
    """
    if name == "llamacpp":
        from runbook.engines.llamacpp import LlamaCpp

        return LlamaCpp(key_file)
    if name == "sglang":
        from runbook.engines.sglang.engine import SGLang

        return SGLang(key_file, server)
    raise BadInput(f"the engine {name} is not built in", "llamacpp or sglang", "set server.engine")


def engine_for(server: Server) -> Engine:
    """The engine of these parameters, with their API key. Raises ``BadInput`` as above."""
    return engine_named(server.engine, server.api_key.file if server.api_key else None, server)
