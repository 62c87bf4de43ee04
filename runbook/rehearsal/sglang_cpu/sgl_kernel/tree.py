"""The draft tree: its shape from the drafter's choices, and the walk through it that verifies.

Nodes are numbered from 0, the root, which is the last accepted token; node ``i`` is the ``i``-th
selected draft. Links (first child, next sibling) and ``-1`` for none are as SGLang reads them.
"""

from __future__ import annotations

import torch
from torch import Tensor

_FULL_MASK, _DRAFTS_ONLY = 0, 1


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected_index: Tensor,
    verified_seq_len: Tensor,
    tree_mask: Tensor,
    positions: Tensor,
    retrieve_index: Tensor,
    retrieve_next_token: Tensor,
    retrieve_next_sibling: Tensor,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Fill mask (who sees whom), positions and links of each request's tree."""
    if int(tree_mask_mode) not in (_FULL_MASK, _DRAFTS_ONLY):
        raise NotImplementedError(f"tree mask mode {tree_mask_mode}")
    count = draft_token_num
    written = 0
    lengths = verified_seq_len.tolist()
    chosen_by = selected_index.tolist()
    parent_lists = parent_list.reshape(len(lengths), -1 if parent_list.numel() else 0).tolist()
    for row, length in enumerate(lengths):
        parents = _parents(chosen_by[row], parent_lists[row], topk, count)
        sees, depths = _ancestry(parents, depth)
        prefix = length if int(tree_mask_mode) == _FULL_MASK else 0
        block = tree_mask[written : written + count * (prefix + count)].view(count, prefix + count)
        block[:, prefix:] = torch.tensor(sees, dtype=tree_mask.dtype)
        written += block.numel()
        positions[row * count : (row + 1) * count] = torch.tensor(depths) + length
        child, sibling = _links(parents)
        retrieve_index[row] = torch.arange(row * count, (row + 1) * count)
        retrieve_next_token[row] = torch.tensor(child)
        retrieve_next_sibling[row] = torch.tensor(sibling)


def _parents(chosen: list[int], parent_list: list[int], topk: int, count: int) -> list[int | None]:
    """Each node's parent, ``None`` for one whose parent was not selected; the root has none."""
    node_of = {draft: node for node, draft in reversed(list(enumerate(chosen[: count - 1], 1)))}
    parents: list[int | None] = [None]
    for draft in chosen[: count - 1]:
        group = draft // topk
        parents.append(0 if group == 0 else node_of.get(parent_list[group]))
    return parents


def _ancestry(parents: list[int | None], depth: int) -> tuple[list[list[bool]], list[int]]:
    """For each node which nodes it sees (itself, its ancestors, the root), and its depth."""
    sees, depths = [], []
    for node in range(len(parents)):
        row = [False] * len(parents)
        row[0] = True
        steps, at = 0, node
        while at != 0 and steps < depth:
            row[at] = True
            steps += 1
            above = parents[at]
            if above is None:
                break
            at = above
        sees.append(row)
        depths.append(steps)
    return sees, depths


def _links(parents: list[int | None]) -> tuple[list[int], list[int]]:
    """First child and next sibling of each node, in the order of their numbers."""
    child, sibling = [-1] * len(parents), [-1] * len(parents)
    for node in range(len(parents) - 1, 0, -1):
        above = parents[node]
        if above is not None:
            sibling[node] = child[above]
            child[above] = node
    return child, sibling


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """From the root on, follow the child that holds the target's own token; one more token, the
    target's after the last accepted, is always had."""
    tokens, index = candidates.tolist(), retrive_index.tolist()
    children, siblings = retrive_next_token.tolist(), retrive_next_sibling.tolist()
    target = target_predict.flatten().tolist()
    for row in range(len(tokens)):
        last = index[row][0]
        accepted = [last]
        node = children[row][0]
        while node != -1 and len(accepted) < accept_index.shape[1]:
            if tokens[row][node] != target[last]:
                node = siblings[row][node]
                continue
            predicts[last] = target[last]
            last = index[row][node]
            accepted.append(last)
            node = children[row][node]
        predicts[last] = target[last]
        accept_index[row, : len(accepted)] = torch.tensor(accepted, dtype=accept_index.dtype)
        accept_token_num[row] = len(accepted) - 1
