"""The command line: verbs that only dispatch. Exit codes as in ``runbook.errors``."""

from __future__ import annotations

import json
import signal
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from runbook import errors, faults, scratch, streams
from runbook.errors import RunbookError
from runbook.redaction import redact

if TYPE_CHECKING:
    from runbook.params import Format, Params
    from runbook.run import Run

Verb = TypeVar("Verb", bound=Callable[..., Any])

_PARAMS = click.argument("params_file", metavar="PARAMS", type=click.Path(path_type=Path))
_OVERRIDES = click.option(
    "-p", "overrides", metavar="KEY=VALUE", multiple=True, help="Set one parameter (dotted path)."
)
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _stages(context: click.Context, option: click.Parameter, incomplete: str) -> list[str]:
    """The stages that a shell may complete to."""
    from runbook.run import STAGES

    return [stage for stage in STAGES if stage.startswith(incomplete)]


def _run_folder(name: str = "run_folder") -> Callable[[Verb], Verb]:
    return click.argument(
        name, metavar="RUN", type=click.Path(path_type=Path), callback=_reports_lie_there
    )


def _reports_lie_there(_context: click.Context, _argument: click.Parameter, given: Path) -> Path:
    faults.belong_to(given.absolute())
    return given


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="golive-runbook", message="runbook %(version)s")
def verbs() -> None:
    """From benchmarked LLM serving configurations to a proved systemd service.

    Exit codes: 0 done and positive; 1 done, the verdict is negative; 2 bad input, nothing was
    started or changed; 70 a fault of the runbook, with a report file; 130, 143 interrupted.
    """
    scratch.clear()


