"""The keys of a parameters file, typed, with their defaults and how they must agree."""

from __future__ import annotations

import difflib
import hashlib
import json
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from runbook import strict_yaml
from runbook.cells import point_label
from runbook.errors import BadInput
from runbook.params.kinds import (
    BASELINE,
    AbsolutePath,
    Address,
    Argument,
    Concurrency,
    EnvName,
    FilePath,
    Format,
    Gib,
    Level,
    LimitName,
    Line,
    Name,
    NumberList,
    OtherUnit,
    Port,
    Seconds,
    Sha256,
    Share,
    Topology,
    Umask,
    UnitName,
    UserName,
    VersionRange,
    is_everywhere,
)
from runbook.redaction import names_secret

#: Concurrency, and tokens of context: 0 for the prompts as they are, ``None`` where none is named.
Point = tuple[int, int | None]


class Disagreement(ValueError):
    """Parameters that do not fit each other; ``key`` is the one to correct, below its model."""

    def __init__(self, key: str, found: str, wanted: str, near: str | None = None) -> None:
        super().__init__(found)
        self.key, self.found, self.wanted, self.near = key, found, wanted, near


class Strict(BaseModel):
    """No unknown keys, no coercion, immutable."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Host(Strict):
    """Where the service will live."""

    kind: Literal["local", "box", "ssh"] = Field("local", description="local, box or ssh")
    address: str | None = Field(None, description="ssh: user@host, or ssh://user@host:port")
    ssh_config: AbsolutePath | Literal[""] = Field("", description="empty: the user's own")
    sudo: bool = Field(False, description="commands run through sudo -n, for who is not root")

    @model_validator(mode="after")
    def _address_belongs_to_ssh(self) -> Host:
        if (self.kind == "ssh") != (self.address is not None):
            raise ValueError("address is for kind: ssh, and ssh needs one")
        if self.address is not None and self.address.startswith("-"):
            raise ValueError("address is an option of ssh, not a host")
        if self.sudo and self.kind == "box":
            raise ValueError("sudo is for kind: local or ssh")
        return self


class Stack(Strict):
    """What verify_stack requires; ``checks`` sets a level for a check by its name.

    ``fail``: a warning, and an answer that cannot be had, count as failed. ``warn``: a failure
    only warns. ``off``: not looked at.
    """

    python: VersionRange = Field("", description="version range of the serving interpreter")
    engine_version: VersionRange = Field("", description="version range of the server, as in pip")
    packages: dict[str, VersionRange] = Field(
        default_factory=dict, description="further packages there: name, version range or empty"
    )
    tools: list[str] = Field(default_factory=list, description="programs on the server's PATH")
    min_cores: Annotated[int, Field(ge=1)] = Field(1, description="processors the server may use")
    min_memory_gib: Gib = Field(0.0, description="memory available, at least")
    want_memory_gib: Gib = Field(0.0, description="less available memory than this only warns")
    min_disk_gib: Gib = Field(0.0, description="free at server.cwd")
    want_model_disk_gib: Gib = Field(
        0.0, description="less free room at the path of model or draft only warns"
    )
    min_shm_gib: Gib = Field(0.0, description="free in /dev/shm, at least")
    want_shm_gib: Gib = Field(0.0, description="less free room in /dev/shm only warns")
    min_nofile: Annotated[int, Field(ge=0)] = Field(1025, description="open files, at least")
    model_sha256: Sha256 | Literal[""] = Field("", description="of the model file, empty: any")
    hash_up_to_gib: Gib = Field(8.0, description="larger model files are not hashed")
    gpus: Annotated[int, Field(ge=0)] = Field(0, description="GPUs expected; 0 for none")
    gpu_name: str = Field("", description="text every GPU's name must hold")
    gpu_memory_gib: Gib = Field(0.0, description="memory of every GPU, at least")
    compute_cap: str = Field("", description='compute capability of every GPU, like "12.0"')
    gpu_used_mib: Annotated[float, Field(gt=0)] = Field(
        1024.0, description="memory in use on any GPU when a server is started, at most"
    )
    driver_version: VersionRange = Field("", description="version range of the NVIDIA driver")
    pcie_gen: Annotated[int, Field(ge=0, le=9)] = Field(0, description="every link, at least")
    pcie_width: Annotated[int, Field(ge=0, le=32)] = Field(0, description="lanes, at least")
    topology: Topology = Field("", description="class the NCCL settings were tuned for")
    nvcc: VersionRange = Field(">=12.9", description="version range of the CUDA compiler")
    nccl: VersionRange = Field(
        "!=2.26.2,!=2.30.4", description="version range of NCCL, without builds known to hang"
    )
    collective_s: Seconds = Field(120.0, description="time limit of a trial all-reduce")
    collective_us: dict[str, Annotated[float, Field(gt=0)]] = Field(
        default_factory=dict,
        description="its recorded microseconds by bytes (32768, 262144, 33554432)",
    )
    collective_slower: Annotated[float, Field(gt=1)] = Field(
        1.3, description="slower than recorded by this factor warns"
    )
    busy_percent: Annotated[float, Field(gt=0, le=100)] = Field(
        95.0, description="use of a card from which on it is at work"
    )
    hang_power: Annotated[float, Field(gt=0, le=1)] = Field(
        0.4, description="share of its power limit below which a card at work waits for another"
    )
    small_bar_mib: Annotated[float, Field(gt=0)] = Field(
        256.0, description="BAR1 up to which cards cannot reach one another's memory"
    )
    governor: str = Field("performance", description="frequency governor; another only warns")
    max_swappiness: Annotated[int, Field(ge=0, le=200)] = Field(
        10, description="vm.swappiness; more only warns"
    )
    context_tokens: Annotated[int, Field(ge=0)] = Field(
        0,
        description="longest prompts to serve: every server is asked one before it is measured, a "
        "draft with fewer positions only warns",
    )
    checks: dict[str, Level] = Field(default_factory=dict, description="check name: level")


class ApiKey(Strict):
    """Where the server's key comes from; the value itself is never a parameter."""

    file: AbsolutePath = Field(description="a file, mode 0600, that holds the key alone")


