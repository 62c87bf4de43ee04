"""The run folder and its to-do list: the whole story of a run, readable without the machine."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pydantic

from runbook import atomic, faults, params, scratch
from runbook.bounded import parse_json
from runbook.errors import BadInput, NotHere, RunBusy
from runbook.params import Params
from runbook.versions import versions

#: The to-do list, in the order of the work, and the stage (notebook) that does each step.
STEPS = {
    "verify_stack": "verify_stack",
    "benchmark": "benchmark",
    "choose": "choose",
    "draft": "choose",
    "install_service": "install_service",
    "boot": "install_service",
    "publish": "publish",
    "plan_document": "publish",
}
STAGES = tuple(dict.fromkeys(STEPS.values()))

#: Parameters that may change between stages of one run, and the stage that reads them first.
_STAGE_OF = {
    "stack": "verify_stack",
    "choose": "choose",
    "service": "install_service",
    "record": "publish",
}

StepStatus = Literal["pending", "in_progress", "completed", "failed", "skipped", "interrupted"]

#: How the reason of a step begins that was skipped because nothing was to be changed.
NOT_APPLIED = "apply is false"

#: Set by the runner for its kernels: they work under its lock and end when it ends.
RUNNER_PID = "RUNBOOK_RUNNER_PID"


@dataclass(frozen=True)
class Step:
    """One line of the to-do list; ``exit_code`` is what a failed step ends the run with."""

    name: str
    status: StepStatus = "pending"
    started: str | None = None
    ended: str | None = None
    reason: str = ""
    exit_code: int = 0
    owner: str = ""

    @property
    def done(self) -> bool:
        """Whether nothing is left to do for it: done, or left out on purpose."""
        return self.status in ("completed", "skipped")


_TODO = pydantic.TypeAdapter(list[Step])


def clone_root() -> Path | None:
    """The clone this package is run from (it holds notebooks and params), ``None`` for a wheel."""
    root = Path(__file__).resolve().parent.parent
    return root if (root / "notebooks").is_dir() and (root / "params").is_dir() else None


def outputs_root() -> Path:
    """Where new run folders go: ``outputs/`` of the clone, else of the current directory."""
    return (clone_root() or Path.cwd()) / "outputs"


def now() -> str:
    """UTC, to the second, as ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def process_mark(pid: int) -> str:
    """A mark that only this life of this process has: pid, start time and boot; empty when gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        return ""
    return "" if fields[0] in "ZX" else f"{pid}:{fields[19]}:{boot}"


def _newest_first(root: Path) -> list[Path]:
    """The run folders in ``root`` by when they were begun, then by name."""
    begun = {}
    for path in root.glob("*/run.json"):
        try:
            stored = parse_json(path.read_bytes())
        except (OSError, ValueError):
            continue
        begun[path.parent] = stored.get("created") or "" if isinstance(stored, dict) else ""
    return sorted(begun, key=lambda path: (begun[path], path.name), reverse=True)


class Run:
    """One run folder. Reading needs no lock; work is done under ``locked``."""

    def __init__(self, path: Path, parameters: Params) -> None:
        self.path = path.absolute()
        self.params = parameters

    # --- making and finding runs

    @classmethod
    def create(cls, parameters: Params, path: Path | None = None) -> Run:
        """A new run folder with parameters and to-do list. Raises ``BadInput`` when it exists."""
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        path = path or outputs_root() / f"{parameters.name}-{stamp}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and not (path.is_dir() and not any(path.iterdir())):
                raise BadInput(
                    f"{path} exists already",
                    "a new folder for a new run",
                    f"continue it with --resume --out '{path}', or name another",
                )
            path.mkdir(mode=0o700, exist_ok=True)
            path.chmod(0o700)
        except OSError as error:
            raise BadInput(
                f"{path}: {error.strerror}",
                "a folder that can be written",
                "name another with --out",
            ) from None
        run = cls(path, parameters)
        run.write("params.yaml", parameters.to_yaml())
        made_by = versions(clone_root())
        run._store([Step(name) for name in STEPS], created=now(), versions=made_by)
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """An existing run folder. Raises ``BadInput`` when it is none."""
        try:
            there = (path / "run.json").is_file() and (path / "params.yaml").is_file()
        except OSError as error:
            raise BadInput(
                f"{path}: {error.strerror}", "a run folder of your own", "run it as its owner"
            ) from None
        if not there:
            raise BadInput(
                f"{path} is no run folder", "a folder with run.json and params.yaml", "see outputs/"
            )
        return cls(path, params.load(path / "params.yaml"))

    @classmethod
    def newest(cls, parameters: Params, unfinished: bool = False, holding: str = "") -> Run:
        """The newest run of these parameters (same name and identity) in ``outputs``, under
        whatever name its folder has. Raises ``NotHere``.

        ``holding``: the newest that has this artefact, and only without one the newest at all.
        """
        found = []
        for path in _newest_first(outputs_root()):
            try:
                run = cls.open(path)
            except BadInput:
                continue
            same = run.params.name == parameters.name
            same = same and run.params.identity() == parameters.identity()
            if same and not (unfinished and run.finished):
                if (run.path / holding).exists():
                    return run
                found.append(run)
        if found:
            return found[0]
        kind = "unfinished run" if unfinished else "run"
        raise NotHere(
            f"no {kind} of these parameters ({parameters.name}, {parameters.identity()}) "
            f"in {outputs_root()}",
            "a run that has been started with them",
            "runbook run PARAMS",
        )

    def take_over(self, parameters: Params, at: str = STAGES[0]) -> None:
        """Go on with ``parameters`` at the stage ``at``: all that was measured must still hold,
        and so must what was done before ``at``. Raises ``BadInput``, and has changed nothing.

        Stages whose parameters have changed, and all after them, are to be done again. Called
        under the lock.
        """
        if parameters.identity() != self.params.identity() or parameters.name != self.params.name:
            raise BadInput(
                f"{self.path} was made with other parameters ({self.params.identity()})",
                f"the same server, configurations, workload, benchmark ({parameters.identity()})",
                "start a new run, or use the parameters of that run",
            )
        changed = [
            _STAGE_OF[key]
            for key in _STAGE_OF
            if getattr(parameters, key) != getattr(self.params, key)
        ]
        if not changed:
            return
        first = min(STAGES.index(stage) for stage in changed)
        if first < STAGES.index(at):
            stage, others = STAGES[first], ", ".join(self._other_keys(parameters))
            raise BadInput(
                f"{stage} was done with other parameters in {self.path}: {others}",
                f"those of its params.yaml, -p and all, in what comes before {at}",
                f"give those, or begin with what changes: runbook run PARAMS --from {stage}",
            )
        self.params = parameters
        self.write("params.yaml", parameters.to_yaml())
        self.reset([step for step, stage in STEPS.items() if STAGES.index(stage) >= first])

    def _other_keys(self, parameters: Params) -> list[str]:
        """The dotted keys that may change within a run and are other than the run's."""
        own = {key: dict(getattr(self.params, key)) for key in _STAGE_OF}
        return [
            f"{key}.{name}"
            for key in _STAGE_OF
            for name, value in dict(getattr(parameters, key)).items()
            if value != own[key][name]
        ]

    # --- artefacts

    def write(self, name: str, data: str | bytes) -> Path:
        """Write an artefact atomically, readable by its owner only; returns its path."""
        path = self.path / name
        atomic.write(path, data)
        return path

    def write_json(self, name: str, value: Any) -> Path:
        """Write a JSON artefact atomically."""
        text = json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False)
        return self.write(name, text + "\n")

    def read_json(self, name: str, kind: type[Any] = dict) -> Any | None:
        """Read a JSON artefact that holds a value of this kind; ``None`` when absent. Raises
        ``BadInput`` when it is damaged."""
        path = self.path / name
        try:
            value = parse_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise _damaged(path, str(error)) from None
        if value is not None and not isinstance(value, kind):
            raise _damaged(path, f"it holds a {type(value).__name__}, no {kind.__name__}")
        return value

    # --- the to-do list

    def todo(self) -> list[Step]:
        """The steps as they stand; an ``in_progress`` whose owner is dead reads ``interrupted``."""
        stored = self.read_json("run.json") or {}
        try:
            steps = _TODO.validate_python(stored.get("steps"))
            for moment in (moment for step in steps for moment in (step.started, step.ended)):
                datetime.fromisoformat(moment or now())
            if [step.name for step in steps] != [*STEPS]:
                raise ValueError("other steps")
        except ValueError:
            raise BadInput(
                f"{self.path}/run.json is no to-do list",
                "run.json as written",
                "start a new run: runbook run PARAMS",
            ) from None
        return [
            replace(step, status="interrupted", reason="its process is gone")
            if step.status == "in_progress" and not _is_at_work(step.owner)
            else step
            for step in steps
        ]

    def todo_rows(self) -> list[dict[str, Any]]:
        """The steps as plain data."""
        return [asdict(step) for step in self.todo()]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return all(step.done for step in self.todo())

    def step(self, name: str) -> Step:
        """One step of the to-do list."""
        return next(step for step in self.todo() if step.name == name)

    def begin(self, name: str) -> None:
        """Mark a step ``in_progress``, owned by this process."""
        self._change(name, status="in_progress", started=now(), ended=None, reason="", exit_code=0)

    def finish(self, name: str, status: StepStatus, reason: str = "", exit_code: int = 0) -> None:
        """Mark the end of a step: ``completed``, ``failed`` or ``skipped``, with the reason."""
        self._change(name, status=status, ended=now(), reason=reason, exit_code=exit_code)

    def restore(self, step: Step) -> None:
        """Put a step back as it was: what began has changed nothing."""
        self._store([step if one.name == step.name else one for one in self.todo()])

    def reset(self, names: list[str]) -> None:
        """Put steps back to ``pending``, as a re-run of their stage does."""
        for name in names:
            self._change(name, status="pending", started=None, ended=None, reason="", exit_code=0)

    def _change(self, name: str, **change: Any) -> None:
        owner = process_mark(os.getpid()) if change["status"] == "in_progress" else ""
        steps = [
            replace(step, **change, owner=owner) if step.name == name else step
            for step in self.todo()
        ]
        self._store(steps)

    def _store(self, steps: list[Step], **more: Any) -> None:
        stored = self.read_json("run.json") or {
            "name": self.params.name,
            "identity": self.params.identity(),
        }
        self.write_json("run.json", {**stored, **more, "steps": [asdict(step) for step in steps]})

    # --- one worker at a time

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run for this process. Raises ``RunBusy`` naming the holder.

        Inside a kernel that the runner started, the runner's lock is enough; and a process that
        holds the run may hold it again.
        """
        faults.belong_to(self.path)
        descriptor = os.open(self.path / "run.lock", os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = lock.read().strip() or "unknown"
                if holder in (str(os.getpid()), os.environ.get(RUNNER_PID)):
                    yield
                    return
                raise RunBusy(
                    f"process {holder} works in {self.path}", "one at a time", "wait, or stop it"
                ) from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            self._remove_half_written()
            yield

    def _remove_half_written(self) -> None:
        """What a killed writer left beside the artefacts."""
        for folder in (self.path, self.path / "service", self.path / "figures"):
            for path in folder.glob(f".*{atomic.SUFFIX}"):
                path.unlink(missing_ok=True)


def run_of_service(parameters: Params, stack: ExitStack, keep: bool = False) -> Run:
    """The run to operate a service by: the newest of these parameters that chose.

    Without one a new run, a scratch one unless it is to ``keep``: a host of its own may bear a
    service of no run. Raises ``NotHere`` where the host is the box of a run and there is none.
    """
    try:
        return Run.newest(parameters, holding="decision.json")
    except NotHere:
        if keep:
            return Run.create(parameters)
        if parameters.host.kind == "box":
            raise
    folder = stack.enter_context(scratch.folder("runbook-run-"))
    return Run.create(parameters, folder / "run")


def _damaged(path: Path, why: str) -> BadInput:
    return BadInput(
        f"{path} cannot be read: {why}",
        "JSON as the runbook wrote it",
        "run the stage that writes it again: runbook run PARAMS --from STAGE",
    )


def _is_at_work(owner: str) -> bool:
    """Whether the process of that mark still lives."""
    pid = owner.partition(":")[0]
    return pid.isdigit() and process_mark(int(pid)) == owner