@verbs.command()
@_PARAMS
@_OVERRIDES
@_AS_JSON
def check(params_file: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Validate PARAMS, print the resolved configurations and what the run will cost in time."""
    from runbook import preview

    shown = preview.preview(_load(params_file, overrides))
    click.echo(json.dumps(shown, indent=1) if as_json else preview.as_text(shown))


@verbs.command()
@_PARAMS
@click.option("--out", type=click.Path(path_type=Path), help="The run folder (default: a new one).")
@click.option(
    "--from",
    "first",
    metavar="STAGE",
    shell_complete=_stages,
    help="Start at this stage of an existing run.",
)
@click.option("--to", "last", metavar="STAGE", shell_complete=_stages, help="End with this stage.")
@click.option("--resume", is_flag=True, help="Go on with the newest unfinished run, or --out.")
@click.option("--apply", is_flag=True, help="Change the system: install the service.")
@click.option(
    "--figures",
    metavar="FILE",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Take figures measured elsewhere (file or folder) in the place of a benchmark.",
)
@click.option("--accept", metavar="REASON", help="Accept what --figures choose, for this reason.")
@click.option("--by", metavar="NAME", help="The person who accepts it.")
@click.option("--quiet", "-q", is_flag=True, help="Print the verdict of each stage alone.")
@click.option("--json", "as_json", is_flag=True, help="Print the to-do list in the end as JSON.")
@_OVERRIDES
def run(
    params_file: Path,
    out: Path | None,
    first: str | None,
    last: str | None,
    resume: bool,
    apply: bool,
    figures: tuple[Path, ...],
    accept: str | None,
    by: str | None,
    quiet: bool,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Run the notebooks in order: verify, benchmark, choose, install the service, publish.

    STAGE is verify_stack, benchmark, choose, install_service or publish. On a terminal it shows the
    to-do list while it works, elsewhere plain lines.

    With --figures nothing is benchmarked: the configuration that is accepted is started once, and
    one short cell is compared with the figures before it is installed.
    """
    from runbook import pipeline
    from runbook.screen import screen_for

    parameters = _load(params_file, overrides)
    given = None
    if figures or accept is not None or by is not None:
        parameters, given = _take_figures(parameters, figures, accept, by, bool(first or resume))
    chosen, stages = pipeline.prepare(parameters, out, first, last, resume)
    if given is not None:
        given(chosen)
    only_undone = resume and first is None
    try:
        with screen_for(chosen, quiet or as_json, sys.stderr if as_json else sys.stdout) as screen:
            screen.say(f"run folder: {chosen.path}")
            code = pipeline.run_stages(
                chosen, parameters, stages, apply, screen.say, only_undone, screen.outlets
            )
    finally:
        if as_json:
            found = {"run": str(chosen.path), "steps": chosen.todo_rows()}
            click.echo(json.dumps(found, indent=1))
    sys.exit(code)


def _take_figures(
    parameters: Params,
    paths: tuple[Path, ...],
    reason: str | None,
    by: str | None,
    continues: bool,
) -> tuple[Params, Callable[[Run], None]]:
    """The parameters with the accepted choice, and what keeps the figures in the new run."""
    from functools import partial

    from runbook.verbs import given

    if not paths:
        raise errors.BadInput(
            "--accept and --by without --figures",
            "figures that are accepted",
            "--figures FILE; a choice that this run measured: -p choose.override=...",
        )
    if continues:
        raise errors.BadInput(
            "--figures with --from or --resume",
            "figures at the beginning of a new run",
            "leave --figures away: the run has kept them",
        )
    found = given.read(parameters, paths)
    return given.accept(parameters, found, reason, by), partial(
        given.keep, figures=found, paths=paths
    )


@verbs.command()
@_run_folder()
@_AS_JSON
def status(run_folder: Path, as_json: bool) -> None:
    """Print the to-do list of RUN."""
    from runbook.run import Run

    steps = Run.open(run_folder).todo_rows()
    if as_json:
        click.echo(json.dumps(steps, indent=1))
        return
    for step in steps:
        times = " ".join(filter(None, [step["started"], step["ended"] and f"to {step['ended']}"]))
        line = f"{step['name']:<16} {step['status']:<12} {times:<45} {step['reason']}"
        click.echo(line.rstrip())


@verbs.command()
@_run_folder()
@click.option("--to", type=click.Path(path_type=Path), help="Where to write the document.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "html"]),
    help="html: one self-contained page. Default: record.formats; with --to, by its ending.",
)
def export(run_folder: Path, to: Path | None, form: Format | None) -> None:
    """Write the record of RUN (production_v2.md) with nbconvert, also of a half-finished run."""
    from runbook.publish import document
    from runbook.run import Run

    path = Run.open(run_folder).path
    if to is None and form is None:
        click.echo("\n".join(map(str, document.export_all(path))))
        return
    by_ending: Format = "html" if to and to.suffix in (".html", ".htm") else "markdown"
    click.echo(document.export(path, to, form=form or by_ending))


@verbs.command()
@_PARAMS
@click.option("--config", "name", metavar="NAME", help="The configuration (default: expected).")
@_OVERRIDES
def unit(params_file: Path, name: str | None, overrides: tuple[str, ...]) -> None:
    """Print the unit that would be installed for PARAMS; asks no host and changes nothing."""
    from runbook.verbs import service as service_verbs

    click.echo(service_verbs.unit_text(_load(params_file, overrides), name), nl=False)


@verbs.command()
@click.argument("params_file", metavar="[PARAMS]", required=False, type=click.Path(path_type=Path))
@click.option(
    "--from", "captured", metavar="DIR", type=click.Path(path_type=Path), help="Captured files."
)
@click.option(
    "--capture", metavar="DIR", type=click.Path(path_type=Path), help="Keep what was told there."
)
@click.option("--json", "as_json", is_flag=True, help="Nothing beside the JSON but the verdict.")
@_OVERRIDES
def facts(
    params_file: Path | None,
    captured: Path | None,
    capture: Path | None,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Print facts and checks of the host of PARAMS, or of this machine, as JSON.

    What did not pass is also told in words, beside the JSON. --from reads a folder that --capture
    wrote on another host: a file a command, one that is absent leaves its fact unknown.
    """
    from runbook.verbs import fact_finding

    parameters = _load(params_file, overrides) if params_file else None
    report = fact_finding.find_facts(parameters, captured, capture)
    click.echo(json.dumps(report.to_json(), indent=1))
    if not as_json:
        click.echo(fact_finding.as_text(report), err=True)
    click.echo(report.verdict, err=True)
    sys.exit(0 if report.verdict.ok else 1)


_TRAFFIC_UNIT = click.option(
    *("--traffic-unit", "traffic_units"),
    metavar="FIELD=UNIT",
    multiple=True,
    help="Unit of a time in LOG: s, ms, us, ns.",
)


@verbs.command()
@click.argument(
    "words",
    metavar="MEASUREMENTS... [PARAMS]",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
)
@click.option("--baseline", default="baseline", metavar="NAME", help="The reference in the files.")
@click.option("--traffic", metavar="LOG", type=click.Path(path_type=Path), help="Weigh by a log.")
@_TRAFFIC_UNIT
@click.option("--mix", metavar="C=SHARE,...", help="Share of time, like 1=0.15,30=0.6,100=0.25.")
@click.option("--margin", metavar="SHARE", help="What a gain must exceed, like 0.02 or 2%.")
@click.option(
    *("--limit", "limits"),
    metavar="C=LOSS",
    multiple=True,
    help="Loss allowed at C, like 1=10%; or ttft_p99_ms=MS, error_share=SHARE.",
)
@_AS_JSON
def choose(
    words: tuple[Path, ...],
    baseline: str,
    traffic: Path | None,
    traffic_units: tuple[str, ...],
    mix: str | None,
    margin: str | None,
    limits: tuple[str, ...],
    as_json: bool,
) -> None:
    """Decide from cells (config, concurrency, output_tok_s, ...) or from other tools' results.

    MEASUREMENTS are files or folders: CSV or JSONL of cells, a run folder, results of SGLang's
    bench_serving, vLLM's bench serve and sweep, GuideLLM, AIPerf, GenAI-Perf. Configurations are
    called as the file says, else as the file or folder is. PARAMS needs no more than the keys
    choose and configurations; --mix, --margin and --limit take the place of those in choose. LOG
    is JSONL or CSV of production requests with the times of each: the share of time at each load
    takes the place of the mix.
    """
    from runbook.traffic import parse_units
    from runbook.verbs import choosing

    measurements, params_file = choosing.split_words(words)
    terms = choosing.terms_of(params_file, mix, margin, limits)
    declared = parse_units(traffic_units)
    decision, verdict = choosing.choose_from_files(measurements, terms, baseline, traffic, declared)
    click.echo(decision.to_json() if as_json else choosing.as_text(decision))
    click.echo(verdict, err=as_json)
    sys.exit(0 if verdict.ok else 1)


@verbs.command()
@click.argument("url")
@click.option("--concurrency", "-c", default="1,8", show_default=True, help="Like 1,8,30.")
@click.option(
    "--requests",
    type=click.IntRange(1),
    help="Requests per cell [default: 16, or twice the concurrency where that is more].",
)
@click.option("--output-tokens", default=128, show_default=True, type=click.IntRange(2, 131072))
@click.option("--rate", metavar="LIST", help="Open loops: Poisson arrivals a second, like 0.5,2.")
@click.option("--arrivals", metavar="LOG", type=click.Path(path_type=Path), help="As in a log.")
@_TRAFFIC_UNIT
@click.option("--prompts", metavar="FILE", default="builtin", help="Own, ShareGPT or OpenAI form.")
@click.option("--system", metavar="FILE", default="", help="The system message all prompts share.")
@click.option("--turns", type=click.Choice(["last", "every"]), default="last", help="To answer.")
@click.option("--send", type=click.Choice(["tools", "images"]), multiple=True, help="As logged.")
@click.option("--name", default="endpoint", show_default=True, help="The configuration.")
@click.option("--model", help="Default: the only one there is.")
@click.option("--api-key-file", type=click.Path(resolve_path=True), help="Holds the key alone.")
@click.option("--life", default=1, type=click.IntRange(1), help="Count it up at each restart.")
@click.option("--timeout", default=600.0, type=click.FloatRange(0.001), help="Seconds a request.")
@click.option("--client-lag-ms", default=5.0, type=click.FloatRange(1), help="More voids the cell.")
@click.option("--out", type=click.Path(path_type=Path), help="For cells.csv and requests.jsonl.")
@_AS_JSON
def bench(
    url: str, concurrency: str, rate: str | None, out: Path | None, as_json: bool, **options: Any
) -> None:
    """Measure the OpenAI-compatible server at URL, which is up already.

    With --out, cells are added to those that lie there: measure one server after the other under
    its --name, then: runbook choose OUT. With --rate or --arrivals requests are sent at their
    times, whatever became of those before (an open loop), and latencies count from those times;
    such cells are not chosen from.
    """
    from runbook.verbs import benching

    options["request_timeout_s"] = options.pop("timeout")
    if rate is not None:
        options["rates_s"] = benching.parse_rates(rate)
    asked = benching.Asked(url, benching.parse_concurrencies(concurrency), **options)
    measured = benching.bench(asked, out, lambda line: click.echo(line, err=as_json))
    if as_json:
        click.echo(json.dumps(measured.as_json(), indent=1))
    verdict = measured.verdict()
    click.echo(verdict, err=as_json)
    sys.exit(0 if verdict.ok else 1)


@verbs.command()
@click.argument("place", metavar="PARAMS|RUN", type=click.Path(path_type=Path))
@_AS_JSON
@click.option("--watch", "every_s", type=float, metavar="SECONDS", help="Look until there is any.")
def drift(place: Path, as_json: bool, every_s: float | None) -> None:
    """Compare the running service with what was installed and measured; exit 1 with the list."""
    from runbook.verbs import drifting

    with drifting.opened(place, lambda path: _load(path, ())) as work:
        sys.exit(drifting.watch(work, every_s, click.echo, as_json))


@verbs.command()
@_run_folder("before")
@_run_folder("after")
@_AS_JSON
def compare(before: Path, after: Path, as_json: bool) -> None:
    """Print what changed between two runs: stack, parameters, servers, figures, choice."""
    from runbook.run import Run
    from runbook.verbs import comparing

    found = comparing.compare(Run.open(before), Run.open(after))
    click.echo(comparing.as_json(found) if as_json else comparing.as_text(found))


@verbs.command()
@click.option("--pid", type=click.IntRange(min=1), help="The process that was started by hand.")
@click.option("--unit", "unit_name", metavar="NAME", help="The unit that runs it.")
@click.option("--to", type=click.Path(path_type=Path), help="The file (default: printed).")
@click.option("--model", metavar="PATH", help="Its model, where its arguments name none.")
def adopt(pid: int | None, unit_name: str | None, to: Path | None, model: str | None) -> None:
    """Turn a running server of this machine into a parameters file; the server is left alone."""
    from runbook.verbs import adopting

    click.echo(adopting.adopt(pid, unit_name, to, model), nl=to is not None)


@verbs.group()
def service() -> None:
    """Plan, install, prove, roll back, look at and remove the service of PARAMS."""


def _nothing(verb: Verb) -> Verb:
    return verb


_UNMEASURED = click.option(
    "--unmeasured", metavar="REASON", help="Install what was not measured, and why."
)
_OVERWRITE_EDITS = click.option(
    "--overwrite-edits", is_flag=True, help="Replace hand edits; a backup is kept."
)
_AFTER_BOOT = click.option(
    "--after-boot", is_flag=True, help="Only how it came back at the last boot, undisturbed."
)

_COLD = click.option(
    "--cold",
    is_flag=True,
    help="Only a cold start: it is stopped, its model dropped from the page cache, and started.",
)

_PROMETHEUS = click.option(
    "--prometheus", metavar="DIR", help="Write its rules and its scrape there too, on the host."
)


def _service_verb(name: str, text: str) -> None:
    """Add one verb; each opens the host of the run and ends with its exit code."""

    @service.command(name, help=text)
    @_PARAMS
    @click.option("--run", "run_folder", type=click.Path(path_type=Path), help="Default: newest.")
    @(_UNMEASURED if name in ("plan", "install") else _nothing)
    @(_OVERWRITE_EDITS if name in ("install", "rollback", "uninstall") else _nothing)
    @(_AFTER_BOOT if name == "verify" else _nothing)
    @(_COLD if name == "verify" else _nothing)
    @(_PROMETHEUS if name == "monitoring" else _nothing)
    @_AS_JSON
    @_OVERRIDES
    def verb(
        params_file: Path,
        run_folder: Path | None,
        as_json: bool,
        overrides: tuple[str, ...],
        unmeasured: str | None = None,
        **given: Any,
    ) -> None:
        from runbook.verbs import service as service_verbs

        parameters = _load(params_file, overrides)
        with service_verbs.opened(name, parameters, run_folder, unmeasured, as_json) as desk:
            sys.exit(getattr(desk, name)(**given))


for _name, _text in {
    "plan": "Print unit, difference and meaning of an install; change nothing.",
    "install": "Print the plan, then apply it.",
    "verify": "Prove the installed service. It is stopped, killed, and a box rebooted and cut.",
    "rollback": "Print the plan that brings the last good generation back, then apply it.",
    "status": "Print what is installed and how it is; exit 1 when it is not as it should be.",
    "logs": "Print the end of the service's journal.",
    "monitoring": "Install the liveness check, the check for drift and, with --prometheus, alerts.",
    "uninstall": "Print what will be removed, then remove it.",
}.items():
    _service_verb(_name, _text)


@service.command()
@_PARAMS
@click.argument("configuration", metavar="CONFIG")
@click.option("--reason", required=True, metavar="WHY", help="Why, as the record shows it.")
@click.option("--by", required=True, metavar="NAME", help="The person who decides.")
@click.option("--run", "run_folder", type=click.Path(path_type=Path), help="Default: newest.")
@_OVERRIDES
def switch(
    params_file: Path,
    configuration: str,
    reason: str,
    by: str,
    run_folder: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Serve CONFIG, another configuration that was measured, and refresh the record.

    It is installed and proved like any choice, and a roll back brings the former one back.
    Example: runbook service switch PARAMS baseline --reason 'C=1 is too slow' --by 'J. Doe'
    """
    from runbook import pipeline
    from runbook.screen import screen_for
    from runbook.verbs import service as service_verbs

    parameters = _load(params_file, overrides)
    run, terms = service_verbs.switched(parameters, configuration, reason, by, run_folder)
    with screen_for(run, False, sys.stdout) as screen:
        screen.say(f"run folder: {run.path}")
        stages = ["choose", "install_service", "publish"]
        sys.exit(pipeline.run_stages(run, terms, stages, True, screen.say, False, screen.outlets))


def _load(params_file: Path, overrides: tuple[str, ...]) -> Any:
    from runbook import params

    return params.load(params_file, overrides)


def main() -> None:
    """Entry point: every error for people ends with its text and its exit code."""
    streams.be_patient()
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = verbs.main(standalone_mode=False)
    except click.exceptions.Exit as ended:
        code = ended.exit_code
    except click.ClickException as error:
        error.show()
        code = 2
    except (click.exceptions.Abort, KeyboardInterrupt) as error:
        click.echo("runbook: interrupted", err=True)
        code = 143 if isinstance(error, _Terminated) else 130
    except SystemExit as ended:
        code = ended.code
    except Exception as error:
        known = error if isinstance(error, RunbookError) else errors.of_the_machine(error)
        if known is None:
            code = _report_fault(error)
        else:
            click.echo(f"runbook: {known}", err=True)
            code = known.exit_code
    sys.exit(_all_said(code if isinstance(code, int) else 0))


def _all_said(code: int) -> int:
    """The exit code; a result of which something is lost is none."""
    if code or not (why := streams.lost(sys.stdout)):
        return code
    click.echo(
        f"runbook: what was to be said could not be written: {why}\n"
        "  wanted: room where standard output goes\n  next: make room, then repeat this",
        err=True,
    )
    return 1


class _Terminated(KeyboardInterrupt):
    """SIGTERM: what is at work is undone as after Ctrl-C."""


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated


def _show_warning(message: Warning | str, *_where: Any) -> None:
    click.echo(f"runbook: note: {message}", err=True)


def _report_fault(error: Exception) -> int:
    """A fault of ours: the traceback goes to a file, the person gets one sentence."""
    told, file = faults.report(error)
    if file is None:
        click.echo(told, err=True)
    click.echo(
        f"runbook: a fault of the runbook itself ({type(error).__name__}: {redact(str(error))})\n"
        f"  next: report it with {file or 'the lines above'}",
        err=True,
    )
    return 70


if __name__ == "__main__":
    main()