class Timeouts(Strict):
    """How long to wait, in seconds."""

    start_s: Seconds = Field(600.0, description="from start to the first completion")
    stop_s: Seconds = Field(60.0, description="from SIGTERM to the end")
    request_s: Seconds = Field(600.0, description="one request, whole")
    gpu_free_s: Seconds = Field(120.0, description="for GPU memory to be free before a start")
    silent_s: Seconds = Field(
        120.0, description="a start without a line in its log and with GPUs busy at little power"
    )


class Process(Strict):
    """What the process has besides its environment, in units and measured processes alike; what is
    empty or null is as systemd gives it."""

    cpus: NumberList | Literal[""] = Field("", description='processors it may use, like "0-31,64"')
    numa_policy: Literal["", "default", "preferred", "bind", "interleave", "local"] = Field(
        "", description="where its memory lies: preferred, bind and interleave need numa_nodes"
    )
    numa_nodes: NumberList | Literal[""] = Field("", description='memory nodes, like "0-1"')
    nice: Annotated[int, Field(ge=-20, le=19)] | None = Field(None, description="-20 to 19")
    io_class: Literal["", "realtime", "best-effort", "idle"] = Field(
        "", description="its class at the disk"
    )
    io_priority: Annotated[int, Field(ge=0, le=7)] | None = Field(
        None, description="inside its class, 0 is first"
    )
    cpu_policy: Literal["", "other", "batch", "idle", "fifo", "rr"] = Field(
        "", description="how the kernel schedules it"
    )
    cpu_priority: Annotated[int, Field(ge=1, le=99)] | None = Field(
        None, description="of fifo and rr, 99 is first"
    )
    oom_score_adjust: Annotated[int, Field(ge=-1000, le=1000)] | None = Field(
        None, description="who is ended first when memory is short; null: -500"
    )
    umask: Umask | Literal[""] = Field(
        "", description='rights it takes from new files, like "0027"'
    )

    @model_validator(mode="after")
    def _belong_together(self) -> Process:
        if (self.numa_policy in ("preferred", "bind", "interleave")) != bool(self.numa_nodes):
            raise ValueError("numa_nodes is for preferred, bind and interleave, which need it")
        if (self.cpu_policy in ("fifo", "rr")) != (self.cpu_priority is not None):
            raise ValueError("cpu_priority is for fifo and rr, which need it")
        return self

    def given(self) -> dict[str, str | int]:
        """What is neither empty nor null, by name."""
        return {n: value for n, value in self.model_dump().items() if value not in ("", None)}


