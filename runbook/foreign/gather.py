"""From files to cells: names and lives given, repetitions kept together, differences named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runbook.cells import Cell
from runbook.errors import BadInput
from runbook.foreign import files, formats
from runbook.foreign.fairness import unlike_servers
from runbook.foreign.names import Named, PathName, name_by_words, tell_apart, words_of_path
from runbook.foreign.repeats import Placed, each_once
from runbook.foreign.result import Result

_FOLDERS_UP = 5


@dataclass(frozen=True)
class Found:
    """Cells of result files; ``notes``: what a reader of the decision must know of them.

    ``timed``: the configurations whose runs were bounded by time, not by a number of requests.
    """

    cells: tuple[Cell, ...]
    notes: tuple[str, ...]
    timed: frozenset[str] = frozenset()


def gather(paths: Sequence[Path]) -> Found:
    """Read files and folders of results, the form of each found by its content.

    All runs of a configuration count as one server life, since no tool starts servers, unless
    names of files, folders, labels or tags say ``life2`` or ``block2``. Raises ``BadInput``.
    """
    tables, read, unknown = _read(paths)
    results = _one_context(_named(read))
    cells, repeats = each_once(
        [
            *(row for row in tables if row.cell.rate_s is None),
            *(_cell(one, named) for one, named in results if one.concurrency),
        ]
    )
    notes = (
        *_open_loops(tables),
        *repeats,
        *_left_out(results, unknown),
        *_definitions(results),
        *unlike_servers(results),
    )
    if not cells:
        raise BadInput(
            "; ".join(notes) or "no result in the files named",
            "results at a concurrency that the tool was told to keep",
            "measure with a closed loop (--max-concurrency, --concurrency), or write a CSV",
        )
    timed = frozenset(named.config for one, named in results if one.timed)
    return Found(cells, notes, timed)


def _read(
    paths: Sequence[Path],
) -> tuple[list[Placed], list[tuple[Result, Path]], list[Path]]:
    """Rows of tables, results of tools, and the files in folders that hold neither."""
    tables: list[Placed] = []
    read: list[tuple[Result, Path]] = []
    unknown: list[Path] = []
    whole_folders = [path for path in paths if path.is_dir()]
    for path in files.files_in(paths):
        try:
            found = formats.read_text(files.read_text(path), str(path))
        except formats.UnknownForm:
            if not any(folder in path.parents for folder in whole_folders):
                raise
            unknown.append(path)
            continue
        for one in found:
            if isinstance(one, Result):
                read.append((one, path))
            else:
                tables.append(Placed(*one))
    return tables, read, unknown


def _open_loops(rows: Sequence[Placed]) -> Iterator[str]:
    for row in rows:
        if row.cell.rate_s is not None:
            yield f"left out: {row.cell.config} at {row.cell.rate_s:g}/s: an open loop"


def _one_context(results: list[tuple[Result, Named]]) -> list[tuple[Result, Named]]:
    """Without contexts where some name one and the others none: no other length is in play."""
    contexts = {one.context_tokens for one, _ in results}
    if len(contexts) == 2 and None in contexts:
        return [(replace(one, context_tokens=None), named) for one, named in results]
    return results


def _named(read: Sequence[tuple[Result, Path]]) -> list[tuple[Result, Named]]:
    """Each result with its name: the label that the file bears, else by its path."""
    by_path = iter(tell_apart([_words(one, path) for one, path in read if not one.name]))
    found = [
        (one, name_by_words(one.name, one.concurrency) if one.name else next(by_path))
        for one, _ in read
    ]
    for one, named in found:
        if not named.config.isprintable():
            raise BadInput(
                f"{one.place}: {named.config!a} is no name for a configuration",
                "printable characters",
                "name it in the file or by the file's name",
            )
    return found


def _words(result: Result, path: Path) -> PathName:
    parents = path.absolute().parents
    folders = [folder.name for folder in parents if folder.name][:_FOLDERS_UP]
    return words_of_path([path.stem, *folders], result.concurrency)


def _cell(result: Result, named: Named) -> Placed:
    assert result.concurrency is not None
    void = list(result.void)
    if result.output_tok_s is None:
        void.append("the output throughput is unknown")
    life = named.life or 1
    cell = Cell(
        named.config,
        life,
        life,
        result.concurrency,
        context_tokens=result.context_tokens,
        requests=result.requests or 0,
        tokens_in=result.input_tokens,
        tokens_out=result.output_tokens,
        output_tok_s=result.output_tok_s,
        ttft_p50_ms=result.ttft_p50_ms,
        ttft_p99_ms=result.ttft_p99_ms,
        tpot_p50_ms=result.tpot_p50_ms,
        tpot_p99_ms=result.tpot_p99_ms,
        accept_length=result.accept_length,
        errors=result.errors or 0,
        status="void" if void else "ok",
        note="; ".join([*void, *result.remarks]),
    )
    return Placed(result.place, cell, result.run or named.run)


def _left_out(results: Sequence[tuple[Result, Named]], unknown: Sequence[Path]) -> Iterator[str]:
    for result, named in results:
        if not result.concurrency:
            why = "; ".join(result.void) or "it names no concurrency that was kept"
            yield f"left out: {named.config} ({result.place}): {why}"
        elif result.void:
            what = f"{named.config} at C={result.concurrency}"
            yield f"not compared: {what}: {'; '.join(result.void)}"
    if unknown:
        listed = ", ".join(path.name for path in unknown[:5])
        more = f" and {len(unknown) - 5} more" if len(unknown) > 5 else ""
        yield f"passed over, no results in them: {listed}{more}"


def _definitions(results: Sequence[tuple[Result, Named]]) -> Iterator[str]:
    """How the figures were defined; that no tool knows of server lives."""
    tools = list(dict.fromkeys(result.tool for result, _ in results))
    for one in formats.FORMATS:
        if one.tool in tools:
            yield f"as {one.tool} defines them: " + "; ".join(one.definitions)
    if len(tools) > 1:
        yield "figures of " + " and ".join(tools) + " stand side by side: they differ by definition"
    if results and not any(named.life for _, named in results):
        yield (
            "all runs of a configuration count as one server life; where each had its own, say so "
            "in the names of files or folders (life1, life2)"
        )
    remarks: dict[str, list[str]] = {}
    for result, named in results:
        for remark in result.remarks:
            remarks.setdefault(remark, []).append(f"{named.config} C={result.concurrency}")
    for remark, where in remarks.items():
        shown = ", ".join(where[:4]) + (f" and {len(where) - 4} more" if len(where) > 4 else "")
        yield f"{shown}: {remark}"
