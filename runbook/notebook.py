"""What every notebook begins and ends with: parameters in, its run opened, one verdict out.

A notebook calls ``open_stage`` once and ``Work.verdict`` last. With ``run`` set it works in that
run; opened alone it verifies or measures shortly (01, 02) or explores the example run (03 to 05).
"""

from __future__ import annotations

import atexit
import tempfile
import traceback
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from runbook import hosts, params
from runbook.checks import Verdict
from runbook.errors import NotHere, NotProved, ParameterError, RunbookError
from runbook.hosts.base import Host
from runbook.params import Params
from runbook.run import STEPS, Run, clone_root
from runbook.watch import end_with_runner

_LIVE_ALONE = ("verify_stack", "benchmark")


class Work:
    """One stage at work in one notebook.

    ``run`` is ``None`` when the notebook is opened alone and works live without a record;
    ``example`` says that ``run`` is the committed example, which nothing changes.
    """

    def __init__(
        self, stage: str, parameters: Params, run: Run | None, apply: bool, example: bool
    ) -> None:
        self.stage = stage
        self.params = parameters
        self.run = run
        self.apply = apply
        self.example = example
        self._open = ExitStack()
        self._host: Host | None = None
        atexit.register(self.close)

    @property
    def path(self) -> Path:
        """The run folder. Raises ``NotHere`` when the notebook was opened alone without one."""
        if self.run is None:
            raise NotHere("this notebook works without a run folder", "a run", "set run = ...")
        return self.run.path

    @property
    def recorded(self) -> Run | None:
        """The run whose to-do list this work may change, ``None`` for the example and for none."""
        return None if self.example else self.run

    @property
    def folder(self) -> Path:
        """Where this work may leave files: the run folder, or a temporary one that goes with it."""
        if self.recorded is not None:
            return self.recorded.path
        if not hasattr(self, "_folder"):
            name = self._open.enter_context(tempfile.TemporaryDirectory(prefix="runbook-"))
            self._folder = Path(name)
        return self._folder

    @property
    def host(self) -> Host:
        """The host of the parameters, opened at first use and closed with the verdict."""
        if self._host is None:
            self._host = self._open.enter_context(hosts.open_for(self.params, self.folder))
        return self._host

    def begin(self, step: str) -> None:
        """Mark a step of the to-do list as being worked on."""
        if self.recorded is not None:
            self.recorded.begin(step)

    def end(self, step: str, verdict: Verdict) -> None:
        """Mark a step as completed or failed by its verdict."""
        if self.recorded is not None:
            status = "completed" if verdict.ok else "failed"
            self.recorded.finish(step, status, verdict.text, 0 if verdict.ok else 1)  # type: ignore[arg-type]

    def skip(self, step: str, reason: str) -> None:
        """Mark a step as left out on purpose."""
        if self.recorded is not None:
            self.recorded.finish(step, "skipped", reason)

    def verdict(self, verdict: Verdict) -> None:
        """Close what is open, note the outcome, print the one line; raise when it is negative."""
        self.close()
        if self.recorded is not None:
            for step in self.recorded.todo():
                if STEPS[step.name] == self.stage and step.status == "in_progress":
                    self.end(step.name, verdict)
        print(verdict, flush=True)
        if not verdict.ok:
            raise NotProved(verdict.text)

    def close(self) -> None:
        """Stop servers, close the host; safe to call twice."""
        self._host = None
        self._open.close()

    def fail(self, error: BaseException) -> None:
        """Note in the to-do list that this stage ended with ``error``."""
        self.close()
        if self.recorded is None:
            return
        code = error.exit_code if isinstance(error, RunbookError) else 70
        reason = str(error) or type(error).__name__
        if isinstance(error, KeyboardInterrupt):
            code, reason = 130, "interrupted"
        if code == 70:
            self.recorded.write("fault.txt", "".join(traceback.format_exception(error)))
        for step in self.recorded.todo():
            if STEPS[step.name] == self.stage and step.status == "in_progress":
                self.recorded.finish(step.name, "failed", reason, code)


def open_stage(stage: str, values: Mapping[str, Any]) -> Work:
    """Begin a notebook: ``values`` are its globals after papermill's injection.

    Raises ``ParameterError`` for wrong values, ``NotHere`` where a run is missing.
    """
    end_with_runner()
    work = _choose_work(stage, values)
    _speak_to_people(work)
    if work.recorded is not None:
        lock = work.recorded.locked()
        work._open.enter_context(lock)
        work.begin(next(step for step, owner in STEPS.items() if owner == stage))
    return work


def _choose_work(stage: str, values: Mapping[str, Any]) -> Work:
    given = {key: values[key] for key in Params.model_fields if values.get(key)}
    apply, run_name = values.get("apply", False), values.get("run", "")
    if not isinstance(apply, bool):
        raise ParameterError("papermill", "apply", repr(apply), "true or false")
    if not isinstance(run_name, str):
        raise ParameterError("papermill", "run", repr(run_name), "the path of a run folder")
    parameters = params.from_values(given, "papermill") if given else None
    if run_name:
        run = Run.open(Path(run_name).expanduser())
        if parameters is not None and parameters.identity() != run.params.identity():
            raise ParameterError("papermill", "run", run_name, "a run of the same parameters")
        return Work(stage, run.params, run, apply, False)
    if parameters is not None:
        fresh = stage in _LIVE_ALONE
        run = Run.create(parameters) if fresh else Run.newest(parameters)
        print(f"run folder: {run.path}")
        return Work(stage, parameters, run, apply, False)
    if stage in _LIVE_ALONE:
        return Work(stage, _rehearsal(), None, False, False)
    run = Run.open(_in_clone("docs/example-run"))
    return Work(stage, run.params, run, False, True)


def _rehearsal() -> Params:
    return params.load(_in_clone("params/rehearsal.yaml"))


def _in_clone(name: str) -> Path:
    root = clone_root()
    if root is None or not (root / name).exists():
        raise NotHere(f"no {name} here", "the notebooks of a clone", "set run, or -f params/X.yaml")
    return root / name


def _speak_to_people(work: Work) -> None:
    """In a kernel: our errors show as their text alone, and every error is noted in the run."""
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    if shell is None:
        return

    def show(
        shell: Any, kind: type, error: BaseException, trace: Any, tb_offset: Any = None
    ) -> Any:
        work.fail(error)
        if isinstance(error, RunbookError):
            lines = [f"{kind.__name__}: {error}"]
            shell._showtraceback(kind, error, lines)
            return lines
        shell.showtraceback((kind, error, trace), tb_offset=tb_offset)
        return None

    shell.set_custom_exc((Exception, KeyboardInterrupt), show)
