"""SGLang's command line as far as the runbook must understand it. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import yaml

from runbook.engines.answers import whole
from runbook.errors import BadInput
from runbook.params import Configuration, Server

NO_SPECULATION = "none"
SPEC_V2 = "SGLANG_ENABLE_SPEC_V2"

ALIASES = {
    "--model": "--model-path",
    "--speculative-algo": "--speculative-algorithm",
    "--speculative-draft": "--speculative-draft-model-path",
    "--tp": "--tensor-parallel-size",
    "--tp-size": "--tensor-parallel-size",
    "--dp": "--data-parallel-size",
    "--dp-size": "--data-parallel-size",
    "--pp-size": "--pipeline-parallel-size",
    "--nccl-init-addr": "--dist-init-addr",
}
FROM_PARAMETERS = {
    "--host": "server.address",
    "--port": "server.port",
    "--model-path": "server.model",
    "--speculative-draft-model-path": "server.draft",
    "--api-key": "server.api_key",
}
_LAST_PORT = 65535
_NAMED_PORTS = {"--nccl-port": "NCCL", "--grpc-port": "gRPC"}
#: With DP attention the parts of a server speak over TCP, on ports from this far above its own.
DP_PORTS_ABOVE = 233
_DP_PARTS = (
    "dist_init_port",
    "tokenizer",
    "detokenizer",
    "rpc_port",
    "metrics_port",
    "scheduler",
    "load collector",  # since 0.5.20
)
OUT_OF_SIGHT = {
    "--admin-api-key": ("a secret among the arguments", "leave it out: the runbook needs none"),
    "--config": ("a file of further options", "write its options into server.args"),
}


@dataclass(frozen=True)
class Options:
    """Options and their values as the server takes them: the last one counts.

    A flag has the value ``""``. Names are the long ones, also where an alias was written.
    """

    values: Mapping[str, str]

    def has(self, name: str) -> bool:
        """Whether the option was given."""
        return name in self.values

    def text(self, name: str) -> str | None:
        """Its value, ``None`` when it was not given."""
        return self.values.get(name)

    def number(self, name: str) -> int | None:
        """Its value as a whole number, ``None`` when not given or no such number."""
        return whole(self.values.get(name))

    @property
    def algorithm(self) -> str:
        """The speculation asked for, in capitals; ``none`` without one. NEXTN is EAGLE."""
        asked = (self.text("--speculative-algorithm") or NO_SPECULATION).upper()
        return {"NEXTN": "EAGLE", "NONE": NO_SPECULATION}.get(asked, asked)

    @property
    def speculates(self) -> bool:
        """Whether any speculation is asked for."""
        return self.algorithm != NO_SPECULATION

    @property
    def needs_draft(self) -> bool:
        """Whether the algorithm drafts by a model, which an n-gram drafter does not."""
        return self.speculates and self.algorithm != "NGRAM"

    @property
    def has_worker(self) -> bool:
        """Whether one of EAGLE's workers runs it, of which there are v1 and v2."""
        return self.algorithm in ("EAGLE", "EAGLE3", "STANDALONE")

    @property
    def no_overlap(self) -> bool:
        """Whether the overlap scheduler is switched off; no worker has it on a CPU."""
        return self.has("--disable-overlap-schedule") or self.text("--device") == "cpu"

    @property
    def topk(self) -> int | None:
        """Branches of the draft tree at each step."""
        return self.number("--speculative-eagle-topk")

    @property
    def steps(self) -> int | None:
        """Depth of the draft tree."""
        return self.number("--speculative-num-steps")

    @property
    def draft_tokens(self) -> int | None:
        """Tokens that the target verifies in one pass."""
        return self.number("--speculative-num-draft-tokens")

    @property
    def max_running_requests(self) -> int | None:
        """The explicit cap on requests that run at once."""
        return self.number("--max-running-requests")


def read_options(words: Sequence[str]) -> Options:
    """The options in ``words``; what stands behind the value of an option is left out."""
    values: dict[str, str] = {}
    for position, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name, equals, value = word.partition("=")
        following = words[position + 1] if position + 1 < len(words) else "--"
        if not equals:
            value = "" if following.startswith("--") else following
        values[ALIASES.get(name, name)] = value
    return Options(values)


