"""When which request is sent: the closed loop and the open one.

Prompts are taken in turn, but never one that is in flight while another waits. The turns of a
conversation are never in flight together: each waits for the end of the one before.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque

from runbook.load.plan import LoadPlan
from runbook.load.records import Prompt
from runbook.load.sender import Sender

#: A stream waits this long after a failed connection, so that a dead server is not hammered.
_RECONNECT_S = 0.2


class Loop:
    """Runs a plan once."""

    def __init__(self, plan: LoadPlan, sender: Sender) -> None:
        self.max_in_flight = 0
        self._plan = plan
        self._sender = sender
        turns = (plan.prompts[number % len(plan.prompts)] for number in range(plan.requests))
        self._waiting: deque[Prompt] = deque(turns)
        self._kinds = len({prompt.key for prompt in plan.prompts})
        self._in_flight: list[str] = []
        self._busy: set[str] = set()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Send everything and wait for the last record. When cancelled, records what was cut."""
        try:
            async with asyncio.TaskGroup() as group:
                if self._plan.arrivals_s:
                    await self._arrive(group)
                else:
                    for _ in range(self._plan.concurrency):
                        group.create_task(self._stream())
        finally:
            await self._sender.drain()

    async def _arrive(self, group: asyncio.TaskGroup) -> None:
        """Each request at its time, whatever became of those before; C at once at the most."""
        room, started_s = asyncio.Semaphore(self._plan.concurrency), time.monotonic()
        for after_s in self._plan.arrivals_s:
            due_s = started_s + after_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            group.create_task(self._arrival(room, due_s))

    async def _stream(self) -> None:
        while self._waiting:
            prompt = await self._next()
            if prompt is not None and not await self._send(prompt, time.monotonic()):
                await asyncio.sleep(_RECONNECT_S)

    async def _arrival(self, room: asyncio.Semaphore, due_s: float) -> None:
        async with room:
            prompt = await self._next()
            if prompt is not None:
                await self._send(prompt, due_s)

    async def _send(self, prompt: Prompt, scheduled_s: float) -> bool:
        self._in_flight.append(prompt.key)
        self._busy.add(prompt.key)
        self.max_in_flight = max(self.max_in_flight, len(self._in_flight))
        try:
            return await self._sender.send(prompt, scheduled_s)
        finally:
            self._in_flight.remove(prompt.key)
            if prompt.key not in self._in_flight:
                self._busy.discard(prompt.key)
            self._ended.set()

    async def _next(self) -> Prompt | None:
        """The next prompt that may be sent; ``None`` when others took the last ones."""
        while self._waiting:
            if len(self._busy) < self._kinds:
                for position, prompt in enumerate(self._waiting):
                    if prompt.key not in self._busy:
                        del self._waiting[position]
                        return prompt
            if not self._waiting[0].conversation:
                return self._waiting.popleft()
            self._ended.clear()
            await self._ended.wait()
        return None
