"""Trains the SGLang rehearsal's tiny target and its EAGLE-3 draft: fixed seeds, fixed step counts,
about four minutes on two cores. Run under the interpreter that has SGLang's torch:
``make train-tiny-eagle3``, or ``python -m runbook.rehearsal.train_tiny_eagle3 FOLDER``.

Written are ``target``, ``draft`` and ``untrained-draft``, Hugging Face folders with float16
weights, and their hashes. The same machine and torch give the same files; another processor may
round otherwise.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional as F

from runbook.rehearsal import tiny_model
from runbook.rehearsal.tiny_corpus import Exchange, exchanges
from runbook.rehearsal.tiny_model import Draft, Rotation, Target

SEED = 20261130
ROWS, ROW_TOKENS = 8, 256
TARGET_STEPS, DRAFT_STEPS = 240, 160
DRAFT_DEPTH = 4
MAX_POSITIONS = 2048
_SPECIAL = ("<s>", "</s>", "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>")
_TEMPLATE = (
    "<s>{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
Batch = tuple[Tensor, Tensor]


def train_tokenizer() -> Tokenizer:
    """Byte-level BPE on the corpus."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1024,
        special_tokens=list(_SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    corpus = itertools.islice(exchanges(SEED), 3000)
    tokenizer.train_from_iterator(
        (text for one in corpus for text in (one.prompt, one.answer)), trainer
    )
    tokenizer.add_special_tokens([AddedToken(word, special=True) for word in _SPECIAL])
    return tokenizer


def batches(tokenizer: Tokenizer, seed: int) -> Iterator[Batch]:
    """Rows of one token more than ``ROW_TOKENS``, and which of them are of answers."""
    source = exchanges(seed)
    while True:
        rows = [_row(tokenizer, source) for _ in range(ROWS)]
        tokens, answers = zip(*rows, strict=True)
        yield torch.tensor(tokens), torch.tensor(answers)


def _row(tokenizer: Tokenizer, source: Iterator[Exchange]) -> tuple[list[int], list[bool]]:
    tokens: list[int] = []
    answers: list[bool] = []
    while len(tokens) <= ROW_TOKENS:
        one = next(source)
        asked = tokenizer.encode(f"<s><|user|>{one.prompt}<|assistant|>").ids
        said = tokenizer.encode(f"{one.answer}</s>").ids
        tokens += asked + said
        answers += [False] * len(asked) + [True] * len(said)
    return tokens[: ROW_TOKENS + 1], answers[: ROW_TOKENS + 1]


class Optimiser:
    """Muon for hidden matrices, Adam for embeddings, heads and norms; one schedule for both."""

    def __init__(self, model: nn.Module, steps: int, muon_rate: float, adam_rate: float) -> None:
        named = list(model.named_parameters())
        plain = [w for name, w in named if w.dim() < 2 or "embed" in name or "lm_head" in name]
        taken = {id(weight) for weight in plain}
        self._hidden = [weight for _, weight in named if id(weight) not in taken]
        self._momentum = [torch.zeros_like(weight) for weight in self._hidden]
        self._adam = torch.optim.Adam(plain, lr=adam_rate, betas=(0.9, 0.98))
        self._model, self._steps, self._done = model, steps, 0
        self._rates = muon_rate, adam_rate

    def step(self, loss: Tensor) -> None:
        """One step down the gradient of ``loss``."""
        self._model.zero_grad()
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self._model.parameters(), 1.0)
        share, muon_rate = _schedule(self._done / self._steps), self._rates[0]
        for group in self._adam.param_groups:
            group["lr"] = self._rates[1] * share
        self._adam.step()
        with torch.no_grad():
            for weight, momentum in zip(self._hidden, self._momentum, strict=True):
                if weight.grad is None:
                    continue
                momentum.mul_(0.95).add_(weight.grad)
                update = _orthogonalise(weight.grad.add(momentum, alpha=0.95))
                rate = muon_rate * share * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
                weight.mul_(1 - 0.01 * rate).sub_(update, alpha=rate)
        self._done += 1


