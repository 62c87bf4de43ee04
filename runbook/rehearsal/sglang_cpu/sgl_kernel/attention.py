"""Attention over the paged cache, by torch's own. Sliding windows, soft caps, sinks and encoders
are no part of the rehearsal's models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


def decode_attention_cpu(
    query: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    output: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    cache_loc: Tensor,
    attn_logits: Tensor,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    scaling: float,
    *rest: Any,
) -> None:
    """One new token a sequence: store its key and value, then look at all up to it.

    ``query`` and ``output``: (sequences, heads, width); buffers: (slots, heads, width).
    """
    if key is not None and value is not None:
        k_buffer[cache_loc] = key.view(-1, *k_buffer.shape[1:])
        v_buffer[cache_loc] = value.view(-1, *v_buffer.shape[1:])
    keys, values, longest = _gather(k_buffer, v_buffer, req_to_token, req_pool_indices, seq_lens)
    mask = None
    if seq_lens.numel() > 1:
        mask = (torch.arange(longest) < seq_lens.unsqueeze(1))[:, None, None, :]
    output.copy_(_attend(query.unsqueeze(2), keys, values, mask, scaling).squeeze(2))


def extend_attention_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    k_scale: float,
    v_scale: float,
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    extend_seq_lens: Tensor,
    extend_start_loc: Tensor,
    max_len_extend: int,
    scaling: float,
    logit_cap: float,
    is_cross_attn: bool,
    sliding_window_size: int,
    encoder_lens: Tensor | None,
    sinks: Tensor | None,
    tree_mask: Tensor | None = None,
    is_causal: bool = True,
) -> None:
    """Several new tokens a sequence, whose keys and values lie in the cache already.

    Each sees all tokens before the new ones, and of the new ones those up to itself, or its
    ancestors where there is a tree.
    """
    lengths = extend_seq_lens.tolist()
    if len(set(lengths)) > 1:
        starts = extend_start_loc.tolist()
        for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            one = slice(row, row + 1)
            part = slice(start, start + length)
            keys, values, total = _gather(
                k_buffer, v_buffer, req_to_token, req_pool_indices[one], seq_lens[one]
            )
            mask = _mask(seq_lens[one], length, total, None)
            heads = query[part].transpose(0, 1).unsqueeze(0)
            answer = _attend(heads, keys, values, mask, scaling)
            output[part] = answer.squeeze(0).transpose(0, 1)
        return
    count, length = len(lengths), lengths[0]
    keys, values, total = _gather(k_buffer, v_buffer, req_to_token, req_pool_indices, seq_lens)
    mask = _mask(seq_lens, length, total, tree_mask)
    heads = query.view(count, length, *query.shape[1:]).transpose(1, 2)
    answer = _attend(heads, keys, values, mask, scaling)
    output.view(count, length, *output.shape[1:]).copy_(answer.transpose(1, 2))


def _gather(
    k_buffer: Tensor, v_buffer: Tensor, req_to_token: Tensor, rows: Tensor, seq_lens: Tensor
) -> tuple[Tensor, Tensor, int]:
    """Keys and values of some sequences, (sequences, heads, longest, width), and the longest."""
    longest = int(seq_lens.max())
    slots = req_to_token[rows.long(), :longest].long()
    slots.clamp_(min=0)  # behind the end of the shorter ones there may be anything
    return k_buffer[slots].transpose(1, 2), v_buffer[slots].transpose(1, 2), longest


def _mask(seq_lens: Tensor, length: int, longest: int, tree_mask: Tensor | None) -> Tensor:
    """(sequences, 1, new tokens, all tokens): what each new token sees."""
    places = torch.arange(longest)
    before = (seq_lens - length).view(-1, 1, 1)
    if tree_mask is None:
        return (places <= before + torch.arange(length).unsqueeze(1)).unsqueeze(1)
    mask = (places < before).expand(-1, length, -1).clone()
    trees = tree_mask.view(-1, length, length)
    for row, start in enumerate(before.flatten().tolist()):
        mask[row, :, start : start + length] = trees[row]
    return mask.unsqueeze(1)


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scaling: float
) -> Tensor:
    grouped = query.shape[1] != keys.shape[1]
    return scaled_dot_product_attention(
        query, keys, values, attn_mask=mask, scale=scaling, enable_gqa=grouped
    )
