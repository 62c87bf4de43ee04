"""Where tokens lie in the key-value cache: the bookkeeping of requests and of drafts.

``req_to_token``: one row a request slot, the cache slot of each of its positions.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor


def assign_req_to_token_pool_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """Write new cache slots, request after request, to the positions from start to end."""
    taken = 0
    for row, start, end in _spans(req_pool_indices, start_offset, end_offset):
        slots = out_cache_loc[taken : taken + end - start]
        req_to_token[row, start:end] = slots.to(req_to_token.dtype)
        taken += end - start


def assign_extend_cache_locs_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    start_offset: Tensor,
    end_offset: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
) -> None:
    """The reverse: read the cache slots of the positions from start to end."""
    filled = 0
    for row, start, end in _spans(req_pool_indices, start_offset, end_offset):
        out_cache_loc[filled : filled + end - start] = req_to_token[row, start:end]
        filled += end - start


def _spans(rows: Tensor, starts: Tensor, ends: Tensor) -> list[tuple[int, int, int]]:
    return list(zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True))


def assign_draft_cache_locs_contiguous_cpu(
    req_pool_indices: Tensor,
    req_to_token: Tensor,
    seq_lens: Tensor,
    out_cache_loc: Tensor,
    pool_len: int,
    topk: int,
    num_steps: int,
) -> None:
    """Read the slots that each request has for its drafts: right behind its tokens."""
    width = topk * num_steps
    columns = seq_lens.long().unsqueeze(1) + torch.arange(width)
    slots = req_to_token[req_pool_indices.long().unsqueeze(1), columns]
    out_cache_loc.view(-1)[: slots.numel()] = slots.flatten().to(out_cache_loc.dtype)


def build_draft_decode_metadata_cpu(
    req_to_token: Tensor,
    req_pool_indices: Tensor,
    seq_lens: Tensor,
    topk: int,
    num_steps: int,
    pool_len: int,
) -> Tensor:
    """A row for each branch of each request: the request's slots, then the branch's own."""
    rows = req_to_token[req_pool_indices.long()].repeat_interleave(topk, dim=0)
    if topk == 1:
        return rows
    for index, length in enumerate(seq_lens.tolist()):
        drafts = req_to_token[req_pool_indices[index], length : length + topk * num_steps]
        branches = rows[index * topk : (index + 1) * topk]
        branches[:, length : length + num_steps] = drafts.view(topk, num_steps)
    return rows


def copy_all_layer_kv_cache_cpu(
    data_ptrs: Tensor, strides: Tensor, tgt_loc: Tensor, src_loc: Tensor
) -> None:
    """Move tokens to other slots, in the buffers of all layers; ``strides``: bytes of a slot.

    All are read before any is written: a slot may be source and target.
    """
    moves = [(t, s) for t, s in zip(tgt_loc.tolist(), src_loc.tolist(), strict=True) if t != s]
    for base, stride in zip(data_ptrs.tolist(), strides.tolist(), strict=True):
        kept = [ctypes.string_at(base + source * stride, stride) for _target, source in moves]
        for (target, _source), data in zip(moves, kept, strict=True):
            ctypes.memmove(base + target * stride, data, stride)


def fill_bonus_tokens_cpu(
    accept_tokens: Tensor, accept_lens: Tensor, bonus_tokens: Tensor, accept_stride: int
) -> None:
    """The last accepted token of each request: the one the target added itself."""
    last = torch.arange(accept_lens.numel()) * accept_stride + accept_lens.long() - 1
    bonus_tokens.copy_(accept_tokens.flatten()[last])


def fill_accept_out_cache_loc_cpu(
    accept_index: Tensor, out_cache_loc: Tensor, accept_out_cache_loc: Tensor
) -> None:
    """The slots of the accepted tokens, without gaps; -1 marks a token that was not accepted."""
    index = accept_index.flatten()
    slots = out_cache_loc[index[index > -1].long()]
    accept_out_cache_loc[: slots.numel()] = slots.to(accept_out_cache_loc.dtype)


def rotate_input_ids_cpu(
    input_ids: Tensor,
    extend_start_loc: Tensor,
    extend_seq_lens: Tensor,
    topk_index: Tensor,
    select_index: Tensor | None = None,
) -> None:
    """Shift each request's tokens by one to the left and put its new token last."""
    lengths = extend_seq_lens.tolist()
    for index, (start, length) in enumerate(zip(extend_start_loc.tolist(), lengths, strict=True)):
        if length <= 0:
            continue
        input_ids[start : start + length - 1] = input_ids[start + 1 : start + length].clone()
        last = start + length - 1 if select_index is None else int(select_index[index])
        input_ids[last] = topk_index.flatten()[index]
