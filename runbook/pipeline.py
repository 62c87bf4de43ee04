"""The five notebooks, one after another, headless. The only module that knows papermill.

Each notebook is executed by a process of its own (``python -m runbook.pipeline``), so that
whatever happens to it, the runner keeps the to-do list true.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from runbook import atomic, benchmark, errors, scratch, streams
from runbook.errors import BadInput, Interrupted, NotHere
from runbook.params import Params
from runbook.preview import preview
from runbook.progress import clock
from runbook.run import NOT_APPLIED, RUNNER_PID, STAGES, STEPS, Run, clone_root
from runbook.watch import end_with_runner

NOTEBOOKS = {stage: f"{number:02}_{stage}.ipynb" for number, stage in enumerate(STAGES, 1)}

#: How often a notebook's process is looked at for being stuck; every fifth time a line is said.
LOOK_EVERY_S = 60.0

#: What a notebook may take beyond all the time-outs of its servers.
SLACK_S = 3600.0

#: What a notebook's process ends with where the disk is full or read-only.
NOT_WRITTEN = 74

Say = Callable[[str], None]

#: Descriptors for the output and the errors of notebooks; ``None``: the runner's own.
Outlets = tuple[int | None, int | None]


def prepare(
    parameters: Params, out: Path | None, first: str | None, last: str | None, resume: bool
) -> tuple[Run, list[str]]:
    """The run to work in, new or old, and the stages to execute. Raises ``BadInput``."""
    for stage in filter(None, [first, last]):
        if stage not in STAGES:
            near = difflib.get_close_matches(stage, STAGES, 1)
            hint = f"did you mean {near[0]}?" if near else "name one of these"
            raise BadInput(f"no stage is named {stage}", "one of " + ", ".join(STAGES), hint)
    preview(parameters)
    stages = _between(first, last)
    if not (resume or first):
        return Run.create(parameters, out), stages
    return (Run.open(out) if out else Run.newest(parameters, resume and not first)), stages


def _between(first: str | None, last: str | None) -> list[str]:
    start = STAGES.index(first) if first else 0
    end = STAGES.index(last) + 1 if last else len(STAGES)
    if start >= end:
        raise BadInput(
            f"--from {first} is after --to {last}",
            "stages in the order of the work: " + ", ".join(STAGES),
            "exchange the two",
        )
    return list(STAGES[start:end])


def run_stages(
    run: Run,
    parameters: Params,
    stages: list[str],
    apply: bool,
    say: Say,
    resume: bool = False,
    outlets: Outlets = (None, None),
) -> int:
    """Execute the notebooks of ``stages`` in ``run``; returns the exit code of the whole.

    ``resume``: only from the first stage on that is not done. Ends at the first negative verdict.
    Raises ``Interrupted`` on Ctrl-C or SIGTERM, ``RunBusy`` when another process works in the
    run, ``BadInput`` for parameters that are not the run's, or a stage before its time.
    """
    with run.locked(), _signals() as caught:
        run.take_over(parameters, STAGES[0] if resume else stages[0])
        stages = _undone(run, stages, apply) if resume else stages
        _refuse_early(run, stages)
        code = 0
        for stage in stages:
            say(f"{stage}: {NOTEBOOKS[stage]}")
            code = _execute(run, stage, apply, caught, say, outlets)
            if caught:
                _fail_open_steps(run, stage, f"interrupted by {caught[0].name}", 128 + caught[0])
            if code or caught:
                break
        written = _export(run, say)
        if caught:
            raise Interrupted(caught[0], stage, str(run.path), apply)
        return code or written


def _undone(run: Run, stages: list[str], apply: bool) -> list[str]:
    """The stages from the first one on that has something left to do.

    What was skipped because nothing was to be changed is left to do once it is to be (``apply``).
    """
    undone = [
        STEPS[step.name]
        for step in run.todo()
        if not step.done
        or (apply and step.status == "skipped" and step.reason.startswith(NOT_APPLIED))
    ]
    start = STAGES.index(undone[0]) if undone else len(STAGES)
    return [stage for stage in stages if STAGES.index(stage) >= start]


def _refuse_early(run: Run, stages: list[str]) -> None:
    """A stage needs the ones before it; a benchmark that failed may still be chosen from."""
    first = STAGES.index(stages[0]) if stages else 0
    for step in run.todo():
        failed = step.name == "benchmark" and step.status == "failed" and stages[:1] == ["choose"]
        if STAGES.index(STEPS[step.name]) < first and not step.done and not failed:
            raise BadInput(
                f"{step.name} is {step.status} in {run.path}",
                f"the stages before {stages[0]} done",
                f"--from {STEPS[step.name]}",
            )


def _execute(
    run: Run, stage: str, apply: bool, caught: list[signal.Signals], say: Say, outlets: Outlets
) -> int:
    """One notebook in a process of its own; returns 0, 1, 2 or 70."""
    steps = [step for step, owner in STEPS.items() if owner == stage]
    if apply or stage != "install_service":
        later = STAGES[STAGES.index(stage) :]
        run.reset([step for step, owner in STEPS.items() if owner in later])
    environment = {**os.environ, RUNNER_PID: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
    environment.pop("JPY_SESSION_NAME", None)
    argv = [sys.executable, "-m", "runbook.pipeline", stage, str(run.path), str(int(apply))]
    out, errs = outlets
    with subprocess.Popen(
        argv, env=environment, start_new_session=True, stdout=out, stderr=errs
    ) as process:
        said = _wait(process, run, stage, caught, say)
    ended = [step for step in run.todo() if step.name in steps]
    failed = next((step for step in ended if step.status == "failed"), None)
    if failed is not None:
        if failed.exit_code == 70 and (run.path / "fault.txt").exists():
            print(f"a fault of the runbook: report {run.path / 'fault.txt'}", file=sys.stderr)
        return failed.exit_code or 70
    undone = not all(step.done for step in ended)
    if said or undone:
        code, reason = 70, f"the notebook's process ended with {said}"
        if said == NOT_WRITTEN:
            code, reason = 1, f"{NOTEBOOKS[stage]} could not be written"
        elif undone:
            at = last_begun(run.path / NOTEBOOKS[stage])
            reason = f"{at}: its kernel died" if said else "the notebook ended without a verdict"
        _fail_open_steps(run, stage, reason, code)
        return code
    return 0


def _wait(
    process: subprocess.Popen[bytes],
    run: Run,
    stage: str,
    caught: list[signal.Signals],
    say: Say,
) -> int:
    """Wait for a notebook's process, saying now and then that it works; returns its exit code.

    One that is still there a while after all its steps have ended is stuck, and is ended; what it
    came to stands in the to-do list.
    """
    began = looked = time.monotonic()
    looks, done, longest_s = 0, False, _longest_s(run.params, stage)
    while process.poll() is None:
        if caught:
            _end(process, _grace_s(run, stage))
        elif time.monotonic() - began > longest_s:
            _end(process, _grace_s(run, stage))
            late = f"not at its end after {clock(longest_s)}, more than all time-outs allow"
            at = last_begun(run.path / NOTEBOOKS[stage])
            _fail_open_steps(run, stage, f"{at} was ended: {late}", 70)
        elif time.monotonic() - looked > LOOK_EVERY_S:
            looked, looks = time.monotonic(), looks + 1
            if done:
                say(f"{stage}: its notebook does not end after its verdict, and is ended")
                _end(process, 10)
                return 0
            own = [step for step in run.todo() if STEPS[step.name] == stage]
            done = all(step.done or step.status == "failed" for step in own)
            if looks % 5 == 0:
                say(f"{NOTEBOOKS[stage]}: at work for {clock(looked - began)}")
        time.sleep(0.05)
    return process.returncode


def last_begun(path: Path) -> str:
    """``cell 3 of 8 of 02_benchmark.ipynb``, by the numbers that Jupyter shows: the last cell that
    was begun; the name of the notebook alone where it does not tell."""
    import nbformat

    with contextlib.suppress(OSError, ValueError):
        book = nbformat.read(path, as_version=4)
        code = [cell for cell in book.cells if cell.cell_type == "code"]
        begun = [cell for cell in code if cell.metadata.get("papermill", {}).get("start_time")]
        if begun:
            return f"cell {len(begun)} of {len(code)} of {path.name}"
    return path.name


def _longest_s(params: Params, stage: str) -> float:
    """Seconds after which a notebook is stuck, whatever it does: a backstop, no forecast."""
    waits = params.server.timeouts
    starts_s = 20 * (waits.gpu_free_s + waits.start_s + waits.stop_s)
    return SLACK_S + (2 * benchmark.longest_s(params) if stage == "benchmark" else starts_s)


def _grace_s(run: Run, stage: str) -> float:
    """Seconds a notebook has to end: an install that is broken off brings the old service back."""
    waits = run.params.server.timeouts
    return 10 + (waits.start_s + waits.stop_s if stage == "install_service" else 0)


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End a notebook's process: its kernel is ended by it, servers by their owner."""
    process.terminate()
    try:
        process.wait(grace_s + 5)
    except subprocess.TimeoutExpired:
        process.kill()


