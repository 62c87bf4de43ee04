"""What every notebook begins and ends with: parameters in, its run opened, one verdict out.

A notebook calls ``open_stage`` once and ``Work.verdict`` last. With ``run`` set it works in that
run; opened alone it verifies or measures shortly (01, 02) or explores the example run (03 to 05).
"""

from __future__ import annotations

import atexit
import difflib
import os
import shutil
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from runbook import errors, hosts, params, scratch
from runbook.checks import Verdict
from runbook.engines import Engine, engine_for
from runbook.errors import NotHere, NotProved, ParameterError, RunbookError
from runbook.hosts.base import Host
from runbook.hosts.local import WithoutSystemd
from runbook.launch.process import ProcessLauncher
from runbook.launch.server import Launcher
from runbook.launch.spec import LaunchSpec
from runbook.launch.systemd import UnitLauncher
from runbook.params import Params
from runbook.progress import in_jupyterlab
from runbook.redaction import redact
from runbook.run import STEPS, Run, StepStatus, clone_root, process_mark
from runbook.watch import end_with_runner

Kind = Literal["run", "results", "alone", "example"]

#: These have a to-do list that is kept.
_KEPT = ("run", "results")
_LIVE_ALONE = ("verify_stack", "benchmark")


class Work:
    """One stage at work in one notebook.

    ``kind``: ``run`` works in a run folder, ``results`` in a new one that holds the figures of
    other tools; ``alone`` works live in a scratch one that goes with
    the kernel; ``example`` explores a scratch copy of the committed example.
    """

    def __init__(self, stage: str, run: Run, kind: Kind, apply: bool, stack: ExitStack) -> None:
        self.stage = stage
        self.run = run
        self.kind = kind
        self.apply = apply
        self._open = ExitStack()
        self._host: Host | None = None
        self._launcher: Launcher | None = None
        self._locked = False
        atexit.register(stack.close)
        atexit.register(self.close)

    @property
    def params(self) -> Params:
        """The effective parameters."""
        return self.run.params

    @property
    def folder(self) -> Path:
        """The folder with the artefacts."""
        return self.run.path

    @property
    def engine(self) -> Engine:
        """The engine of the parameters, with its API key."""
        return engine_for(self.params.server)

    def specs(self) -> dict[str, LaunchSpec]:
        """The whole launch of every configuration, by name."""
        return {
            one.name: self.engine.launch_spec(self.params, one)
            for one in self.params.configurations
        }

    @property
    def host(self) -> Host:
        """The host of the parameters, opened at first use and closed with the verdict.

        Where no box can be made it is this machine without a systemd, and says why.
        """
        if self._host is None:
            models = [Path(word) for spec in self.specs().values() for word in spec.argv[1:]]
            seen = [path for path in models if path.is_absolute() and path.exists()]
            try:
                opened = hosts.open_for(self.params, self.folder, seen)
                self._host = self._open.enter_context(opened)
            except NotHere as error:
                self._host = WithoutSystemd(error.found)
        return self._host

    @property
    def launcher(self) -> Launcher:
        """How servers are started for measuring: as runtime units where systemd is, else as
        processes."""
        if self._launcher is None:
            as_units = self.params.benchmark.launch == "unit"
            if as_units and self.host.why_no_systemd() is None:
                self._launcher = UnitLauncher(self.host)
            elif self.params.host.kind == "ssh":
                raise NotHere(
                    self.host.why_no_systemd() or "benchmark.launch is process",
                    "servers as units, on the host that ssh reaches",
                    "set benchmark.launch: unit, or run the runbook on the host itself",
                )
            else:
                self._launcher = ProcessLauncher(self.folder / "logs")
        return self._launcher

    def todo(self) -> Any:
        """The to-do list of the run as a table; a sentence where there is none."""
        from runbook.publish import sections
        from runbook.publish.tables import Markdown

        if self.kind == "alone":
            return Markdown(f"Working live, without a record, with `{self.params.name}`.")
        if self.kind == "example":
            print("the committed example run: nothing is measured and nothing is changed")
        return sections.todo_table(self.folder)

    def begin(self, step: str) -> None:
        """Mark a step as being worked on, under the lock of the run. Raises ``RunBusy``."""
        if self.kind in _KEPT:
            self.lock()
            if step not in self._open_steps():
                self.run.begin(step)

    def end(self, step: str, verdict: Verdict) -> None:
        """Mark a step as completed or failed by its verdict."""
        if self.kind in _KEPT:
            status: StepStatus = "completed" if verdict.ok else "failed"
            self.run.finish(step, status, verdict.text, 0 if verdict.ok else 1)

    def skip(self, step: str, reason: str) -> None:
        """Mark a step as left out on purpose; what an earlier run completed stays so."""
        if self.kind in _KEPT and self.run.step(step).status != "completed":
            self.run.finish(step, "skipped", reason)

    def lock(self) -> None:
        """Hold the run until the verdict, an error or ``close``. Raises ``RunBusy``."""
        if self.kind in _KEPT and not self._locked:
            self._open.enter_context(self.run.locked())
            self._locked = True

    def verdict(self, verdict: Verdict) -> None:
        """Close what is open, note the outcome, print the one line; raise when it is negative."""
        self.close()
        for step in self._open_steps():
            self.end(step, verdict)
        _say(verdict)
        if not verdict.ok:
            raise NotProved(verdict.text)

    def close(self) -> None:
        """Stop servers, close the host; safe to call twice."""
        self._host = self._launcher = None
        self._locked = False
        self._open.close()

    def _open_steps(self) -> list[str]:
        """The steps that this process works on; another's are not ours to end."""
        if self.kind not in _KEPT:
            return []
        mine = process_mark(os.getpid())
        return [
            step.name
            for step in self.run.todo()
            if STEPS[step.name] == self.stage
            and step.status == "in_progress"
            and step.owner == mine
        ]

    def fail(self, error: BaseException) -> None:
        """Note in the to-do list that this stage ended with ``error``."""
        self.close()
        error = errors.of_the_machine(error) or error
        code = error.exit_code if isinstance(error, RunbookError) else 70
        reason = str(error) or type(error).__name__
        if isinstance(error, KeyboardInterrupt):
            code, reason = 130, "interrupted"
        if code == 70:
            self.run.write("fault.txt", redact("".join(traceback.format_exception(error))))
        for step in self._open_steps():
            self.run.finish(step, "failed", reason, code)


