"""What is asked of a server: as the parameters say, and once the longest prompt that comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from runbook.checks import Check
from runbook.launch.server import local_url
from runbook.load import LoadPlan, Prompt, Record, run_load
from runbook.load.context import learn_characters_per_token, texts_of
from runbook.params import Params

LONGEST = "longest prompt"
_SAMPLE_CHARACTERS = 4000
#: Room for the answer and the chat template, and for a sample that is not quite like the whole.
_ROOM_TOKENS, _ROOM_SHARE = 64, 0.03
_ANSWER_TOKENS = 16


def plan_load(
    params: Params,
    model_id: str,
    concurrency: int,
    prompts: tuple[Prompt, ...],
    output_tokens: int | None = None,
) -> LoadPlan:
    """Each of ``prompts`` once, asked as the parameters say."""
    return LoadPlan(
        url=local_url(params.server),
        model=model_id,
        prompts=prompts,
        requests=len(prompts),
        concurrency=concurrency,
        output_tokens=output_tokens or params.workload.output_tokens,
        temperature=params.workload.temperature,
        seed=params.workload.seed,
        request_timeout_s=params.server.timeouts.request_s,
        api_key_file=params.server.api_key.file if params.server.api_key else None,
        extra={"ignore_eos": True} if params.workload.ignore_eos else {},
    )


def try_longest(
    params: Params, model_id: str, prompts: Sequence[Prompt], alive: Callable[[], bool]
) -> Check:
    """One prompt of ``stack.context_tokens``, made of ``prompts``: some servers end over it.

    How long it was is the server's own count. What fails says how.
    """
    tokens = params.stack.context_tokens
    wanted = f"an answer to a prompt of {tokens} tokens"
    text = "\n\n".join(("Document 0.", *texts_of(prompts)))

    def prompt_of(characters: int) -> Prompt:
        words = (text * (characters // max(1, len(text)) + 1))[:characters]
        return Prompt("longest", "longest", ({"role": "user", "content": words},))

    def ask(prompt: Prompt) -> Record:
        answer_tokens = min(_ANSWER_TOKENS, params.workload.output_tokens)
        plan = plan_load(params, model_id, 1, (prompt,), answer_tokens)
        return run_load(plan, None, alive).records[0]

    sample = prompt_of(_SAMPLE_CHARACTERS)
    record = ask(sample)
    if characters_per_token := learn_characters_per_token(sample, record):
        room = max(0.0, tokens * (1 - _ROOM_SHARE) - _ROOM_TOKENS)
        record = ask(prompt_of(int(room * characters_per_token)))
    if record.ok and record.tokens_in:
        return Check(LONGEST, "pass", f"{record.tokens_in} tokens, answered", wanted)
    if record.ok:
        return Check(LONGEST, "unknown", "an answer without usage: its length is unknown", wanted)
    fix = "see the end of its log; a shorter stack.context_tokens only hides it from production"
    return Check(LONGEST, "fail", f"{record.error_kind}: {record.error}", wanted, fix)