def _fail_open_steps(run: Run, stage: str, reason: str, code: int) -> None:
    """What the stage left open has failed, else the first step that was not done."""
    left = [step for step in run.todo() if not step.done]
    own = [step for step in left if STEPS[step.name] == stage]
    opened = [step for step in own if step.status in ("in_progress", "interrupted", "failed")]
    for step in opened or own[:1] or left[:1]:
        run.finish(step.name, "failed", reason, code)


@contextmanager
def _signals() -> Iterator[list[signal.Signals]]:
    """Collect Ctrl-C and SIGTERM instead of dying of them.

    A SIGINT that is ignored stays so: a shell ignores it for the background jobs of a script, for
    which a Ctrl-C at the terminal is not meant.
    """
    caught: list[signal.Signals] = []

    def note(number: int, _frame: FrameType | None) -> None:
        caught.append(signal.Signals(number))

    collected = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        collected.remove(signal.SIGINT)
    before = {number: signal.signal(number, note) for number in collected}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _export(run: Run, say: Say) -> int:
    """Write the record; a fault of it must not hide what the run itself came to. An exit code."""
    from runbook.publish import document

    try:
        paths = document.export_all(run.path)
    except Exception as error:
        known = errors.of_the_machine(error)
        say(f"the record could not be written: {known or f'{type(error).__name__}: {error}'}")
        return known.exit_code if known else 70
    for path in paths:
        say(f"record: {path}")
    return 0