def _say(verdict: Verdict) -> None:
    """The verdict's one line: for a person in JupyterLab in its colour, elsewhere plain."""
    if not in_jupyterlab():
        print(verdict, flush=True)
        return
    from runbook.publish.lab import show_verdict

    show_verdict(str(verdict), verdict.ok)


#: What a person reads who interrupted the kernel.
_INTERRUPTED = "interrupted. What this stage had started is stopped; run its cells again to go on"

#: The work of this kernel, so that an error is noted in its run and a second opening ends it.
_at_work: list[Work] = []


def open_stage(stage: str, values: Mapping[str, Any]) -> Work:
    """Begin a notebook: ``values`` are its globals after papermill's injection.

    Raises ``ParameterError`` for wrong values, ``NotHere`` where a run is missing.
    """
    end_with_runner()
    while _at_work:
        _at_work.pop().close()
    _speak_to_people()
    stack = ExitStack()
    parameters, apply = _given(values), _apply(values)
    run, kind = _choose_run(stage, values, parameters, stack)
    work = Work(stage, run, kind, apply, stack)
    work.lock()
    _at_work.append(work)
    if kind == "run" and parameters is not None:
        run.take_over(parameters, stage)
    if stage == "benchmark":
        _keep_figures(run, kind, values.get("figures", ""))
    return work


