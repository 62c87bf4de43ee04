"""llama.cpp's server, as the rehearsal launches it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from runbook.checks import Check, Status
from runbook.engines.answers import text, whole
from runbook.engines.assemble import KEY_CREDENTIAL, assemble_spec, own_program
from runbook.engines.base import Counters, Seen, ServerInfo
from runbook.engines.endpoint import Endpoint
from runbook.engines.ladder import wait_idle, wait_ready
from runbook.engines.llamacpp_causes import find_cause
from runbook.engines.prometheus import parse_metrics, total
from runbook.errors import BadInput, NotHere, ServerFailed
from runbook.launch.spec import LaunchSpec
from runbook.params import Configuration, Params
from runbook.rehearsal import model, serve_llamacpp

NO_SPECULATION = "none"
UNKNOWN = "unknown"

_SPECULATION_OPTION = "--spec-type"
_LAUNCHER = Path(serve_llamacpp.__file__).absolute()
FROM_PARAMETERS = {
    "--host": "server.address",
    "--port": "server.port",
    "--model": "server.model",
    "--alias": "server.model",
    "--draft": "server.draft",
    "--api-key-credential": "server.api_key",
}


class LlamaCpp:
    """The engine ``llamacpp``; ``key_file`` holds the API key of servers that ask for one."""

    name = "llamacpp"
    distribution = "xllamacpp"
    overwrites: frozenset[str] = frozenset()
    stack_checks: tuple[str, ...] = ()
    request_fields: Mapping[str, Any] = {}
    alike: tuple[str, ...] = ("model_path", "weights", "slots", "context_per_slot", "build")
    argument_probe = ""  # launch_spec parses them itself

    def __init__(self, key_file: str | None = None) -> None:
        self._key_file = key_file

    def prepare(self, params: Params, progress: Callable[[str], None]) -> None:
        """Prepare an embedded model. Raises ``NotHere`` where it, or the server, is missing."""
        if not params.server.interpreter and importlib.util.find_spec("xllamacpp") is None:
            raise NotHere("the package xllamacpp is not installed", "the server", "make setup")
        if params.server.model.startswith(model.EMBEDDED):
            model.prepare_model(params.server.model, progress)

    def launch_spec(self, params: Params, configuration: Configuration) -> LaunchSpec:
        """The whole launch. Raises ``BadInput`` for arguments that the launcher will not take."""
        server = params.server
        arguments = [
            *("--host", server.address, "--port", str(server.port)),
            *("--model", model.resolve_model(server.model), "--alias", _alias(server.model)),
            *(("--draft", server.draft) if server.draft else ()),
            *(("--api-key-credential", KEY_CREDENTIAL) if server.api_key else ()),
            *_own_arguments(server.args, "server.args"),
            *_own_arguments(configuration.args, f"configurations[name={configuration.name}].args"),
        ]
        try:
            slots = serve_llamacpp.parse_arguments(arguments).parallel
        except ValueError as error:
            raise BadInput(
                f"configuration {configuration.name}: {error}",
                "arguments of the rehearsal's server",
                "correct server.args or the configuration's args",
            ) from None
        most = max(params.benchmark.concurrencies)
        if most > slots:
            raise BadInput(
                f"configuration {configuration.name}: C={most} with {slots} slots: requests would "
                "wait for one another",
                "a slot for each request at once",
                f"--parallel {most}, or benchmark.concurrencies up to {slots}",
            )
        interpreter = server.interpreter or sys.executable
        launcher, files = own_program(params, _LAUNCHER)
        return assemble_spec(params, configuration, [interpreter, launcher, *arguments], files)

    def wait_ready(self, url: str, alive: Callable[[], bool], timeout_s: float) -> float:
        """As in ``Engine``."""
        return wait_ready(self._endpoint(url), alive, timeout_s)

    def info(self, url: str) -> ServerInfo:
        """From ``/props`` and ``/slots``: the former's ``speculative.types`` is always none.

        The algorithm is known once one completion has been served; before, it is ``unknown``.
        """
        endpoint = self._endpoint(url)
        properties = endpoint.get_json("/props")
        if not isinstance(properties, dict):
            raise ServerFailed(
                f"{url}/props holds no properties",
                "a llama.cpp server",
                "see what runs at this port",
            )
        return read_info(properties, endpoint.get_json("/slots"))

    def counters(self, url: str) -> Counters | None:
        """From ``/metrics``; a request is counted when it has ended."""
        response = self._endpoint(url).get("/metrics")
        if response.status_code != 200:
            return None
        return read_counters(response.text)

    def end_requests(self, url: str, timeout_s: float) -> str:
        """The server ends what its client hangs up on; ``/slots`` tells when it has."""
        endpoint = self._endpoint(url)
        return wait_idle(lambda: busy_slots(endpoint.get_json("/slots")), timeout_s)

    def acceptance_length(self, cell: Counters) -> float | None:
        """``predicted / (predicted - accepted)``: 1 without speculation."""
        if not cell.predicted or cell.accepted is None or cell.accepted >= cell.predicted:
            return None
        return cell.predicted / (cell.predicted - cell.accepted)

    def acceptance_in_log(self, log: str) -> float | None:
        """Nothing: its counters tell."""
        return None

    def running_at_once(self, log: str) -> None:
        """Its log tells none."""

    def check_configuration(
        self,
        info: ServerInfo,
        configuration: Configuration,
        resolved: Mapping[str, Any] | None = None,
    ) -> list[Check]:
        """Whether the speculation that runs is the one asked for."""
        asked = asked_speculation(configuration)
        status: Status = "pass" if info.speculation == asked else "fail"
        if info.speculation == UNKNOWN:
            status = "unknown"
        fix = "" if status == "pass" else _ask_again(configuration)
        return [Check("speculation", status, info.speculation, asked, fix)]

    def check_cell(
        self, cell: Counters, configuration: Configuration, told: Mapping[str, Any] | None = None
    ) -> list[Check]:
        """Whether drafts were proposed and accepted exactly where speculation was asked for."""
        asked = asked_speculation(configuration)
        if cell.drafted is None:
            fix = "measure with the launcher of the rehearsal, which switches /metrics on"
            return [Check("draft used", "unknown", "no draft counters", asked, fix)]
        accepted = UNKNOWN if cell.accepted is None else cell.accepted
        found = f"{cell.drafted} tokens proposed, {accepted} accepted"
        if asked == NO_SPECULATION and cell.drafted:
            fix = _ask_again(configuration)
            return [Check("draft used", "fail", found, "nothing proposed", fix)]
        if asked == NO_SPECULATION:
            return [Check("draft used", "pass", found, "nothing proposed")]
        if not cell.drafted:
            fix = "n-gram drafts need prompts that repeat themselves: see workload.mix"
            return [Check("draft used", "fail", found, f"drafts by {asked}", fix)]
        if self.acceptance_length(cell) == 1.0:
            fix = "compare its outputs and figures with the baseline's: it may only cost"
            return [Check("draft used", "warn", f"{found}: length 1.00", "some accepted", fix)]
        return [Check("draft used", "pass", found, f"drafts by {asked}")]

    def check_stack(self, params: Params, seen: Seen) -> list[Check]:
        """Nothing: one release is pinned, and the launcher refuses what it cannot do."""
        return []

    def ports(self, params: Params) -> Mapping[int, str]:
        """None but its own."""
        return {}

    def check_log(self, log: str, configuration: Configuration) -> list[Check]:
        """Nothing: ``check_configuration`` tells all."""
        return []

    def explain_log(self, log: str, launch: LaunchSpec | None = None) -> str:
        """As in ``Engine``; ``launch`` is not needed."""
        cause = find_cause(log)
        return "{} ({}): {}".format(*cause) if cause else ""

    def _endpoint(self, url: str) -> Endpoint:
        return Endpoint(url, self._key_file)


def asked_speculation(configuration: Configuration) -> str:
    """The algorithm that the configuration's own arguments ask for; the last one counts."""
    asked = NO_SPECULATION
    for position, word in enumerate(configuration.args):
        if word.startswith(_SPECULATION_OPTION + "="):
            asked = word.partition("=")[2]
        elif word == _SPECULATION_OPTION and position + 1 < len(configuration.args):
            asked = configuration.args[position + 1]
    return asked