# --- inside the process of one notebook ----------------------------------------------------


def execute_notebook(stage: str, run_path: Path, apply: bool) -> int:
    """Execute one notebook in this process and leave it, whole, in the run folder."""
    import papermill  # type: ignore[import-untyped]
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError  # type: ignore[import-untyped]

    root = clone_root()
    if root is None:
        raise NotHere("no notebooks here", "a clone of the project", "run it from a clone")
    name = NOTEBOOKS[stage]
    # Kernels talk over sockets in this folder, and a Unix socket's path has 107 bytes at most:
    # neither the user's runtime folder nor the run folder may be short enough.
    with scratch.folder("runbook-kernel-") as working:
        folder = str(working)
        os.environ["JUPYTER_RUNTIME_DIR"] = folder
        # What a user's own IPython does at its start is no part of a run, which needs no home.
        os.environ["IPYTHONDIR"] = folder
        kernel_log = working / "kernel.log"
        half_written = working / name
        try:
            papermill.execute_notebook(
                str(root / "notebooks" / name),
                str(half_written),
                parameters={"run": str(run_path), "apply": apply},
                kernel_name="python3",
                progress_bar=False,
                stdout_file=sys.stdout,
                stderr_file=sys.stderr,
                cwd=str(root / "notebooks"),
                kernel_manager_class=_kernel_manager(
                    folder, kernel_log, _grace_s(Run.open(run_path), stage)
                ),
            )
        except DeadKernelError:
            said = kernel_log.read_text(errors="replace").strip().splitlines()[-20:]
            at = last_begun(half_written)
            print("\n".join([f"{at}: its kernel died", *said]), file=sys.stderr, flush=True)
            return 70
        except PapermillExecutionError as error:
            if error.ename != "NotProved" or "work.verdict(" not in error.source:
                at = last_begun(half_written)
                print(f"{at}: {error.ename}: {error.evalue}", file=sys.stderr, flush=True)
            return _note_failure(Run.open(run_path), stage, error.ename, error.evalue)
        finally:
            if half_written.exists():
                atomic.write(run_path / name, half_written.read_bytes())
    return 0


def _kernel_manager(folder: str, log: Path, grace_s: float) -> type:
    """Kernels that talk over sockets in ``folder``, not over open TCP.

    Without a connection file named they would lie in the working directory. ``log``: what the
    kernel itself says, which is of interest only when it dies. ``grace_s``: what an interrupted
    cell has to come to its end.
    """
    from jupyter_client.manager import AsyncKernelManager

    class IpcKernelManager(AsyncKernelManager):
        def __init__(self, **settings: Any) -> None:
            own = {"transport": "ipc", "connection_file": f"{folder}/kernel.json"}
            super().__init__(**{**settings, **own, "shutdown_wait_time": grace_s})

        async def _async_launch_kernel(self, kernel_cmd: list[str], **kw: Any) -> None:
            with log.open("ab") as file:
                await super()._async_launch_kernel(kernel_cmd, **{**kw, "stderr": file})

        _launch_kernel = _async_launch_kernel

    return IpcKernelManager


def _note_failure(run: Run, stage: str, kind: str, reason: str) -> int:
    """The exit code of an error a notebook ended with; notes it where the notebook could not."""
    known = getattr(errors, kind, None)
    code: int = getattr(known, "exit_code", 70)
    if not any(step.status == "failed" for step in run.todo() if STEPS[step.name] == stage):
        _fail_open_steps(run, stage, reason, code)
    return code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    streams.be_patient()
    end_with_runner()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        sys.exit(execute_notebook(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "1"))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        told = errors.of_the_machine(error)
        if told is None:
            raise
        print(told, file=sys.stderr)
        sys.exit(NOT_WRITTEN)
