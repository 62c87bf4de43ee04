"""Connections to a server that is not trusted: bounded in bytes and in whole time.

The bound holds for what comes over the wire, so heads, interim answers (1xx), chunk sizes and
trailers count, and a server that sends one byte now and then is not waited for without end.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx


@dataclass
class Bound:
    """What is left for one connection: time from now on in seconds, and bytes."""

    whole_s: float
    most_bytes: int
    deadline: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline = time.monotonic() + self.whole_s

    def left_s(self, wanted_s: float | None, late: type[Exception]) -> float:
        """Seconds for the next step. Raises ``late`` where none are left."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise late(f"no end within {self.whole_s:.3g} s")
        return left if wanted_s is None else min(wanted_s, left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, bound: Bound) -> None:
        self._inner, self._bound, self._read = inner, bound, 0

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._inner.read(max_bytes, self._bound.left_s(timeout, httpcore.ReadTimeout))
        self._read += len(data)
        if self._read > self._bound.most_bytes:
            raise httpcore.ReadError(f"an answer of more than {self._bound.most_bytes} bytes")
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._bound.left_s(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        left_s = self._bound.left_s(timeout, httpcore.ConnectTimeout)
        inner = self._inner.start_tls(ssl_context, server_hostname, left_s)
        return _Stream(inner, self._bound)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    def __init__(self, bound: Bound) -> None:
        super().__init__()
        self._bound = bound

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        left_s = self._bound.left_s(timeout, httpcore.ConnectTimeout)
        inner = super().connect_tcp(host, port, left_s, local_address, socket_options)
        return _Stream(inner, self._bound)


class Transport(httpx.HTTPTransport):
    """The transport of ``httpx`` with ``bound`` on all of its connections; none is kept."""

    def __init__(self, bound: Bound) -> None:
        self._pool = httpcore.ConnectionPool(
            max_keepalive_connections=0, network_backend=_Backend(bound)
        )