def config_words(text: str, path: str) -> tuple[list[str], list[str]]:
    """The words that a file of options (``--config``) stands for, and the names of its flags that
    are false, which stand for nothing.

    As SGLang's own parser reads it (0.5.10 to 0.5.23): ``true`` is a bare flag, a list several
    values, a mapping JSON; the words come before those of the command line, which win. Raises
    ``BadInput`` for what is none.
    """
    try:
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise _no_config(path, "it repeats values by aliases")
        found = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise _no_config(path, " ".join(str(error).split())[:200]) from None
    if not isinstance(found or {}, dict) or not all(isinstance(key, str) for key in found or {}):
        raise _no_config(path, "it holds no options by name")
    words: list[str] = []
    off = []
    for key, value in (found or {}).items():
        option = f"--{key.replace('_', '-')}"
        if value is False:
            off.append(option)
        elif value is True:
            words.append(option)
        elif isinstance(value, list):
            words += [option, *map(_config_value, value)] if value else []
        else:
            words += [option, _config_value(value)]
    return words, off


def _config_value(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def _no_config(path: str, why: str) -> BadInput:
    return BadInput(
        f"{path}, which --config names: {why}",
        "YAML with an option and its value a line",
        "write its options into server.args by hand",
    )


def options_of(server: Server, configuration: Configuration) -> Options:
    """What one configuration asks for, the server's own draft included."""
    draft = ["--speculative-draft-model-path", server.draft] if server.draft else []
    return read_options([*draft, *server.args, *configuration.args])


def further_ports(options: Options, port: int) -> dict[int, str]:
    """What a server on ``port`` listens on besides: port -> what for, where that is settled before
    its start. Without DP attention its parts speak over files, and NCCL takes a free port.

    Read in 0.5.10.post1, 0.5.20 and 0.5.23.
    """
    found = {number: use for name, use in _NAMED_PORTS.items() if (number := options.number(name))}
    if options.text("--disaggregation-mode") == "prefill":
        found[options.number("--disaggregation-bootstrap-port") or 8998] = "bootstrap of prefill"
    named = whole((options.text("--dist-init-addr") or "").rpartition(":")[2])
    if named:
        found[named] = _DP_PARTS[0]
    if options.has("--enable-dp-attention"):
        above = port + DP_PORTS_ABOVE
        first = named or (above if above <= _LAST_PORT else port - DP_PORTS_ABOVE)
        found |= {first + place: part for place, part in enumerate(_DP_PARTS)}
    return {number: use for number, use in found.items() if 0 < number <= _LAST_PORT}


def refuse_own(words: Iterable[str], key: str) -> None:
    """Raise ``BadInput`` where ``words`` set what has a parameter of its own, or hide something.

    SGLang takes an option that is cut short for the whole one; so is it taken here.
    """
    for word in words:
        written = word.partition("=")[0]
        if not written.startswith("--") or written == "--":
            continue
        name = ALIASES.get(written, written)
        for option, parameter in FROM_PARAMETERS.items():
            if option.startswith(name):
                raise BadInput(
                    f"{key}: {written} is set by {parameter}",
                    f"no {written} among the arguments",
                    f"set {parameter}",
                )
        for option, (found, do) in OUT_OF_SIGHT.items():
            if name == option:
                raise BadInput(f"{key}: {written}: {found}", "arguments in plain sight", do)


def effective_env(
    server: Server, configuration: Configuration, set_later: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment SGLang acts on: old ``SGL_*`` names under their new ones.

    ``set_later``: what the start of Python sets or changes in it.
    """
    written = {**server.env, **configuration.env, **(set_later or {})}
    old = {name: value for name, value in written.items() if name.startswith("SGL_")}
    renamed = {"SGLANG_" + name.removeprefix("SGL_"): value for name, value in old.items()}
    return {**renamed, **{name: value for name, value in written.items() if name not in old}}


def read_switch(text: str | None) -> bool | None:
    """A variable as SGLang reads a boolean; ``None`` when unset or not one of its words."""
    words = {"1": True, "true": True, "yes": True, "y": True}
    words |= {"0": False, "false": False, "no": False, "n": False}
    return words.get((text or "").strip().lower())


def intended_worker(configuration: Configuration, switch: bool | None) -> str | None:
    """The worker that a configuration means, ``v1`` or ``v2``, ``None`` where it does not say.

    Its name says so (``eagle3-topk4-v1``, ``eagle3-topk1-spec-v2``), else ``switch``, the variable.
    """
    parts = configuration.name.replace("_", "-").replace(".", "-").split("-")
    named = {part.removeprefix("spec") for part in parts} & {"v1", "v2"}
    if len(named) == 1:
        return named.pop()
    return None if switch is None else "v2" if switch else "v1"
