"""``runbook bench URL``: measure an OpenAI-compatible server that is already up.

Nothing is known of such a server's launch, its life or its neighbours: the figures are of one
life, whatever was measured before, unless ``life`` says that it was started anew.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from runbook import atomic, benchmark, cells, params, traffic
from runbook.benchmark.figures import (
    LATE_MS,
    WARM_UP_FAILED,
    Evidence,
    cached_of,
    failures_said,
    judge_cell,
)
from runbook.benchmark.request_log import RequestLog
from runbook.cells import Cell
from runbook.checks import Check, Verdict, counted
from runbook.engines.endpoint import Endpoint
from runbook.errors import BadInput, NotHere, ServerFailed
from runbook.load import LoadPlan, Prompt, Record, run_load
from runbook.load.arrivals import poisson, recorded
from runbook.load.context import again
from runbook.load.prompts import Workload, read_text
from runbook.probe.completion import name_few

#: Warm-up answers need not be longer: shapes and caches are warm by then.
_WARMUP_TOKENS = 32
_SEED = 1
#: Bound of an open loop; those beyond it wait, and their time runs.
_MOST_AT_ONCE = 1000
#: A greater share of prompt tokens out of the prefix cache is told.
_CACHED = 0.1
#: Requests of a cell where nobody says how many, and rounds of all its streams.
_REQUESTS, _ROUNDS = 16, 2

_COLUMNS = (
    ("rate /s", "rate_s", ".3g"),
    ("C", "concurrency", "d"),
    ("tok/s", "output_tok_s", ".1f"),
    ("TTFT p50 ms", "ttft_p50_ms", ".0f"),
    ("p99", "ttft_p99_ms", ".0f"),
    ("token p50 ms", "tpot_p50_ms", ".2f"),
    ("p99", "tpot_p99_ms", ".2f"),
    ("chunk p50 ms", "chunk_gap_p50_ms", ".2f"),
    ("longest", "chunk_gap_max_ms", ".0f"),
    ("end to end p50 ms", "e2e_p50_ms", ".0f"),
    ("p99", "e2e_p99_ms", ".0f"),
    ("acceptance", "accept_length", ".2f"),
    ("requests", "requests", "d"),
    ("errors", "errors", "d"),
    ("status", "status", "s"),
)


@dataclass(frozen=True)
class Asked:
    """What to measure. A cell sends ``requests``; where that is ``None``, 16, and two a stream.

    ``prompts``, ``system``, ``turns``, ``send``: as in ``params.Workload``. ``model``: ``None``
    for the only one there is. ``life``: number of the server life; give another one after each
    restart. ``rates_s``: open loops instead, a cell for each rate of Poisson arrivals;
    ``arrivals``: one with those of a log; ``traffic_units``: FIELD=UNIT of times in that log.
    """

    url: str
    concurrencies: tuple[int, ...] = (1, 8)
    requests: int | None = None
    output_tokens: int = 128
    prompts: str = "builtin"
    system: str = ""
    turns: Literal["last", "every"] = "last"
    send: tuple[Literal["tools", "images"], ...] = ()
    rates_s: tuple[float, ...] = ()
    arrivals: Path | None = None
    traffic_units: tuple[str, ...] = ()
    name: str = "endpoint"
    model: str | None = None
    api_key_file: str | None = None
    life: int = 1
    request_timeout_s: float = 600.0
    client_lag_ms: float = LATE_MS


@dataclass(frozen=True)
class Measured:
    """``cells`` in the order measured; ``workload``: the manifest of what was asked."""

    url: str
    model: str
    cells: tuple[Cell, ...]
    workload: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Plain values, the verdict among them."""
        cells_said = [asdict(cell) for cell in self.cells]
        return {**asdict(self), "cells": cells_said, "verdict": asdict(self.verdict())}

    def verdict(self) -> Verdict:
        """Negative where a load has no usable cell."""
        closed = tuple(replace(cell, rate_s=None) for cell in self.cells)
        return benchmark.verdict(benchmark.Measurements(closed, {}))


def bench(asked: Asked, out: Path | None, on_cell: Callable[[str], None]) -> Measured:
    """Measure every concurrency, each after a warm-up of its own shape.

    With ``out``, ``requests.jsonl`` grows as requests end, ``cells.csv`` as cells do, behind what
    is there already. Raises ``BadInput`` for what cannot be asked, ``NotHere`` where no server is.
    """
    asked = replace(asked, url=base_url(asked.url))
    _refuse(asked)
    workload = benchmark.workload_of(
        params.Workload(
            prompts=asked.prompts, system=asked.system, turns=asked.turns, send=list(asked.send)
        )
    )
    model = asked.model or find_model(asked.url, asked.api_key_file)
    manifest = workload.manifest.as_json()
    folder = _Folder(out, manifest)
    prompts = itertools.islice(_endless(workload), folder.asked_before(asked), None)
    measured = []
    try:
        for cell, arrivals_s in _cells(asked):
            measured.append(_measure(asked, model, cell, prompts, folder, arrivals_s))
            folder.enter(measured[-1])
            on_cell(as_line(measured[-1]))
    finally:
        folder.close()
    return Measured(asked.url, model, tuple(measured), manifest)