class Server(Strict):
    """The server all configurations share."""

    engine: Literal["llamacpp", "sglang"] = Field(description="the server's program")
    interpreter: AbsolutePath | Literal["", "embedded:sglang"] = Field(
        "", description="empty: the runbook's own; embedded:sglang: that of make setup-sglang"
    )
    cwd: AbsolutePath = Field("/", description="working directory of the server")
    user: UserName | Literal[""] = Field("", description="empty: root")
    address: Address = Field("127.0.0.1", description="bind address")
    port: Port = Field(description="where it listens; measured servers and the service share it")
    model: str = Field(min_length=1, description="path of the target, or embedded:NAME")
    draft: str = Field("", description="path of the draft or embedded:NAME, empty for none")
    args: list[Argument] = Field(default_factory=list, description="for all configurations")
    env: dict[EnvName, Line] = Field(default_factory=dict, description="for all configurations")
    process: Process = Field(Process(), description="processors, memory nodes, priorities")
    timeouts: Timeouts = Field(Timeouts(), description="how long to wait")
    api_key: ApiKey | None = Field(None, description="null: the server takes no key")
    open_to_all: bool = Field(
        False, description="true: it may listen on all addresses without a key"
    )

    @model_validator(mode="after")
    def _not_open_to_all(self) -> Server:
        if is_everywhere(self.address) and self.api_key is None and not self.open_to_all:
            raise ValueError(
                f"address {self.address!r} listens on all addresses without a key: set "
                "server.api_key.file, a narrower address, or server.open_to_all: true"
            )
        return self


class Configuration(Strict):
    """One of the things compared; ``args`` and ``env`` come after the server's."""

    name: Name = Field(description="one of them is named baseline: the reference")
    label: Line = Field("", description="for people")
    args: list[Argument] = Field(default_factory=list, description="after server.args")
    env: dict[EnvName, Line] = Field(default_factory=dict, description="over server.env")


class Workload(Strict):
    """What is asked of the server."""

    prompts: str = Field("builtin", description="builtin, or a file beside the parameters")
    mix: dict[Name, Share] = Field(
        default_factory=lambda: {"edit": 1.0}, description="kind of prompt: weight"
    )
    system: str = Field(
        "", description="a text file beside the parameters: the system message all prompts share"
    )
    turns: Literal["last", "every"] = Field(
        "last", description="every: each user turn of a conversation is a request, in order"
    )
    send: list[Literal["tools", "images"]] = Field(
        default_factory=list, description="what requests of a log are sent with, else left out"
    )
    output_tokens: Annotated[int, Field(ge=2, le=131072)] = Field(64, description="a request")
    temperature: Annotated[float, Field(ge=0, le=2)] = Field(0.0, description="of sampling")
    seed: Annotated[int, Field(ge=0)] = Field(1, description="which prompts, in which order")
    ignore_eos: bool = Field(False, description="go on to output_tokens past the end of an answer")

    @model_validator(mode="after")
    def _mix_has_weight(self) -> Workload:
        if sum(self.mix.values()) <= 0:
            raise ValueError("the weights of mix must sum to more than 0")
        return self