def _keep_figures(run: Run, kind: Kind, path: Any) -> None:
    """Keep figures that were measured elsewhere in the run. Raises ``BadInput``."""
    if not isinstance(path, str):
        raise ParameterError("papermill", "figures", repr(path), "the path of results")
    if not path:
        return
    if kind != "run":
        raise ParameterError("papermill", "figures", path, "run or parameters beside it")
    from runbook import foreign
    from runbook.verbs import given

    found = foreign.gather([Path(path)])
    given.accept(run.params, found, None, None)
    given.keep(run, found, [Path(path)])


def _given(values: Mapping[str, Any]) -> Params | None:
    """The parameters that were injected or typed into the notebook, ``None`` for none.

    A plain value under a name that is nearly a parameter's is a misspelt one, not a variable.
    """
    known = [*Params.model_fields, "run", "figures", "apply"]
    plain = (str, int, float, bool, list, dict)
    for name, value in values.items():
        if name in known or name.startswith("_") or not isinstance(value, plain):
            continue
        near = difflib.get_close_matches(name, known, 1, cutoff=0.75)
        if near:
            raise ParameterError("papermill", name, "an unknown key", ", ".join(known), near[0])
    given = {key: values[key] for key in Params.model_fields if values.get(key)}
    return params.from_values(given, "papermill") if given else None


def _apply(values: Mapping[str, Any]) -> bool:
    apply = values.get("apply", False)
    if not isinstance(apply, bool):
        raise ParameterError("papermill", "apply", repr(apply), "true or false")
    return apply


def _choose_run(
    stage: str, values: Mapping[str, Any], parameters: Params | None, stack: ExitStack
) -> tuple[Run, Kind]:
    """The run that is given, a new one, the newest of these parameters, or a scratch one."""
    name = values.get("run", "")
    if not isinstance(name, str):
        raise ParameterError("papermill", "run", repr(name), "the path of a run folder")
    if name:
        path = Path(name).expanduser()
        if stage == "choose" and path.exists() and not (path / "run.json").exists():
            return _of_results(path, parameters), "results"
        return Run.open(path), "run"
    if parameters is not None:
        run = Run.create(parameters) if stage in _LIVE_ALONE else Run.newest(parameters)
        print(f"run folder: {run.path}")
        return run, "run"
    folder = stack.enter_context(scratch.folder("runbook-run-")) / "run"
    if stage in _LIVE_ALONE:
        return Run.create(params.load(_in_clone("params/rehearsal.yaml")), folder), "alone"
    shutil.copytree(_in_clone("docs/example-run"), folder)
    return Run.open(folder), "example"


def _of_results(path: Path, parameters: Params | None) -> Run:
    """A new run of figures that another tool measured. Raises ``BadInput``."""
    from runbook.verbs.choosing import run_of_results

    given = parameters or params.load(_in_clone("params/rehearsal.yaml"))
    run = run_of_results(path, given, parameters is not None, None)
    print(f"figures of {path}; run folder: {run.path}")
    return run


def _in_clone(name: str) -> Path:
    root = clone_root()
    if root is None or not (root / name).exists():
        raise NotHere(f"no {name} here", "the notebooks of a clone", "set run, or -f params/X.yaml")
    return root / name


def _speak_to_people() -> None:
    """In a kernel: our errors show as their text alone, and every error is noted in the run."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        return

    def show(
        shell: Any, kind: type, error: BaseException, trace: Any, tb_offset: Any = None
    ) -> Any:
        for work in _at_work:
            work.fail(error)
        if isinstance(error, RunbookError) or (_at_work and isinstance(error, KeyboardInterrupt)):
            lines = [f"{kind.__name__}: {str(error) or _INTERRUPTED}"]
            shell._showtraceback(kind, error, lines)
            return lines
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
        return None

    shell.set_custom_exc((Exception, KeyboardInterrupt), show)  # type: ignore[no-untyped-call]
