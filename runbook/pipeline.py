"""The five notebooks, one after another, headless. The only module that knows papermill.

Each notebook is executed by a process of its own (``python -m runbook.pipeline``), so that
whatever happens to it, the runner keeps the to-do list true.
"""

from __future__ import annotations

import difflib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from runbook import atomic, errors
from runbook.errors import BadInput, Interrupted, NotHere
from runbook.params import Params
from runbook.preview import preview
from runbook.run import RUNNER_PID, STAGES, STEPS, Run, clone_root
from runbook.watch import end_with_runner

NOTEBOOKS = {stage: f"{number:02}_{stage}.ipynb" for number, stage in enumerate(STAGES, 1)}

_FOLDER = "rb-"

Say = Callable[[str], None]


def prepare(
    parameters: Params, out: Path | None, first: str | None, last: str | None, resume: bool
) -> tuple[Run, list[str]]:
    """The run to work in, new or old, and the stages to execute. Raises ``BadInput``."""
    for stage in filter(None, [first, last]):
        if stage not in STAGES:
            near = difflib.get_close_matches(stage, STAGES, 1)
            hint = f"did you mean {near[0]}?" if near else ""
            raise BadInput(f"no stage is named {stage}", "one of " + ", ".join(STAGES), hint)
    preview(parameters)
    stages = _between(first, last)
    if not (resume or first):
        return Run.create(parameters, out), stages
    run = Run.open(out) if out else Run.newest(parameters, unfinished=resume and not first)
    run.take_over(parameters)
    if resume and not first:
        undone = [STEPS[s.name] for s in run.todo() if s.status not in ("completed", "skipped")]
        stages = [
            stage for stage in stages if undone and STAGES.index(stage) >= STAGES.index(undone[0])
        ]
    return run, stages


def _between(first: str | None, last: str | None) -> list[str]:
    start = STAGES.index(first) if first else 0
    end = STAGES.index(last) + 1 if last else len(STAGES)
    if start >= end:
        raise BadInput(f"--from {first} is after --to {last}", "stages in the order of the work")
    return list(STAGES[start:end])


def run_stages(run: Run, stages: list[str], apply: bool, say: Say) -> int:
    """Execute the notebooks of ``stages`` in ``run``; returns the exit code of the whole.

    Ends at the first negative verdict. Raises ``Interrupted`` on Ctrl-C or SIGTERM, ``RunBusy``
    when another process works in the run.
    """
    _clear_folders_of_the_dead()
    with run.locked(), _signals() as caught:
        code = 0
        for stage in stages:
            say(f"{stage}: {NOTEBOOKS[stage]}")
            code = _execute(run, stage, apply, caught)
            if caught:
                _fail_open_steps(run, stage, f"interrupted by {caught[0].name}", 128 + caught[0])
            elif stage == "choose":
                _write_draft(run, say)
            if code or caught:
                break
        _export(run, say)
        if caught:
            raise Interrupted(caught[0], stage)
        return code


def _execute(run: Run, stage: str, apply: bool, caught: list[signal.Signals]) -> int:
    """One notebook in a process of its own; returns 0, 1, 2 or 70."""
    steps = [step for step, owner in STEPS.items() if owner == stage]
    run.reset(steps)
    environment = {**os.environ, RUNNER_PID: str(os.getpid()), "PYTHONUNBUFFERED": "1"}
    argv = [sys.executable, "-m", "runbook.pipeline", stage, str(run.path), str(int(apply))]
    with subprocess.Popen(argv, env=environment, start_new_session=True) as process:
        while process.poll() is None:
            if caught:
                _end(process)
            time.sleep(0.05)
    said = process.returncode
    ended = [step for step in run.todo() if step.name in steps]
    failed = next((step for step in ended if step.status == "failed"), None)
    if failed is not None:
        return failed.exit_code or 70
    still = next((step for step in ended if step.status in ("in_progress", "interrupted")), None)
    if said or still:
        reason = "its kernel died" if still else f"the notebook's process ended with {said}"
        _fail_open_steps(run, stage, reason, 70)
        return 70
    return 0


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a notebook's process: its kernel is ended by it, servers by their owner."""
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()


def _fail_open_steps(run: Run, stage: str, reason: str, code: int) -> None:
    """What the stage left open has failed; what it never began stays pending."""
    steps = [step for step in run.todo() if STEPS[step.name] == stage]
    opened = [step for step in steps if step.status in ("in_progress", "interrupted", "failed")]
    for step in opened or steps[:1]:
        run.finish(step.name, "failed", reason, code)


@contextmanager
def _signals() -> Iterator[list[signal.Signals]]:
    """Collect Ctrl-C and SIGTERM instead of dying of them."""
    caught: list[signal.Signals] = []

    def note(number: int, _frame: FrameType | None) -> None:
        caught.append(signal.Signals(number))

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write_draft(run: Run, say: Say) -> None:
    """The findings, before the service is touched."""
    run.begin("draft")
    path = _export(run, say)
    run.finish("draft", "completed", str(path.name))


def _export(run: Run, say: Say) -> Path:
    from runbook.publish import document

    path = document.export(run.path)
    say(f"record: {path}")
    return path


def _clear_folders_of_the_dead() -> None:
    """Working folders of notebook processes that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*"):
        pid = path.name.removeprefix(_FOLDER).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)


# --- inside the process of one notebook ----------------------------------------------------


def execute_notebook(stage: str, run_path: Path, apply: bool) -> int:
    """Execute one notebook in this process and leave it, whole, in the run folder."""
    import papermill  # type: ignore[import-untyped]
    from papermill.exceptions import PapermillExecutionError  # type: ignore[import-untyped]

    root = clone_root()
    if root is None:
        raise NotHere("no notebooks here", "a clone of the project", "run it from a clone")
    name = NOTEBOOKS[stage]
    # Kernels talk over sockets in this folder, and a Unix socket's path has 107 bytes at most:
    # neither the user's runtime folder nor the run folder may be short enough.
    with tempfile.TemporaryDirectory(prefix=f"{_FOLDER}{os.getpid()}-") as folder:
        os.environ["JUPYTER_RUNTIME_DIR"] = folder
        half_written = Path(folder) / name
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
                kernel_manager_class=_kernel_manager(),
            )
        except PapermillExecutionError as error:
            print(f"{name}: {error.ename}: {error.evalue}", file=sys.stderr, flush=True)
            return _note_failure(Run.open(run_path), stage, error.ename, error.evalue)
        finally:
            if half_written.exists():
                atomic.write(run_path / name, half_written.read_bytes())
    return 0


def _kernel_manager() -> type:
    """Kernels that talk over sockets in their runtime folder, not over open TCP."""
    from jupyter_client.manager import AsyncKernelManager

    class IpcKernelManager(AsyncKernelManager):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**{**settings, "transport": "ipc"})

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
    end_with_runner()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        sys.exit(execute_notebook(sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "1"))
    except KeyboardInterrupt:
        sys.exit(130)