class Benchmark(Strict):
    """How it is measured. A cell sends ``max(requests, rounds * concurrency)`` requests."""

    concurrencies: Annotated[list[Concurrency], Field(min_length=1)] = Field(
        description="requests at once, each measured in every life"
    )
    blocks: Annotated[int, Field(ge=1, le=100)] = Field(
        3, description="each configuration once, in random order; under 3 there is no interval"
    )
    requests: Annotated[int, Field(ge=1, le=100000)] = Field(4, description="a cell, at least")
    rounds: Annotated[int, Field(ge=1, le=1000)] = Field(2, description="requests a stream")
    warmup: Annotated[int, Field(ge=0, le=1000)] = Field(1, description="requests a stream before")
    warmup_tokens: Annotated[int, Field(ge=2, le=131072)] | None = Field(
        None, description="answer length of a warm-up request; null: as measured"
    )
    warmup_agree: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="warm up until two in turn differ by no more, 0.05 = 5 %; null: once"
    )
    window: Literal["whole", "steady"] = Field(
        "whole", description="steady: throughput while all streams are at work, the end cut off"
    )
    client_lag_ms: Annotated[float, Field(ge=1, le=10000)] = Field(
        5.0,
        description="beyond it, and 20 % of the time between chunks, a late client voids a cell",
    )
    seed: Annotated[int, Field(ge=0)] = Field(1, description="order of configurations in a block")
    cold_start: bool = Field(
        False,
        description="the first life of each configuration loads its model from where it lies: "
        "its files are dropped from the page cache before, and its load is told apart",
    )
    launch: Literal["unit", "process"] = Field(
        "unit", description="unit: as a runtime unit of systemd, where there is one"
    )

    @model_validator(mode="after")
    def _each_concurrency_once(self) -> Benchmark:
        if len(set(self.concurrencies)) != len(self.concurrencies):
            raise ValueError("a concurrency stands twice in concurrencies")
        if self.window == "steady" and self.rounds < 2:
            raise ValueError("window: steady needs 2 rounds or more: with one, all is running down")
        return self

    def requests_at(self, concurrency: int) -> int:
        """Measured requests of one cell."""
        return max(self.requests, self.rounds * concurrency)


class MixShare(Strict):
    """A share of production time spent at one concurrency (and context)."""

    concurrency: Concurrency = Field(description="one of benchmark.concurrencies")
    context_tokens: Annotated[int, Field(ge=0)] | None = Field(
        None,
        description="measured so, before each prompt texts of other prompts; null: prompts as is",
    )
    share: Share = Field(description="of the time; shares need not sum to 1")


class Limits(Strict):
    """Hard limits; a configuration beyond one is out before figures are compared."""

    max_regress: dict[str, Annotated[float, Field(ge=0, le=1)]] = Field(
        default_factory=dict,
        description="concurrency: greatest loss against the baseline, 0.1 = 10 %",
    )
    ttft_p99_ms: Annotated[float, Field(gt=0)] | None = Field(
        None, description="time to the first token that one request in a hundred exceeds"
    )
    error_share: Annotated[float, Field(ge=0, le=1)] = Field(
        0.005, description="requests that may fail, 0.005 = 0.5 %"
    )


class Override(Strict):
    """An operator's decision against, or without, a measured one; the record shows it."""

    choose: Name = Field(description="the configuration to install")
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=3)] = Field(
        description="why, as the record shows it"
    )
    by: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)] = Field(
        description="who decides"
    )


class Choose(Strict):
    """The rule of choice."""

    mix: Annotated[list[MixShare], Field(min_length=1)] = Field(
        description="how production spends its time"
    )
    margin: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.02, description="what a gain must clearly exceed, 0.02 = 2 %"
    )
    limits: Limits = Field(Limits(), description="a configuration beyond one is out")
    expected: Name | None = Field(
        None, description="what the deployment is planned for; another choice stops the run"
    )
    prefer: list[Name] = Field(default_factory=list, description="order inside a tie")
    looks: list[Annotated[int, Field(ge=3, le=100)]] = Field(
        default_factory=list,
        description="blocks after which a clear choice ends the run, the last all; empty: none",
    )
    override: Override | None = Field(None, description="a decision against, or without, figures")
    figures_bound: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2,
        description="of figures that were measured elsewhere: the confirming cell may differ from "
        "them by this share, 0.2 = 20 %",
    )

    @model_validator(mode="after")
    def _mix_has_weight(self) -> Choose:
        if sum(share.share for share in self.mix) <= 0:
            raise ValueError("the shares of mix must sum to more than 0")
        points = [(share.concurrency, share.context_tokens) for share in self.mix]
        for concurrency, context in points:
            if points.count((concurrency, context)) > 1:
                label = point_label(concurrency, context)
                raise Disagreement("mix", f"{label} twice", "each point once")
        if sorted(set(self.looks)) != self.looks:
            raise ValueError("looks must ascend, each once")
        return self