def read_info(properties: dict[str, Any], slots: Any | None) -> ServerInfo:
    """``ServerInfo`` from the answers to ``/props`` and ``/slots`` (``None``: no such page)."""
    defaults = properties.get("default_generation_settings")
    context = defaults.get("n_ctx") if isinstance(defaults, dict) else None
    concurrency = whole(properties.get("total_slots"))
    path = text(properties.get("model_path"))
    settings = {
        "model_path": path,
        "weights": text(properties.get("model_ftype")),
        "slots": concurrency,
        "context_per_slot": whole(context),
        "build": text(properties.get("build_info")),
    }
    model_id = text(properties.get("model_alias")) or path or UNKNOWN
    return ServerInfo(model_id, _running_speculation(slots), concurrency, settings)


def busy_slots(slots: Any | None) -> int | None:
    """Slots that are at work, from the answer to ``/slots``; ``None`` where there is none."""
    if not isinstance(slots, list):
        return None
    return sum(isinstance(slot, dict) and slot.get("is_processing") is True for slot in slots)


def _running_speculation(slots: Any | None) -> str:
    """What the slots run: they say whether they speculate, and by what once they were used.

    A slot that was used repeats what was asked even where nothing came of it, so its word counts
    only when every slot speculates.
    """
    known = [slot for slot in slots if isinstance(slot, dict)] if isinstance(slots, list) else []
    speculates = [slot.get("speculative") for slot in known]
    if known and all(said is False for said in speculates):
        return NO_SPECULATION
    if not all(said is True for said in speculates):
        return UNKNOWN
    used = [slot["params"] for slot in known if isinstance(slot.get("params"), dict)]
    named = {text(settings.get("speculative.types")) for settings in used} - {None, NO_SPECULATION}
    return ",".join(sorted(str(name) for name in named)) or UNKNOWN


