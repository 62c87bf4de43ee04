"""The rehearsal's server as a process of its own: llama.cpp's server out of the wheel xllamacpp.

Run by file path under the serving interpreter, so nothing of ``runbook`` is imported here, and
xllamacpp (which has no command of its own) only once the arguments are known to be good.
Ends with 0 on SIGTERM or SIGINT, once the answers under way are given (one that comes while the
model is loading is obeyed at the end of the loading: the native code holds the interpreter until
then), with 1 and one line on stderr where it cannot serve, with 2 on bad arguments.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NoReturn

SPECULATION = ("none", "ngram-simple", "draft-simple", "draft-eagle3")
_STOP = {signal.SIGTERM, signal.SIGINT}
_LOADED = signal.SIGUSR1
#: How long answers under way may take once the order to stop has come.
_DRAIN_S = 15.0


class _Arguments(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The typed arguments. Raises ``ValueError`` with one sentence for what cannot be used."""
    parser = _Arguments(prog="serve_llamacpp", allow_abbrev=False, add_help=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=_count, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--alias", required=True)
    parser.add_argument("--api-key-credential", metavar="NAME")
    parser.add_argument("--threads", type=_count, default=1)
    parser.add_argument("--parallel", type=_count, default=8)
    parser.add_argument("--ctx-per-slot", type=_count, default=2048)
    parser.add_argument("--spec-type", choices=SPECULATION, default="none")
    parser.add_argument("--ngram-n", type=_count)
    parser.add_argument("--ngram-m", type=_count)
    parser.add_argument("--draft", type=Path)
    parsed = parser.parse_args(arguments)
    if parsed.spec_type != "ngram-simple" and (parsed.ngram_n or parsed.ngram_m):
        raise ValueError("--ngram-n and --ngram-m need --spec-type ngram-simple")
    return parsed


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 2**20:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 to {2**20}")
    return int(text)


def find_obstacle(arguments: argparse.Namespace) -> str | None:
    """What will keep the server from starting, in one sentence; the server itself does not say."""
    for file in filter(None, (arguments.model, arguments.draft)):
        try:
            with file.open("rb") as stream:
                if stream.read(4) != b"GGUF":
                    return f"the model {file} is not a GGUF file"
        except OSError as error:
            return f"the model {file} cannot be read: {error.strerror}"
    return _find_port_obstacle(arguments.host, arguments.port)


def _find_port_obstacle(host: str, port: int) -> str | None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return f"port {port} on {host} cannot be taken: {error.strerror}"
    return None


def read_key(name: str) -> str:
    """The API key out of ``$CREDENTIALS_DIRECTORY/name``. ``ValueError`` where there is none."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    if not folder:
        raise ValueError(f"no $CREDENTIALS_DIRECTORY to read the credential {name} from")
    try:
        key = Path(folder, name).read_text("utf-8").strip()
    except OSError as error:
        raise ValueError(f"the credential {name} cannot be read: {error.strerror}") from None
    if not key:
        raise ValueError(f"the credential {name} is empty")
    return key


def server_parameters(arguments: argparse.Namespace, key: str | None) -> Any:
    """``xllamacpp.CommonParams`` for the arguments."""
    import xllamacpp  # type: ignore[import-untyped]

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(arguments.model)
    parameters.model_alias = {arguments.alias}
    parameters.hostnames = [arguments.host]
    parameters.port = arguments.port
    parameters.n_parallel = arguments.parallel
    parameters.n_ctx = arguments.ctx_per_slot * arguments.parallel
    parameters.n_threads_http = arguments.parallel + 4  # the control calls must not queue
    parameters.cpuparams.n_threads = arguments.threads
    parameters.cpuparams_batch.n_threads = arguments.threads
    parameters.endpoint_metrics = True
    parameters.endpoint_slots = True
    parameters.ui = False
    # Every request pays for its own prompt, whatever was asked before it: cells stay comparable.
    parameters.cache_prompt = False
    parameters.cache_ram_mib = 0
    if key is not None:
        parameters.api_keys = [key]
    _set_speculation(parameters.speculative, arguments)
    return parameters


def _set_speculation(speculative: Any, arguments: argparse.Namespace) -> None:
    import xllamacpp

    if arguments.spec_type == "none":
        return
    name = "COMMON_SPECULATIVE_TYPE_" + arguments.spec_type.upper().replace("-", "_")
    speculative.types = [getattr(xllamacpp.common_speculative_type, name)]
    if arguments.ngram_n:
        speculative.ngram_simple.size_n = arguments.ngram_n
    if arguments.ngram_m:
        speculative.ngram_simple.size_m = arguments.ngram_m
    if arguments.draft and arguments.spec_type.startswith("draft-"):
        speculative.draft.mparams.path = str(arguments.draft)
        speculative.draft.cpuparams.n_threads = arguments.threads
        speculative.draft.cpuparams_batch.n_threads = arguments.threads


def _load(arguments: argparse.Namespace, key: str | None, loaded: Future[Any]) -> None:
    """Load in a thread of its own; wake the main thread, which waits for signals, at the end."""
    try:
        import xllamacpp

        loaded.set_result(xllamacpp.Server(server_parameters(arguments, key)))
    except BaseException as error:
        loaded.set_exception(error)
    os.kill(os.getpid(), _LOADED)


def serve(arguments: argparse.Namespace, key: str | None) -> int:
    """Load and serve; return 1 where that fails. A signal to stop ends the process with 0.

    The signals are blocked in every thread and fetched here: the handlers that the native server
    installs while it loads never run. Its destructor does not run either: it waits for the
    clients of unfinished requests, which get no more answers, to hang up.
    """
    started = time.monotonic()
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP | {_LOADED})
    loaded: Future[Any] = Future()
    threading.Thread(target=_load, args=(arguments, key, loaded), daemon=True).start()
    while (received := signal.sigwait(_STOP | {_LOADED})) == _LOADED:
        if error := loaded.exception():
            found = find_obstacle(arguments) or f"{type(error).__name__}: {error}"
            return _refuse(f"{found} (model {arguments.model})")
        _say(f"READY {arguments.alias} after {time.monotonic() - started:.2f} s")
    if loaded.done():
        _drain(arguments, key)
    _say(f"STOPPED by {signal.Signals(received).name}")
    os._exit(0)


def _drain(arguments: argparse.Namespace, key: str | None) -> None:
    """Wait for the answers under way; a second signal, or an end of patience, cuts them."""
    deadline = time.monotonic() + _DRAIN_S
    while _slots_at_work(arguments, key) and time.monotonic() < deadline:
        if signal.sigtimedwait(_STOP, 0.1):
            return


def _slots_at_work(arguments: argparse.Namespace, key: str | None) -> bool:
    everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    host = everywhere.get(arguments.host, arguments.host)
    connection = http.client.HTTPConnection(host, arguments.port, timeout=5)
    try:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", "/slots", headers=headers)
        answer = connection.getresponse()
        return answer.status == 200 and any(s["is_processing"] for s in json.load(answer))
    except (OSError, http.client.HTTPException, ValueError, KeyError):
        return False
    finally:
        connection.close()


def _say(line: str) -> None:
    print(f"serve_llamacpp: {line}", flush=True)


def _refuse(cause: str) -> int:
    print(f"serve_llamacpp: cannot serve: {cause}", file=sys.stderr, flush=True)
    return 1


def main() -> int:
    """Parse, look for what is in the way, serve."""
    try:
        arguments = parse_arguments(sys.argv[1:])
    except ValueError as error:
        _refuse(str(error))
        return 2
    try:
        key = read_key(arguments.api_key_credential) if arguments.api_key_credential else None
    except ValueError as error:
        return _refuse(str(error))
    if obstacle := find_obstacle(arguments):
        return _refuse(obstacle)
    return serve(arguments, key)


if __name__ == "__main__":
    sys.exit(main())