class Guard(Strict):
    """What is looked at before every start of the unit, against what was measured.

    ``fail``: another finding, or none where there was one, and the server is not started.
    ``warn``: it is said in the journal and in ``runbook service status``. ``off``: not looked at.
    """

    model: Level = Field("fail", description="place, size, time and content of the target")
    draft: Level = Field("fail", description="the same of the draft")
    interpreter: Level = Field("fail", description="program and version that serve")
    sitecustomize: Level = Field("fail", description="which file Python loads, and its content")
    packages: Level = Field("fail", description="versions of the server and of stack.packages")
    port: Level = Field("fail", description="nobody listens there; the holder is named")
    gpus: Level = Field("fail", description="the very GPUs, and their driver")
    gpu_memory: Level = Field("fail", description="nobody holds the memory of the GPUs")
    topology: Level = Field("fail", description="the links between the GPUs")
    nccl: Level = Field("fail", description="nccl.conf as the service's user reads it")
    caches: Level = Field("warn", description="HOME and caches that are set can be written")
    shm: Level = Field("warn", description="stack.min_shm_gib free in /dev/shm")
    disk: Level = Field("warn", description="stack.min_disk_gib free at server.cwd")


class Service(Strict):
    """The unit that is installed."""

    unit: UnitName = Field(description="its name, with .service")
    description: Line = Field("", description="as systemctl shows it")
    nofile: Annotated[int, Field(ge=1024)] | None = Field(
        1048576, description="open files, null: infinity"
    )
    memlock: Annotated[int, Field(ge=65536)] | None = Field(
        None, description="locked memory in bytes, null: infinity"
    )
    limits: dict[LimitName, Annotated[int, Field(ge=0)] | None] = Field(
        default_factory=dict,
        description="further limits by their names in systemd, like core: 0; null: infinity",
    )
    start_timeout_s: Seconds | None = Field(
        None,
        description="null: three times the measured load; never below server.timeouts.start_s",
    )
    restart_s: Seconds = Field(5.0, description="pause before systemd starts it again")
    start_limit_burst: Annotated[int, Field(ge=1, le=100)] = Field(
        3, description="starts in a row that do not come to serve, after which it stays failed"
    )
    guard: Guard = Field(Guard(), description="what is looked at before each start")
    burst: Annotated[int, Field(ge=1, le=10000)] = Field(
        200, description="completions that prove it"
    )
    replaces: list[OtherUnit] = Field(
        default_factory=list,
        description="units that serve now: they rest while it measures, and give way to this one",
    )
    unproved: Literal["fail", "warn"] = Field("fail", description="what an unprovable proof does")
    rollback: bool = Field(
        True, description="a refuted proof of a new install brings back what served before"
    )

    @model_validator(mode="after")
    def _has_its_own_name(self) -> Service:
        if self.unit.endswith("-boot.service"):
            raise ValueError(f"{self.unit} is the name of a recorder of boots: choose another")
        if self.unit in self.replaces:
            raise ValueError(f"{self.unit} cannot replace itself: it rests by itself")
        return self


def _markdown_alone() -> list[Format]:
    return ["markdown"]


class Record(Strict):
    """Where the findings go on the target; relative paths start at ``server.cwd``."""

    document: FilePath | None = Field(None, description="production_v2.md on the target")
    plan: FilePath | None = Field(None, description="eagle-fast-verify.md on the target")
    formats: Annotated[list[Format], Field(min_length=1)] = Field(
        default_factory=_markdown_alone,
        description="of the record: markdown, html (one self-contained page) or both",
    )