def _cells(asked: Asked) -> Iterator[tuple[Cell, tuple[float, ...]]]:
    """What is measured, with the arrivals where it is an open loop."""
    cell = Cell(asked.name, asked.life, asked.life, _MOST_AT_ONCE)
    for rate_s in asked.rates_s:
        yield replace(cell, rate_s=rate_s), poisson(rate_s, asked.requests or _REQUESTS, _SEED)
    if asked.arrivals:
        units = traffic.parse_units(asked.traffic_units)
        log = traffic.Log(read_text(asked.arrivals), str(asked.arrivals), units, ends=False)
        arrivals_s = recorded(log.begins_s(), asked.requests or _REQUESTS)
        rate_s = len(arrivals_s) / max(arrivals_s[-1], 1e-9)
        yield replace(cell, rate_s=rate_s), arrivals_s
    if not asked.rates_s and not asked.arrivals:
        for concurrency in asked.concurrencies:
            yield replace(cell, concurrency=concurrency), ()


def parse_rates(text: str) -> tuple[float, ...]:
    """``0.5,2`` as requests a second. Raises ``BadInput``."""
    words = text.replace(",", " ").split()
    if not words or not all(re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", word) for word in words):
        raise BadInput(f"--rate {text!a}", "requests a second, like 0.5,2", "correct --rate")
    rates = tuple(map(float, words))
    if 0 in rates:
        raise BadInput("--rate 0", "more than 0 requests a second", "correct --rate")
    return rates


def parse_concurrencies(text: str) -> tuple[int, ...]:
    """``1,8,30`` as numbers. Raises ``BadInput``."""
    words = text.replace(",", " ").split()
    if not words or not all(re.fullmatch("[1-9][0-9]{0,3}", word) for word in words):
        raise BadInput(
            f"--concurrency {text!a}",
            "whole numbers from 1 to 9999, like 1,8,30",
            "give numbers with commas between",
        )
    return tuple(map(int, words))


def _refuse(asked: Asked) -> None:
    if len(set(asked.concurrencies)) < len(asked.concurrencies):
        raise BadInput("a concurrency stands twice", "each once", "give each once")
    if not asked.name.strip() or not asked.name.isprintable():
        raise BadInput(f"the name {asked.name!a}", "printable characters", "give --name NAME")


def base_url(text: str) -> str:
    """The URL without ``/v1`` and what may follow. Raises ``BadInput`` for what is none."""
    wanted, do = "like http://127.0.0.1:30000", "give the address of the server"
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise BadInput(f"{text!a} is no URL ({error})", wanted, do) from None
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise BadInput(f"{text!a} is no URL of a server", wanted, do)
    if parts.username or parts.password:
        raise BadInput("a URL with a user or password in it", wanted, "give --api-key-file FILE")
    path = parts.path.partition("/v1")[0].rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def find_model(url: str, api_key_file: str | None) -> str:
    """The only model that a server names. Raises ``NotHere``, ``BadInput`` where there are more."""
    try:
        answer = Endpoint(url, api_key_file).get_json("/v1/models")
    except ServerFailed as error:
        raise NotHere(
            error.found, "an OpenAI-compatible server that is up", f"curl {url}/v1/models"
        ) from None
    listed = answer.get("data") if isinstance(answer, dict) else None
    entries = listed if isinstance(listed, list) else []
    said = [one.get("id") for one in entries if isinstance(one, dict)]
    names = [name for name in said if isinstance(name, str)]
    if len(names) != 1:
        found = name_few(names) if names else "no model"
        raise BadInput(f"{url}/v1/models names {found}", "one model", "give --model NAME")
    return names[0]


def _endless(workload: Workload) -> Iterator[Prompt]:
    """The prompts in a seeded order, over and over, those that come again with a number."""
    listed = benchmark.shuffled(workload.prompts, random.Random(_SEED))
    return (again(prompt, number) for number in itertools.count(1) for prompt in listed)


def _measure(
    asked: Asked,
    model: str,
    cell: Cell,
    prompts: Iterator[Prompt],
    folder: _Folder,
    arrivals_s: tuple[float, ...],
) -> Cell:
    """One cell: warm-up, load, judgement. An open loop's concurrency is the most at once."""
    usual = max(_REQUESTS, _ROUNDS * cell.concurrency)
    count = len(arrivals_s) or (usual if asked.requests is None else asked.requests)
    warmup = LoadPlan(
        url=asked.url,
        model=model,
        prompts=tuple(itertools.islice(prompts, cell.concurrency if cell.rate_s is None else 1)),
        requests=cell.concurrency if cell.rate_s is None else 1,
        concurrency=cell.concurrency,
        output_tokens=min(asked.output_tokens, _WARMUP_TOKENS),
        request_timeout_s=asked.request_timeout_s,
        api_key_file=asked.api_key_file,
    )
    warmed = run_load(warmup)
    plan = replace(
        warmup,
        prompts=tuple(itertools.islice(prompts, count)),
        requests=count,
        output_tokens=asked.output_tokens,
        arrivals_s=arrivals_s,
    )
    load = run_load(plan, lambda record: folder.append(cell, record))
    evidence = Evidence(
        accept_length(load.records),
        error_share=params.Limits().error_share,
        client_lag_ms=asked.client_lag_ms,
        remarks=(
            failures_said(warmed.records, WARM_UP_FAILED),
            cached_remark(load.records),
        ),
        checks=_enough(cell, count),
    )
    found = judge_cell(cell, load, evidence)
    return found if cell.rate_s is None else replace(found, concurrency=load.max_in_flight)


def cached_remark(records: Sequence[Record]) -> str:
    """How much of the prompts came from the prefix cache, where that is more than a template:
    nobody knows what an endpoint was asked before. Empty where it is not, or not told."""
    asked = sum(one.tokens_in or 0 for one in records if one.ok)
    share = (cached_of(records) or 0) / max(1, asked)
    return f"{share:.0%} of prompt tokens came from the prefix cache" if share > _CACHED else ""


def _enough(cell: Cell, requests: int) -> tuple[Check, ...]:
    """A check that fails where there are fewer requests than streams."""
    if cell.rate_s is not None or requests >= cell.concurrency:
        return ()
    wanted = f"{cell.concurrency} or more, one a stream"
    return (Check("requests", "fail", counted(requests, "request"), wanted),)


def accept_length(records: Sequence[Record]) -> float | None:
    """Output tokens per verify step over a cell; ``None`` unless every answer tells its steps."""
    told = [(one.tokens_out, one.verify_steps) for one in records if one.ok]
    known = [(tokens, steps) for tokens, steps in told if tokens is not None and steps]
    if not known or len(known) < len(told):
        return None
    return sum(tokens for tokens, _ in known) / sum(steps for _, steps in known)


class _Folder:
    """Where artefacts go, if anywhere; cells of earlier measurements stay."""

    def __init__(self, out: Path | None, manifest: dict[str, Any]) -> None:
        self._out = out
        self._cells: list[Cell] = []
        self._log: RequestLog | None = None
        if out is None:
            return
        try:
            out.mkdir(parents=True, exist_ok=True)
            table = out / "cells.csv"
            if table.exists():
                self._cells = cells.from_csv(table.read_text("utf-8"), str(table))
            self._log = RequestLog(out / "requests.jsonl")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{out} cannot be written to: {error}",
                "a folder for --out",
                "give a folder that you may write to",
            ) from None
        atomic.write(out / "workload.json", json.dumps(manifest, indent=1) + "\n")

    def asked_before(self, asked: Asked) -> int:
        """How many prompts this life was asked by the cells that are there: its prefix cache may
        hold them."""
        own = [one for one in self._cells if (one.config, one.life) == (asked.name, asked.life)]
        return sum(one.requests + (one.concurrency if one.rate_s is None else 1) for one in own)

    def append(self, cell: Cell, record: Record) -> None:
        """A request has ended."""
        if self._log is not None:
            self._log.record(cell, record)

    def enter(self, cell: Cell) -> None:
        """A cell has ended."""
        self._cells.append(cell)
        if self._out is not None:
            atomic.write(self._out / "cells.csv", cells.to_csv(self._cells))

    def close(self) -> None:
        """Nothing more will come."""
        if self._log is not None:
            self._log.close()


def as_line(cell: Cell) -> str:
    """A cell as a line of words."""
    said = []
    for title, column, form in _COLUMNS:
        value = getattr(cell, column)
        if column == "rate_s" and value is None:
            continue
        said.append(f"{title} {'unknown' if value is None else format(value, form)}")
    return "  ".join([*said, *([cell.note] if cell.note else [])])
