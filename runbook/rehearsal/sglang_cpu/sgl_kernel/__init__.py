"""A stand-in for SGLang's CPU kernels, in plain torch: what EAGLE on a CPU calls, and no more.

SGLang's own kernels are published for GPUs alone. This package bears their name so that the
scheduler, the workers of speculation and the attention backend of a real SGLang find what they
call; it is on the path of the rehearsal's servers only. Slower than the real ones, equal in what
they compute. Asked for anything else, it says so.
"""

from typing import NoReturn

import torch

from sgl_kernel.attention import decode_attention_cpu, extend_attention_cpu
from sgl_kernel.cache import (
    assign_draft_cache_locs_contiguous_cpu,
    assign_extend_cache_locs_cpu,
    assign_req_to_token_pool_cpu,
    build_draft_decode_metadata_cpu,
    copy_all_layer_kv_cache_cpu,
    fill_accept_out_cache_loc_cpu,
    fill_bonus_tokens_cpu,
    rotate_input_ids_cpu,
)
from sgl_kernel.tree import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "decode_attention_cpu",
    "extend_attention_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]

# The attention backend looks these two up among torch's operators.
torch.ops.sgl_kernel.decode_attention_cpu = decode_attention_cpu
torch.ops.sgl_kernel.extend_attention_cpu = extend_attention_cpu


def __getattr__(name: str) -> object:
    """Any other kernel: it can be imported, and says what it is when it is called."""
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(f"the rehearsal's stand-in for sgl_kernel has no {name}")

    return missing