class Params(Strict):
    """One deployment."""

    name: Name = Field(description="names the run folder")
    host: Host = Field(Host(), description="where the service will live")
    stack: Stack = Field(Stack(), description="what verify_stack requires")
    server: Server = Field(description="the server all configurations share")
    configurations: Annotated[list[Configuration], Field(min_length=1)] = Field(
        description="what is compared"
    )
    workload: Workload = Field(Workload(), description="what is asked of the server")
    benchmark: Benchmark = Field(description="how it is measured")
    choose: Choose = Field(description="the rule of choice")
    service: Service = Field(description="the unit that is installed")
    record: Record = Field(Record(), description="where the findings go on the target")

    @model_validator(mode="after")
    def _names_agree(self) -> Params:
        names = [configuration.name for configuration in self.configurations]
        for name in names:
            if names.count(name) > 1:
                raise Disagreement("configurations", f"two named {name}", "names that differ")
        if BASELINE not in names:
            raise Disagreement(
                "configurations", "no " + BASELINE, f"one named {BASELINE}: it is the reference"
            )
        self._refuse_strange_names(names)
        self._refuse_what_lies_here()
        self._refuse_what_is_not_measured()
        for where, env in self._environments():
            for name in env:
                if names_secret(name):
                    raise Disagreement(
                        f"{where}.{name}",
                        "what looks like a secret, and env is shown in every record",
                        "a secret in a file of its own: server.api_key.file",
                    )
        return self

    def _environments(self) -> list[tuple[str, dict[str, str]]]:
        own = [(f"configurations[name={one.name}].env", one.env) for one in self.configurations]
        return [("server.env", self.server.env), *own]

    def _refuse_strange_names(self, names: list[str]) -> None:
        rule = self.choose
        named = [("choose.prefer", name) for name in rule.prefer]
        named += [("choose.override.choose", rule.override.choose)] if rule.override else []
        named += [("choose.expected", rule.expected)] if rule.expected else []
        for key, name in named:
            if name not in names:
                near = difflib.get_close_matches(name, names, 1)
                wanted = "one of the configurations: " + ", ".join(names)
                raise Disagreement(key, name, wanted, near[0] if near else None)

    def _refuse_what_is_not_measured(self) -> None:
        rule, measured = self.choose, self.benchmark.concurrencies
        wanted = "one of benchmark.concurrencies: " + ", ".join(map(str, measured))
        for limit in rule.limits.max_regress:
            if limit not in map(str, measured):
                raise Disagreement("choose.limits.max_regress", f"C={limit}", wanted)
        contexts = {share.context_tokens for share in rule.mix}
        for share in rule.mix:
            if share.concurrency not in measured:
                raise Disagreement("choose.mix", f"C={share.concurrency}", wanted)
            if share.context_tokens is None and contexts != {None}:
                raise Disagreement(
                    "choose.mix",
                    f"C={share.concurrency} without context_tokens, others with",
                    "context_tokens in all of them, 0 for the prompts as they are",
                )
        if rule.looks and rule.looks[-1] != self.benchmark.blocks:
            raise Disagreement(
                "choose.looks",
                f"{rule.looks[-1]} as the last look",
                f"a last look at all blocks (benchmark.blocks: {self.benchmark.blocks})",
            )

    def points(self) -> tuple[Point, ...]:
        """What each life is measured at: (concurrency, context in tokens).

        Where ``choose.mix`` names contexts, its points, and the other concurrencies at context 0.
        """
        concurrencies = self.benchmark.concurrencies
        mixed = [
            (share.concurrency, share.context_tokens)
            for share in self.choose.mix
            if share.concurrency in concurrencies
        ]
        if all(context is None for _, context in mixed):
            return tuple((concurrency, None) for concurrency in concurrencies)
        weighed = {concurrency for concurrency, _ in mixed}
        short = [one for one in concurrencies if one not in weighed]
        return (*mixed, *((concurrency, 0) for concurrency in short))

    def _refuse_what_lies_here(self) -> None:
        """Over ssh nothing is copied to the host but units, guard and launcher."""
        server = self.server
        if self.host.kind != "ssh":
            return
        if not server.interpreter or server.model.startswith("embedded:"):
            raise ValueError("over ssh, server.interpreter and server.model are paths of that host")

    def configuration(self, name: str) -> Configuration:
        """The configuration of that name. Raises ``BadInput`` with the nearest name."""
        names = [one.name for one in self.configurations]
        if name not in names:
            near = difflib.get_close_matches(name, names, 1) or names[:1]
            raise BadInput(
                f"no configuration is named {name}", "one of " + ", ".join(names), f"use {near[0]}"
            )
        return self.configurations[names.index(name)]

    def identity(self) -> str:
        """Hash of what makes two runs comparable (all but stack, choose, service, record)."""
        keys = ("host", "server", "configurations", "workload", "benchmark")
        dumped = self.model_dump(mode="json", include=set(keys))
        if not self.server.process.given():  # as before there was such a parameter
            del dumped["server"]["process"]
        if contexts := [[c, tokens] for c, tokens in self.points() if tokens is not None]:
            dumped["points"] = sorted(contexts)
        return hashlib.sha256(json.dumps(dumped, sort_keys=True).encode()).hexdigest()[:16]

    def to_yaml(self) -> str:
        """The effective parameters as YAML; ``load`` reads them back as an equal object."""
        return strict_yaml.dump(self.model_dump(mode="json"))
