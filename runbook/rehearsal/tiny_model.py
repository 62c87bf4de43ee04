"""The tiny Llama and its EAGLE-3 draft as they are trained: plain torch, with the names and the
arithmetic by which SGLang serves their checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDTH = 128
LAYERS = 12
HEADS, KV_HEADS, HEAD_WIDTH = 4, 2, 32
MLP_WIDTH = 256
THETA = 10000.0
EPSILON = 1e-6
#: The target's layers whose inputs the draft reads: what SGLang captures of 12 layers.
CAPTURED = (2, LAYERS // 2, LAYERS - 3)


@dataclass(frozen=True)
class Rotation:
    """Rotary positions 0 to ``length`` - 1, (length, width of a head)."""

    cosine: Tensor
    sine: Tensor

    @classmethod
    def of(cls, length: int) -> Rotation:
        """Positions 0 to ``length`` - 1."""
        frequencies = THETA ** (-torch.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
        angles = torch.outer(torch.arange(length).float(), frequencies).repeat(1, 2)
        return cls(angles.cos(), angles.sin())

    def turn(self, heads: Tensor) -> Tensor:
        """``heads``: (rows, heads, length, width)."""
        first, second = heads.chunk(2, dim=-1)
        return heads * self.cosine + torch.cat((-second, first), dim=-1) * self.sine


class Attention(nn.Module):
    """Grouped-query attention; ``width_in`` is twice as wide in a draft."""

    def __init__(self, width_in: int) -> None:
        super().__init__()
        self.q_proj = nn.Linear(width_in, HEADS * HEAD_WIDTH, bias=False)
        self.k_proj = nn.Linear(width_in, KV_HEADS * HEAD_WIDTH, bias=False)
        self.v_proj = nn.Linear(width_in, KV_HEADS * HEAD_WIDTH, bias=False)
        self.o_proj = nn.Linear(HEADS * HEAD_WIDTH, WIDTH, bias=False)

    def project(self, states: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of all heads, (rows, HEADS, length, HEAD_WIDTH) each."""
        rows, length, _ = states.shape

        def heads(projection: nn.Module, count: int) -> Tensor:
            split: Tensor = projection(states).view(rows, length, count, HEAD_WIDTH)
            return split.transpose(1, 2)

        repeat = HEADS // KV_HEADS
        key = rotation.turn(heads(self.k_proj, KV_HEADS)).repeat_interleave(repeat, dim=1)
        value = heads(self.v_proj, KV_HEADS).repeat_interleave(repeat, dim=1)
        return rotation.turn(heads(self.q_proj, HEADS)), key, value

    def join(self, heads: Tensor) -> Tensor:
        """What the heads saw, back to (rows, length, WIDTH)."""
        joined: Tensor = self.o_proj(heads.transpose(1, 2).flatten(2))
        return joined


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(WIDTH, MLP_WIDTH, bias=False)
        self.up_proj = nn.Linear(WIDTH, MLP_WIDTH, bias=False)
        self.down_proj = nn.Linear(MLP_WIDTH, WIDTH, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        """(rows, length, WIDTH) in and out."""
        answer: Tensor = self.down_proj(F.silu(self.gate_proj(states)) * self.up_proj(states))
        return answer


def _norm() -> nn.RMSNorm:
    return nn.RMSNorm(WIDTH, eps=EPSILON)


class Layer(nn.Module):
    """One layer of the target."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = _norm()
        self.self_attn = Attention(WIDTH)
        self.post_attention_layernorm = _norm()
        self.mlp = Mlp()

    def forward(self, states: Tensor, rotation: Rotation) -> Tensor:
        """(rows, length, WIDTH) in and out."""
        query, key, value = self.self_attn.project(self.input_layernorm(states), rotation)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        states = states + self.self_attn.join(seen)
        answer: Tensor = states + self.mlp(self.post_attention_layernorm(states))
        return answer


class Target(nn.Module):
    """The tiny Llama."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = _norm()
        self.lm_head = nn.Linear(WIDTH, vocabulary, bias=False)
        _initialise(self, 1 / math.sqrt(2 * LAYERS))

    def forward(self, tokens: Tensor, rotation: Rotation) -> tuple[Tensor, Tensor]:
        """Logits, and the captured states side by side, (rows, length, 3 * WIDTH)."""
        states, captured = self.embed_tokens(tokens), []
        for number, layer in enumerate(self.layers):
            if number in CAPTURED:
                captured.append(states)
            states = layer(states, rotation)
        return self.lm_head(self.norm(states)), torch.cat(captured, dim=-1)

    def checkpoint(self) -> dict[str, Tensor]:
        """Weights under the names of a Llama checkpoint."""
        return {
            name if name.startswith("lm_head") else f"model.{name}": weight
            for name, weight in self.state_dict().items()
        }


class DraftLayer(nn.Module):
    """The draft's one layer: it reads a token's embedding and a state side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.input_layernorm = _norm()
        self.hidden_norm = _norm()
        self.self_attn = Attention(2 * WIDTH)
        self.post_attention_layernorm = _norm()
        self.mlp = Mlp()


class Draft(nn.Module):
    """An EAGLE-3 draft for a target; it shares the target's embedding."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.fc = nn.Linear(len(CAPTURED) * WIDTH, WIDTH, bias=False)
        self.midlayer = DraftLayer()
        self.norm = _norm()
        self.lm_head = nn.Linear(WIDTH, vocabulary, bias=False)
        _initialise(self, 0.3)

    def learn_from(self, target: Target) -> None:
        """Begin at the target: its head, its last norm, and the last state it captures."""
        with torch.no_grad():
            self.lm_head.weight.copy_(target.lm_head.weight)
            self.norm.weight.copy_(target.norm.weight)
            self.fc.weight.normal_(0, 0.01)
            self.fc.weight[:, -WIDTH:] += torch.eye(WIDTH)

    def forward(self, embedded: Tensor, captured: Tensor, steps: int) -> list[Tensor]:
        """Logits of ``steps`` drafts in a row from every position, as at serving: a later step
        reads the state of the step before it instead of the target's."""
        rotation = Rotation.of(embedded.shape[1])
        states, logits = self.fc(captured), []
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for _ in range(steps):
            after = self._step(embedded, states, rotation, keys, values)
            logits.append(self.lm_head(self.norm(after)))
            states = F.pad(after[:, :-1], (0, 0, 1, 0))
        return logits

    def _step(
        self,
        embedded: Tensor,
        states: Tensor,
        rotation: Rotation,
        keys: list[Tensor],
        values: list[Tensor],
    ) -> Tensor:
        layer = self.midlayer
        both = torch.cat((layer.input_layernorm(embedded), layer.hidden_norm(states)), dim=-1)
        query, key, value = layer.self_attn.project(both, rotation)
        keys.append(key)
        values.append(value)
        states = states + layer.self_attn.join(_attend(query, keys, values))
        answer: Tensor = states + layer.mlp(layer.post_attention_layernorm(states))
        return answer

    def checkpoint(self) -> dict[str, Tensor]:
        """Weights and vocabulary maps (all tokens are the draft's too) as SGLang loads them."""
        count = self.lm_head.weight.shape[0]
        maps = {"d2t": torch.zeros(count, dtype=torch.int64), "t2d": torch.ones(count).bool()}
        return {**self.state_dict(), **maps}


def _attend(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Step j at position p sees the first step's tokens up to p - j, then of each later step the
    one that led here."""
    step, length = len(keys) - 1, query.shape[2]
    visible = torch.ones(length, length, dtype=torch.bool).tril(-step)
    scores = (query @ keys[0].transpose(-1, -2)).masked_fill(~visible, float("-inf"))
    led = [_shift(keys[i], step - i) for i in range(1, step + 1)]
    own = [(query * key).sum(-1, keepdim=True) for key in led]
    weights = (torch.cat([scores, *own], dim=-1) / math.sqrt(HEAD_WIDTH)).softmax(-1)
    seen = weights[..., :length] @ values[0]
    for i in range(1, step + 1):
        seen = seen + weights[..., length + i - 1, None] * _shift(values[i], step - i)
    return seen


def _shift(states: Tensor, by: int) -> Tensor:
    """Each position gets what stood ``by`` before it."""
    return F.pad(states[:, :, : states.shape[2] - by], (0, 0, by, 0)) if by else states


def _initialise(model: nn.Module, residual: float) -> None:
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            continue
        deviation = 0.02 if "embed" in name else 1 / math.sqrt(weight.shape[1])
        scale = residual if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
        nn.init.normal_(weight, 0, deviation * scale)