def _orthogonalise(matrix: Tensor) -> Tensor:
    """Newton-Schulz: all singular values near 1."""
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = wide / (wide.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def _schedule(done: float) -> float:
    """Warm-up over 5 %, flat to 70 %, then down to 2 %."""
    if done < 0.05:
        return (done + 0.001) / 0.05
    return 1.0 if done < 0.7 else max(0.02, 1 - 0.98 * (done - 0.7) / 0.3)


def train_target(tokenizer: Tokenizer, steps: int, say: Callable[[str], None]) -> Target:
    """The target: next tokens, those of answers above all."""
    torch.manual_seed(SEED)
    target, rotation = Target(tokenizer.get_vocab_size()), Rotation.of(ROW_TOKENS)
    optimiser = Optimiser(target, steps, 0.02, 4e-3)
    for step, (tokens, answers) in enumerate(itertools.islice(batches(tokenizer, SEED + 1), steps)):
        logits, _ = target(tokens[:, :-1], rotation)
        losses = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        weights = 0.05 + answers[:, 1:].flatten().float()
        optimiser.step((losses * weights).sum() / weights.sum())
        if step % 20 == 0 or step == steps - 1:
            of_answers = losses[answers[:, 1:].flatten()].mean()
            say(f"target {step + 1}/{steps}: loss {float(of_answers.detach()):.3f}")
    return target


def train_draft(
    tokenizer: Tokenizer, target: Target, steps: int, say: Callable[[str], None]
) -> Draft:
    """The draft: what the target itself would say, several steps ahead of it."""
    torch.manual_seed(SEED + 2)
    draft = Draft(tokenizer.get_vocab_size())
    draft.learn_from(target)
    optimiser = Optimiser(draft, steps, 0.02, 2e-3)
    for step, batch in enumerate(itertools.islice(batches(tokenizer, SEED + 3), steps)):
        wanted, weights, logits = foresee(target, draft, batch, DRAFT_DEPTH)
        loss = torch.zeros(())
        for depth, said in enumerate(logits):
            losses = -(wanted.softmax(-1) * said.log_softmax(-1)).sum(-1)
            part = weights.clone()
            part[:, :depth] = 0
            loss = loss + 0.8**depth * (losses * part).sum() / part.sum()
        optimiser.step(loss)
        if step % 20 == 0 or step == steps - 1:
            right = agreement(wanted, weights, logits)
            say(f"draft {step + 1}/{steps}: " + " ".join(f"{share:.3f}" for share in right))
    return draft


def foresee(
    target: Target, draft: Draft, batch: Batch, depth: int
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """What the target says after each token but the first, 1 where that is part of an answer, and
    what the draft foresaw of it in each of its steps."""
    tokens, answers = batch
    with torch.no_grad():
        logits, captured = target(tokens[:, :-1], Rotation.of(ROW_TOKENS))
        embedded = target.embed_tokens(tokens[:, 1:-1])
    return logits[:, 1:], answers[:, 2:].float(), draft(embedded, captured[:, :-1], depth)


def agreement(wanted: Tensor, weights: Tensor, logits: list[Tensor]) -> list[float]:
    """How often the draft's first choice is the target's, by step."""
    first = wanted.argmax(-1)
    found = []
    for depth, said in enumerate(logits):
        part = weights.clone()
        part[:, :depth] = 0
        found.append(float(((said.argmax(-1) == first) * part).sum() / part.sum()))
    return found


def expected_acceptance(shares: list[float]) -> float:
    """Tokens per verify step of a chain of drafts that is right so often at each step."""
    return 1 + sum(math.prod(shares[: n + 1]) for n in range(len(shares)))


def round_to_half(model: nn.Module) -> None:
    """The weights as they are kept: the draft is to learn from the target that will be served."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.half().float())


def write_model(
    folder: Path, weights: dict[str, Tensor], config: dict[str, object], tokenizer: Tokenizer
) -> None:
    """One Hugging Face folder."""
    folder.mkdir(parents=True, exist_ok=True)
    kept = {
        name: (weight.half() if weight.is_floating_point() else weight).contiguous()
        for name, weight in weights.items()
    }
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    _write_json(folder / "config.json", config)
    tokenizer.save(str(folder / "tokenizer.json"))
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "chat_template": _TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "model_max_length": MAX_POSITIONS,
        },
    )


def _write_json(path: Path, value: dict[str, object]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", "utf-8")


def _config(tokenizer: Tokenizer, architecture: str, layers: int) -> dict[str, object]:
    vocabulary = tokenizer.get_vocab_size()
    config: dict[str, object] = {
        "architectures": [architecture],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": tiny_model.WIDTH,
        "intermediate_size": tiny_model.MLP_WIDTH,
        "num_hidden_layers": layers,
        "num_attention_heads": tiny_model.HEADS,
        "num_key_value_heads": tiny_model.KV_HEADS,
        "head_dim": tiny_model.HEAD_WIDTH,
        "hidden_act": "silu",
        "rms_norm_eps": tiny_model.EPSILON,
        "rope_theta": tiny_model.THETA,
        "max_position_embeddings": MAX_POSITIONS,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": tokenizer.token_to_id("<s>"),
        "eos_token_id": tokenizer.token_to_id("</s>"),
        "torch_dtype": "float16",
    }
    if layers == 1:
        config["draft_vocab_size"] = vocabulary
    return config


def write_hashes(folder: Path) -> None:
    """``SHA256SUMS`` over all files, as ``sha256sum --check`` reads it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in files
        if path.name != "SHA256SUMS"
    ]
    (folder / "SHA256SUMS").write_text("".join(lines), "utf-8")


def main(folder: Path) -> None:
    """Train all and write all."""
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {text}", flush=True)

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(2)
    tokenizer = train_tokenizer()
    say(f"vocabulary of {tokenizer.get_vocab_size()}")
    target = train_target(tokenizer, TARGET_STEPS, say)
    round_to_half(target)
    draft = train_draft(tokenizer, target, DRAFT_STEPS, say)
    round_to_half(draft)
    with torch.no_grad():
        held_out = next(batches(tokenizer, SEED + 9))
        right = agreement(*foresee(target, draft, held_out, 3))
    say(f"expected acceptance length with 3 steps: {expected_acceptance(right):.2f}")
    torch.manual_seed(SEED + 4)
    untrained = Draft(tokenizer.get_vocab_size())
    whole = _config(tokenizer, "LlamaForCausalLM", tiny_model.LAYERS)
    small = _config(tokenizer, "LlamaForCausalLMEagle3", 1)
    write_model(folder / "target", target.checkpoint(), whole, tokenizer)
    write_model(folder / "draft", draft.checkpoint(), small, tokenizer)
    write_model(folder / "untrained-draft", untrained.checkpoint(), small, tokenizer)
    write_hashes(folder)
    say(f"written to {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
