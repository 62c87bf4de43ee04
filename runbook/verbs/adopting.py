"""``runbook adopt``: a server that runs on this machine becomes a parameters file.

What it runs with now becomes the configuration ``adopted``; without its speculation it is the
``baseline`` to measure it against.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from runbook import atomic, params, preview, strict_yaml
from runbook.bounded import read_text
from runbook.engines import engine_for, llamacpp
from runbook.engines.assemble import ALWAYS_SET
from runbook.engines.sglang import options as sglang_options
from runbook.engines.sglang import serve_sglang
from runbook.errors import BadInput, NotHere, ServerFailed
from runbook.hosts.local import LocalHost
from runbook.install_service.places import Places
from runbook.launch import adopt as launch
from runbook.launch import systemd
from runbook.launch.adopt import Adopted, Seen
from runbook.launch.spec import LaunchSpec
from runbook.launch.unit import is_managed
from runbook.probe.ask import Questions, ServingFacts, ask_serving, interpreter_words
from runbook.probe.guard import loaded
from runbook.rehearsal import serve_llamacpp
from runbook.run import now

_ADOPTED = "adopted"
#: Concurrencies of a file for which nobody has named any; a llama.cpp server has eight slots.
_STAND_INS = (1, 4, 8)
#: As in the parameters.
_LEAST_LIMITS = {"nofile": 1024, "memlock": 65536}


@dataclass(frozen=True)
class Kind:
    """How the servers of an engine are told by their arguments, and what these mean.

    ``starts``: words after the interpreter's, by their ends. ``own``: option -> parameter.
    ``speculative``: beginnings of the options that make a configuration.
    """

    engine: str
    distribution: str
    starts: tuple[tuple[str, ...], ...]
    own: Mapping[str, str]
    speculative: tuple[str, ...]
    aliases: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    port: int = 30000


KINDS = (
    Kind(
        "sglang",
        "sglang",
        (
            ("-m", "sglang.launch_server"),
            ("/sglang/launch_server.py",),
            ("/sglang", "serve"),
            (Path(serve_sglang.__file__).name,),
        ),
        sglang_options.FROM_PARAMETERS,
        ("--speculative",),
        sglang_options.ALIASES,
        tuple(sglang_options.OUT_OF_SIGHT),
    ),
    Kind(
        "llamacpp",
        "xllamacpp",
        ((Path(serve_llamacpp.__file__).name,),),
        llamacpp.FROM_PARAMETERS,
        ("--spec-type", "--ngram"),
        port=8080,
    ),
)


def split_command(argv: Sequence[str]) -> tuple[Kind, list[str]] | None:
    """The kind of a server and its own arguments; ``None`` for what is no server."""
    if argv[0].startswith("sglang::"):
        return None
    words = list(argv[len(interpreter_words(argv)) :])
    for kind in KINDS:
        for start in kind.starts:
            begun = words[: len(start)]
            if len(begun) == len(start) and all(map(str.endswith, begun, start)):
                return kind, words[len(start) :]
    return None


def adopt(pid: int | None, unit: str | None, to: Path | None, model: str | None = None) -> str:
    """The file's text, or where it was written. Nothing of the server is touched; what
    ``runbook check`` would refuse is not written.

    ``model``: its path or name where the arguments do not tell it. Raises ``BadInput`` for a
    process that is no server, one that no file can start the same, or a file that is there already.
    """
    if (pid is None) == (unit is None):
        raise BadInput("adopt needs one server", "--pid PID or --unit NAME", "give one of them")
    if to is not None and to.exists():
        raise BadInput(f"{to} exists already", "a new file", "name another")
    start = pid if pid is not None else _main_pid(str(unit))
    seen = launch.find_server(start, lambda argv: split_command(argv) is not None)
    adopted = launch.adopt_launch(with_config_file(seen))
    serving = ask_serving(LocalHost(), adopted.spec, Questions(packages=_distributions()))
    runs_as = Unit.of(unit or seen.unit or "")
    origin = f"process {seen.pid}, {now()}"
    text = render(adopted, serving, runs_as, origin, model)
    made = params.from_values(strict_yaml.parse(text, "the adopted parameters"), "adopt")
    preview.preview(made)
    said = same_speculation(made)
    text = f"# {said}\n{text}" if said else text
    if to is None:
        return text
    atomic.write(to, text)
    return f"{to} (next: read its first lines, then runbook check {to})"


def with_config_file(seen: Seen) -> Seen:
    """``seen`` with what its file of options stands for in place of ``--config``.

    Raises ``BadInput`` where the file cannot be read, or is another one than was read at the start.
    """
    known = split_command(seen.argv or ("",))
    if known is None or known[0].engine != "sglang" or "--config" not in known[1]:
        return seen
    words = known[1]
    at = words.index("--config")
    if words.count("--config") > 1 or at + 1 == len(words):
        raise BadInput("--config does not name one file", "one file of options", "start it again")
    path = Path(seen.cwd or "/", words[at + 1])
    text = read_text(
        path,
        strict_yaml.MAX_BYTES,
        f"its options lie there: write them into server.args by hand, process {seen.pid}",
        "a file of options",
        "write its options into server.args by hand",
        "a file of options",
    )
    if seen.started is not None and path.stat().st_mtime > seen.started:
        raise BadInput(
            f"{path} was written after process {seen.pid} was started",
            "the options that it was started with",
            "put the file as it was in its place, or start the server again and adopt that",
        )
    found, off = sglang_options.config_words(text, str(path))
    argv = tuple(seen.argv or ())
    own = len(argv) - len(words)
    notes = [f"the options of {path} stand here in place of --config"]
    notes += [f"{', '.join(off)}: false in {path}, so not written"] if off else []
    return replace(
        seen,
        argv=(*argv[:own], *found, *words[:at], *words[at + 2 :]),
        notes=(*seen.notes, *notes),
    )


def same_speculation(made: params.Params) -> str:
    """A comment where the server that runs does not tell, or does not, speculate by what the file
    says; empty where it does. Raises ``BadInput`` where it speculates by something else: a file
    that says nothing of it would measure another server as the one that was found.
    """
    if made.server.engine != "sglang":
        return ""
    configuration = made.configurations[-1]
    asked = sglang_options.options_of(made.server, configuration).algorithm
    host = "127.0.0.1" if params.is_everywhere(made.server.address) else made.server.address
    url = f"http://{f'[{host}]' if ':' in host else host}:{made.server.port}"
    try:
        found = engine_for(made.server).info(url).speculation
    except ServerFailed as error:
        return f"what it says of itself was not compared: {' '.join(error.found.split())[:200]}"
    if found.upper() == asked.upper():
        return ""
    said = f"the server at {url} says that it speculates by {found}, its arguments say {asked}"
    if found == sglang_options.NO_SPECULATION:
        return said
    raise BadInput(
        said,
        "arguments that tell the whole launch",
        "see what changes them at the start (a wrapper, sitecustomize), and write the file by hand",
    )


@dataclass(frozen=True)
class Unit:
    """What a server runs in: a service, a login session, or nothing (empty). ``ours``: the runbook
    wrote it."""

    name: str = ""
    ours: bool = False

    @property
    def may_rest(self) -> bool:
        """Whether it is a service of somebody else, and not the manager of a login user."""
        service = self.name.endswith(".service") and not self.name.startswith("user@")
        return service and not self.ours

    @classmethod
    def of(cls, name: str) -> Unit:
        """A unit of this machine by its name."""
        text = LocalHost().read(Places(name).unit_file) if name.endswith(".service") else None
        return cls(name, text is not None and is_managed(text.decode(errors="replace")))


def _distributions() -> tuple[str, ...]:
    return tuple(kind.distribution for kind in KINDS)


def _main_pid(unit: str) -> int:
    host = LocalHost()
    reason = host.why_no_systemd()
    if reason is not None:
        raise NotHere(reason, "a systemd", "give the process: --pid PID")
    number = systemd.show(host, unit, "MainPID").get("MainPID", "0")
    if number in ("", "0"):
        raise NotHere(f"{unit} does not run", "a unit with a main process", "systemctl status")
    return int(number)


def render(
    adopted: Adopted, serving: ServingFacts, unit: Unit, origin: str, model: str | None = None
) -> str:
    """The file: what could not be taken over as comments, then parameters that load. Pure.

    ``model``: for arguments that name none. Raises ``BadInput`` where nothing does.
    """
    known = split_command(adopted.spec.argv)
    assert known is not None
    kind, words = known
    groups, loose = group_options(words)
    common, own, speculative, out = _sort(kind, groups)
    own = {**({"server.model": model} if model else {}), **own}
    if not own.get("server.model"):
        raise BadInput(
            "the arguments of the server name no model",
            "a model that can be started again",
            "name it: runbook adopt ... --model PATH",
        )
    name = _name_of(own["server.model"])
    server = _server(kind, adopted.spec, own, common)
    values = {
        "name": name,
        "host": {"kind": "local"},
        "stack": _stack(kind, serving),
        "server": server,
        "configurations": _configurations(speculative, adopted.spec.env),
        "benchmark": {"concurrencies": list(_STAND_INS)},
        "choose": {
            "mix": [{"concurrency": c, "share": 1} for c in _STAND_INS],
            **({"expected": _ADOPTED} if speculative else {}),
        },
        "service": _service(adopted.spec, unit, f"{kind.engine}-{name}"),
    }
    head = _comments(adopted, serving, unit, origin, "open_to_all" in server)
    head += [f"{option} is left out: {why}" for option, why in out.items()]
    head += [f"the word {word!r} belongs to no option and is left out" for word in loose]
    flags = interpreter_words(adopted.spec.argv)[1:]
    head += [f"options of Python that no parameter carries: {' '.join(flags)}"] if flags else []
    comment = "".join(f"# {' '.join(line.split())}\n" for line in head)
    return comment + strict_yaml.dump({key: value for key, value in values.items() if value})


def group_options(words: Sequence[str]) -> tuple[list[list[str]], list[str]]:
    """Options, each with what follows it; and the words before the first one."""
    groups: list[list[str]] = []
    loose: list[str] = []
    for word in words:
        if word.startswith("--"):
            groups.append([word])
        else:
            (groups[-1] if groups else loose).append(word)
    return groups, loose


def _sort(
    kind: Kind, groups: Sequence[Sequence[str]]
) -> tuple[list[str], dict[str, str], list[str], dict[str, str]]:
    """Arguments of all configurations, parameters, arguments of this one, and what is left out."""
    common: list[str] = []
    speculative: list[str] = []
    own: dict[str, str] = {}
    out: dict[str, str] = {}
    for group in groups:
        written, equals, value = group[0].partition("=")
        option = kind.aliases.get(written, written)
        if option in kind.left_out:
            out[" ".join(group)] = "write what it stands for into server.args"
        elif option.startswith("--api-key"):
            out[written] = "set server.api_key.file to a file of mode 0600 that holds the key alone"
        elif option in kind.own:
            if option != "--alias":
                own[kind.own[option]] = value if equals else "".join(group[1:2])
        elif option.startswith(kind.speculative):
            speculative += group
        else:
            common += group
    return common, own, speculative, out


def _stack(kind: Kind, serving: ServingFacts) -> dict[str, Any]:
    version = (serving.facts.get("packages") or {}).get(kind.distribution)
    return {"engine_version": f"=={version}"} if version else {}


def _server(
    kind: Kind, spec: LaunchSpec, own: Mapping[str, str], common: list[str]
) -> dict[str, Any]:
    env = {name: value for name, value in spec.env.items() if name != sglang_options.SPEC_V2}
    port = own.get("server.port", "")
    values: dict[str, Any] = {
        "engine": kind.engine,
        "interpreter": spec.interpreter,
        "cwd": spec.cwd,
        "user": spec.user,
        "address": own.get("server.address", "127.0.0.1"),
        "port": int(port) if port.isdigit() else kind.port,
        "model": own["server.model"],
        "draft": own.get("server.draft", ""),
        "args": common,
        "env": env,
        "process": dict(spec.process),
    }
    if params.is_everywhere(values["address"]):
        values["open_to_all"] = True
    return {name: value for name, value in values.items() if value not in ("", [], {})}


def _configurations(speculative: list[str], env: Mapping[str, str]) -> list[dict[str, Any]]:
    switch = {name: env[name] for name in (sglang_options.SPEC_V2,) if name in env}
    baseline: dict[str, Any] = {"name": params.BASELINE, "label": "no speculation"}
    if not speculative:
        return [{**baseline, "env": switch} if switch else baseline]
    label = "as it was found running"
    return [baseline, {"name": _ADOPTED, "label": label, "args": speculative, "env": switch}]


def _service(spec: LaunchSpec, unit: Unit, name: str) -> dict[str, Any]:
    """A unit of its own, to which what runs now gives way."""
    taken = f"{name}.service" == unit.name
    own = f"{name}-runbook.service" if taken else f"{name}.service"
    values: dict[str, Any] = {"unit": unit.name if unit.ours else own}
    if unit.may_rest:
        values["replaces"] = [unit.name]
    if spec.nofile is None or spec.nofile >= _LEAST_LIMITS["nofile"]:
        values["nofile"] = spec.nofile
    if spec.memlock is None or spec.memlock >= _LEAST_LIMITS["memlock"]:
        values["memlock"] = spec.memlock
    if spec.limits:
        values["limits"] = dict(spec.limits)
    return values


def _name_of(model: str) -> str:
    text = re.sub(r"[^a-z0-9._-]+", "-", Path(model).name.lower()).strip("-._")
    return text[:40] or "model"


def _comments(
    adopted: Adopted, serving: ServingFacts, unit: Unit, origin: str, open_to_all: bool
) -> list[str]:
    """What the reader must know before using the file, a line each."""
    lines = [f"Adopted from a running server ({origin}). Correct it, then: runbook check FILE"]
    if adopted.secrets:
        lines.append(f"not written, it looks secret: {', '.join(adopted.secrets)}")
    if adopted.session:
        lines.append(f"left out, of the login session: {', '.join(adopted.session)}")
    lines += adopted.notes
    small = {"nofile": adopted.spec.nofile, "memlock": adopted.spec.memlock}
    lines += [
        f"its limit {name} is {limit}, less than a server here may have: the default stands for it"
        for name, limit in small.items()
        if limit is not None and limit < _LEAST_LIMITS[name]
    ]
    if added := [name for name in ALWAYS_SET if name not in adopted.spec.env]:
        lines.append(f"it had none of these, which every launch here has: {', '.join(added)}")
    if unit.may_rest:
        lines.append(
            f"it runs as {unit.name}, which is not the runbook's and is never overwritten: "
            "it rests while this is measured and gives way to service.unit (service.replaces)"
        )
    elif not unit.ours:
        where = f"in {unit.name}, a login session" if unit.name else "in no unit"
        lines.append(f"it runs {where}: end it yourself before this is measured, nothing here will")
    part = serving.facts.get("sitecustomize")
    lines.append(
        f"sitecustomize: {loaded(part)}"
        if part
        else f"sitecustomize: unknown ({serving.why_unknown('sitecustomize')})"
    )
    if Path(serve_sglang.__file__).name in " ".join(adopted.spec.argv[:4]):
        lines.append("its API key comes from a credential: set server.api_key.file")
    if open_to_all:
        lines.append("it listens on all addresses: with server.api_key, drop server.open_to_all")
    lines.append("not known, so stand-ins: benchmark.concurrencies, choose.mix, workload, stack")
    return lines
