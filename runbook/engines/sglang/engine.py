"""SGLang's server: launch, readiness, what it says of itself, and the proof of what runs."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runbook.bounded import parse_json
from runbook.checks import Check
from runbook.engines.assemble import assemble_spec, own_program
from runbook.engines.base import Counters, Seen, ServerInfo
from runbook.engines.endpoint import Endpoint
from runbook.engines.ladder import wait_idle, wait_ready
from runbook.engines.prometheus import parse_metrics, total
from runbook.engines.sglang import serve_sglang
from runbook.engines.sglang.checks import STACK_CHECKS, check_releases
from runbook.engines.sglang.info import ALIKE, UNKNOWN, read_info
from runbook.engines.sglang.log import (
    find_acceptance,
    find_cause,
    find_worker,
    running_at_once,
)
from runbook.engines.sglang.models import ModelFacts, read_model
from runbook.engines.sglang.observed import (
    Asked,
    acceptance_length,
    check_info,
    check_use,
    check_worker,
)
from runbook.engines.sglang.options import (
    SPEC_V2,
    effective_env,
    further_ports,
    intended_worker,
    options_of,
    read_switch,
    refuse_own,
)
from runbook.engines.sglang.parsed import PARSED_CHECK, check_as_parsed, check_parsed
from runbook.engines.sglang.releases import OVERWRITES, find_release
from runbook.errors import BadInput, NotHere, ServerFailed
from runbook.launch.spec import LaunchSpec
from runbook.params import Configuration, Params, Server
from runbook.redaction import without_secrets
from runbook.rehearsal import sglang_on_cpu
from runbook.rehearsal.model import MODELS, resolve_model

_MODULE = "sglang.launch_server"
_LAUNCHER = Path(serve_sglang.__file__).absolute()
_INFO_PAGES = ("/server_info", "/get_server_info")
_POLL_S = 0.5
_MAX_CONFIG_BYTES = 1 << 24


class SGLang:
    """The engine ``sglang``. ``key_file`` holds the API key of servers that ask for one.
    ``server``: what all configurations share; without it their own arguments count alone."""

    name = "sglang"
    distribution = "sglang"
    overwrites = frozenset(OVERWRITES)
    stack_checks = (*STACK_CHECKS, PARSED_CHECK)
    #: Known since 0.5.20 at the latest; older releases take no notice.
    request_fields: Mapping[str, Any] = {"return_spec_tokens_details": True}
    alike = ALIKE
    argument_probe = "sglang_arguments"

    def __init__(self, key_file: str | None = None, server: Server | None = None) -> None:
        self._key_file = key_file
        self._server = _placed(server or Server(engine="sglang", port=1, model="unknown"))

    def prepare(self, params: Params, progress: Callable[[str], None]) -> None:
        """Nothing is prepared. Raises ``NotHere`` where no interpreter can have SGLang.

        One that is named and cannot be executed is found by the checks of the stack.
        """
        interpreter = params.server.interpreter
        if interpreter == sglang_on_cpu.INTERPRETER:
            sglang_on_cpu.require()
        elif not interpreter and not _has_sglang():
            raise NotHere(
                "the package sglang is not installed beside the runbook",
                "the interpreter of SGLang's own environment",
                "set server.interpreter",
            )

    def launch_spec(self, params: Params, configuration: Configuration) -> LaunchSpec:
        """The whole launch. Raises ``BadInput`` for arguments that belong into other parameters."""
        server = _placed(params.server)
        refuse_own(server.args, "server.args")
        refuse_own(configuration.args, f"configurations[name={configuration.name}].args")
        options = options_of(server, configuration)
        drafted = server.draft and options.needs_draft
        arguments = [
            *("--model-path", server.model, "--host", server.address, "--port", str(server.port)),
            *(("--speculative-draft-model-path", server.draft) if drafted else ()),
            *server.args,
            *configuration.args,
        ]
        start, files = ["-m", _MODULE], dict[str, str]()
        if server.api_key:
            launcher, files = own_program(params, _LAUNCHER)
            start = [launcher]
        interpreter = server.interpreter or sys.executable
        placed = params.model_copy(update={"server": server})
        return assemble_spec(placed, configuration, [interpreter, *start, *arguments], files)

    def wait_ready(self, url: str, alive: Callable[[], bool], timeout_s: float) -> float:
        """As in ``Engine``; after the completion ``/server_info`` must answer too: a server can
        be healthy whose scheduler is not."""
        started = time.monotonic()
        wait_ready(self._endpoint(url), alive, timeout_s)
        while True:
            try:
                self.info(url)
                return time.monotonic() - started
            except ServerFailed as failure:
                if not alive() or time.monotonic() - started > timeout_s:
                    raise ServerFailed(
                        f"it completes, but does not say what it runs: {failure.found}",
                        "an answer to /server_info",
                        "read its log",
                    ) from None
            time.sleep(_POLL_S)

    def info(self, url: str) -> ServerInfo:
        """From ``/server_info``, or its predecessor where there is none; without secrets."""
        endpoint = self._endpoint(url)
        for page in _INFO_PAGES:
            answer = without_secrets(endpoint.get_json(page))
            if answer is None:
                continue
            info = read_info(answer)
            if info is not None:
                return info
            raise ServerFailed(
                f"{url}{page} holds no server info", "an SGLang server", "see what runs there"
            )
        raise ServerFailed(
            f"{url} has neither {' nor '.join(_INFO_PAGES)}",
            "an SGLang server",
            "see what runs there",
        )

    def counters(self, url: str) -> Counters | None:
        """From ``/metrics``, which needs ``--enable-metrics``; a request counts when it ends."""
        response = self._endpoint(url).get("/metrics")
        return read_counters(response.text) if response.status_code == 200 else None

    def end_requests(self, url: str, timeout_s: float) -> str:
        """All at once by ``/abort_request``: one whose client only hangs up may go on to its last
        token. Whether any runs is told by ``/metrics``."""
        endpoint = self._endpoint(url)
        endpoint.post("/abort_request", {"rid": "", "abort_all": True})
        return wait_idle(lambda: read_running(endpoint.get("/metrics").text), timeout_s)

    def acceptance_length(self, cell: Counters) -> float | None:
        """``(output tokens - requests) / verify steps`` over a cell, or what its log tells."""
        return acceptance_length(cell)

    def acceptance_in_log(self, log: str) -> float | None:
        """Of its decode batches: older releases count no verify steps."""
        return find_acceptance(log)

    def running_at_once(self, log: str) -> float | None:
        """The median of the decode batches, summed over the ranks that write some."""
        return running_at_once(log)

    def check_configuration(
        self,
        info: ServerInfo,
        configuration: Configuration,
        resolved: Mapping[str, Any] | None = None,
    ) -> list[Check]:
        """Speculation, worker, sizes of the draft and cap, against what was asked; settings,
        against what the parser resolved."""
        asked = self._asked(configuration, info.settings.get("version"))
        checks = list(check_info(info, asked))
        expected = read_info(resolved) if resolved else None
        return [*checks, check_as_parsed(info, expected)] if expected else checks

    def check_cell(
        self, cell: Counters, configuration: Configuration, told: Mapping[str, Any] | None = None
    ) -> list[Check]:
        """Whether the draft was really used over a cell. Its ``config.json`` is the one that was
        ``told``; this machine's own where no host was asked."""
        asked, seen = self._asked(configuration), Seen(told={configuration.name: told or {}})
        read = _told_config if told else _own_config
        draft = read_model(read(seen, self._server.draft)) if asked.options.speculates else None
        return [check_use(cell, asked, draft or ModelFacts())]

    def check_stack(self, params: Params, seen: Seen) -> list[Check]:
        """The configurations against the installed release, against the ``config.json`` of
        target and draft as the host tells them (this machine's own, where no host was asked and
        it is the host), and against SGLang's own parser."""
        server, version = _placed(params.server), seen.versions.get(self.distribution)
        read = _told_config if seen.told or params.host.kind == "ssh" else _own_config
        target, draft = (read_model(read(seen, folder)) for folder in (server.model, server.draft))
        checks = check_releases(params, version, target, draft, seen)
        asked = [self._asked(one) for one in params.configurations]
        parsed = {one.name: seen.fact(one.name, "arguments") for one in asked}
        told = {name: one for name, one in parsed.items() if one} or None
        return [*checks, *check_parsed(asked, told, version)]

    def ports(self, params: Params) -> Mapping[int, str]:
        """Those that any configuration names, or SGLang derives from its own."""
        server, found = params.server, dict[int, str]()
        for configuration in params.configurations:
            found |= further_ports(options_of(server, configuration), server.port)
        return found

    def check_log(self, log: str, configuration: Configuration) -> list[Check]:
        """The worker that the start of a log names."""
        options = options_of(self._server, configuration)
        if not options.speculates or options.algorithm == "NGRAM":
            return []
        asked = Asked(configuration.name, options, intended_worker(configuration, None))
        return [check_worker(find_worker(log) or UNKNOWN, asked, "worker in the log")]

    def explain_log(self, log: str, launch: LaunchSpec | None = None) -> str:
        """The cause, the line that says so and the fix, as one sentence."""
        cause = find_cause(log, launch)
        return f"{cause.name} ({cause.line}): {cause.fix}" if cause else ""

    def _asked(self, configuration: Configuration, version: str | None = None) -> Asked:
        """What is asked for; the variable means a worker only where a release heeds it."""
        switch = read_switch(effective_env(self._server, configuration).get(SPEC_V2))
        release = find_release(version) if version else None
        if release and release.variable != "worker":
            switch = None
        worker = intended_worker(configuration, switch)
        return Asked(configuration.name, options_of(self._server, configuration), worker)

    def _endpoint(self, url: str) -> Endpoint:
        return Endpoint(url, self._key_file)