def read_counters(metrics: str) -> Counters | None:
    """``Counters`` from the text of ``/metrics``, ``None`` where it holds none of them."""
    samples = parse_metrics(metrics)

    def count(name: str) -> int | None:
        value = total(samples, f"llamacpp:{name}")
        return None if value is None else int(value)

    counters = Counters(
        predicted=count("tokens_predicted_total"),
        drafted=count("spec_decode_num_draft_tokens_total"),
        accepted=count("spec_decode_num_accepted_tokens_total"),
        drafts=count("spec_decode_num_drafts_total"),
    )
    return None if counters == Counters() else counters


def _ask_again(configuration: Configuration) -> str:
    asked = asked_speculation(configuration)
    if asked.startswith("draft-"):
        return f"{asked} needs server.draft, and a draft that fits the model; see the server's log"
    return f"see {_SPECULATION_OPTION} in server.args and in configuration {configuration.name}"


def _alias(reference: str) -> str:
    """The name under which the server offers the model."""
    if reference.startswith(model.EMBEDDED):
        return reference.removeprefix(model.EMBEDDED)
    return Path(reference).stem


def _own_arguments(words: Sequence[str], key: str) -> Sequence[str]:
    """``words``, refused when they set what has a parameter of its own."""
    for word in words:
        option = word.partition("=")[0]
        if option in FROM_PARAMETERS:
            raise BadInput(
                f"{key}: {option} is set by {FROM_PARAMETERS[option]}",
                f"no {option} among the arguments",
                f"set {FROM_PARAMETERS[option]}",
            )
    return words