def _has_sglang() -> bool:
    """Whether the runbook's interpreter has SGLang; a mere folder of that name has no origin."""
    spec = importlib.util.find_spec("sglang")
    return spec is not None and spec.origin is not None


def _placed(server: Server) -> Server:
    """``server`` with what is embedded in its place: paths, and the variables it needs there.

    Raises ``BadInput`` for a model of another engine.
    """
    if server.model.removeprefix("embedded:") in MODELS:
        raise BadInput(
            f"server.model: {server.model} is for the engine llamacpp",
            "the folder of a model",
            "set server.model",
        )
    placed = {"model": resolve_model(server.model), "draft": resolve_model(server.draft)}
    if server.interpreter != sglang_on_cpu.INTERPRETER:
        return server.model_copy(update=placed)
    env = {**sglang_on_cpu.environment(), **server.env}
    return server.model_copy(
        update={**placed, "interpreter": sglang_on_cpu.interpreter(), "env": env}
    )


def read_counters(metrics: str) -> Counters | None:
    """``Counters`` from the text of ``/metrics``, ``None`` where it holds none of them."""
    samples = parse_metrics(metrics)

    def count(name: str) -> int | None:
        value = total(samples, f"sglang:{name}")
        return None if value is None else int(value)

    counters = Counters(
        predicted=count("generation_tokens_total"),
        verify_steps=count("spec_verify_calls_total"),
        requests=count("num_requests_total"),
    )
    return None if counters == Counters() else counters


def read_running(metrics: str) -> int | None:
    """Requests that run or wait, from the text of ``/metrics``; ``None`` where it does not tell."""
    samples = parse_metrics(metrics)
    running, waiting = (total(samples, f"sglang:num_{of}_reqs") for of in ("running", "queue"))
    return None if running is None else int(running + (waiting or 0))


def _told_config(seen: Seen, folder: str) -> Mapping[str, Any] | None:
    """What the probes told of the ``config.json`` in ``folder``."""
    for facts in seen.told.values():
        model = (facts.get("models") or {}).get(folder)
        if model:
            config: Mapping[str, Any] | None = model["config"]
            return config
    return None


def _own_config(seen: Seen, folder: str) -> Mapping[str, Any] | None:
    return _read_config(folder)


def _read_config(folder: str) -> Mapping[str, Any] | None:
    """``config.json`` of a model's folder on this machine, ``None`` where it cannot be read."""
    if not folder:
        return None
    try:
        with Path(folder, "config.json").open("rb") as file:
            config = parse_json(file.read(_MAX_CONFIG_BYTES))
    except (OSError, ValueError):
        return None
    return config if isinstance(config, dict) else None
