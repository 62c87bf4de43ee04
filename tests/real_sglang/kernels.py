"""Run under SGLang's Python: the stand-in kernels against the plainest way to write each of them.

Prints one line for each that agrees; the first that does not ends it.
"""

import random

import sgl_kernel
import torch

torch.manual_seed(1)


def naive_attention(query, keys, values, scaling):
    """One query over all keys: heads one by one."""
    group = query.shape[0] // keys.shape[1]
    seen = []
    for head in range(query.shape[0]):
        weights = (keys[:, head // group] @ query[head] * scaling).softmax(0)
        seen.append(weights @ values[:, head // group])
    return torch.stack(seen)


def cache(slots=64, heads=2, width=8):
    return torch.randn(slots, heads, width), torch.randn(slots, heads, width)


def rows_of(lengths, slots=64):
    """``req_to_token`` with random slots for sequences of these lengths."""
    free = random.Random(3).sample(range(slots), slots)
    table = torch.full((len(lengths), 40), 63, dtype=torch.int32)
    for row, length in enumerate(lengths):
        table[row, :length] = torch.tensor([free.pop() for _ in range(length)])
    return table


def check_decode():
    keys, values = cache()
    lengths = torch.tensor([5, 12, 1])
    table, query, output = rows_of(lengths.tolist()), torch.randn(3, 4, 8), torch.empty(3, 4, 8)
    new_key, new_value = torch.randn(3, 2, 8), torch.randn(3, 2, 8)
    where = table[torch.arange(3), lengths - 1].long()
    torch.ops.sgl_kernel.decode_attention_cpu(
        *(query, keys, values, 1.0, 1.0, output, new_key, new_value, where, None),
        *(table, torch.arange(3), lengths, 0.5, 0.0, False, 0, None, None),
    )
    assert torch.equal(keys[where], new_key) and torch.equal(values[where], new_value)
    for row, length in enumerate(lengths.tolist()):
        slots = table[row, :length].long()
        wanted = naive_attention(query[row], keys[slots], values[slots], 0.5)
        assert torch.allclose(output[row], wanted, atol=1e-5), row


def check_extend(news, tree=None):
    keys, values = cache()
    before = [4, 9, 2][: len(news)]
    lengths = torch.tensor([old + new for old, new in zip(before, news, strict=True)])
    table = rows_of(lengths.tolist())
    starts = torch.tensor([sum(news[:row]) for row in range(len(news))])
    query = torch.randn(sum(news), 4, 8)
    output = torch.empty_like(query)
    mask = None if tree is None else tree.repeat(len(news), 1, 1).flatten()
    torch.ops.sgl_kernel.extend_attention_cpu(
        *(query, None, None, output, keys, values, 1.0, 1.0, table, torch.arange(len(news))),
        *(lengths, torch.tensor(news), starts, max(news), 0.5, 0.0, False, 0, None, None),
        *(mask, True),
    )
    at = 0
    for row, (old, new) in enumerate(zip(before, news, strict=True)):
        for token in range(new):
            own = [n for n in range(new) if (n <= token if tree is None else bool(tree[token, n]))]
            slots = table[row, [*range(old), *(old + n for n in own)]].long()
            wanted = naive_attention(query[at], keys[slots], values[slots], 0.5)
            assert torch.allclose(output[at], wanted, atol=1e-5), (row, token)
            at += 1


def check_tree():
    """A tree of 2 branches and 3 steps: 0 -> 1, 2; 1 -> 3; 3 -> 4."""
    parents = torch.tensor([[-1, 0, 1, 2, 3, 4, 5]])
    chosen = torch.tensor([[0, 1, 2, 6]])  # drafts 2 and 6 hang on drafts 0 and 2
    count, length = 5, 7
    mask = torch.ones(count * count, dtype=torch.bool)
    positions = torch.empty(count, dtype=torch.long)
    links = torch.full((3, 1, count), -1)
    sgl_kernel.build_tree_kernel_efficient_cpu(
        *(parents, chosen, torch.tensor([length]), mask, positions),
        *(links[0], links[1], links[2], 2, 3, count, 1),
    )
    wanted = torch.tensor(
        [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 1, 0, 1, 1]]
    )
    assert torch.equal(mask.view(count, count), wanted.bool()), mask.view(count, count)
    assert (positions - length).tolist() == [0, 1, 1, 2, 3]
    assert links[0].tolist() == [[0, 1, 2, 3, 4]]
    assert links[1].tolist() == [[1, 3, -1, 4, -1]]
    assert links[2].tolist() == [[-1, 2, -1, -1, -1]]
    verify(links, tokens=[9, 10, 11, 12, 13], target=[11, 0, 20, 0, 0], path=[0, 2], said=[11, 20])
    verify(links, tokens=[9, 10, 11, 12, 13], target=[10, 12, 0, 8, 0], path=[0, 1, 3], said=None)
    verify(links, tokens=[9, 10, 11, 12, 13], target=[5, 0, 0, 0, 0], path=[0], said=[5])


def verify(links, tokens, target, path, said):
    predicts = torch.zeros(5, dtype=torch.int32)
    accepted = torch.full((1, 4), -1, dtype=torch.int32)
    number = torch.zeros(1, dtype=torch.int32)
    sgl_kernel.verify_tree_greedy_cpu(
        predicts=predicts,
        accept_index=accepted,
        accept_token_num=number,
        candidates=torch.tensor([tokens]),
        retrive_index=links[0],
        retrive_next_token=links[1],
        retrive_next_sibling=links[2],
        target_predict=torch.tensor([target]),
    )
    assert accepted[0].tolist() == path + [-1] * (4 - len(path))
    assert number.tolist() == [len(path) - 1]
    assert said is None or [int(predicts[node]) for node in path] == said


def check_cache():
    table = torch.zeros(3, 10, dtype=torch.int32)
    rows, starts, ends = torch.tensor([2, 0]), torch.tensor([1, 4]), torch.tensor([3, 7])
    slots = torch.tensor([30, 31, 40, 41, 42])
    sgl_kernel.assign_req_to_token_pool_cpu(rows, table, starts, ends, slots, 10)
    assert table[2].tolist() == [0, 30, 31, 0, 0, 0, 0, 0, 0, 0]
    assert table[0, 4:7].tolist() == [40, 41, 42]
    read = torch.zeros(5, dtype=torch.long)
    sgl_kernel.assign_extend_cache_locs_cpu(rows, table, starts, ends, read, 10)
    assert torch.equal(read, slots)

    table = torch.arange(20, dtype=torch.int32).view(2, 10)
    drafts = torch.zeros(8, dtype=torch.long)
    pool, lengths = torch.tensor([1, 0]), torch.tensor([2, 3])
    sgl_kernel.assign_draft_cache_locs_contiguous_cpu(pool, table, lengths, drafts, 10, 2, 2)
    assert drafts.tolist() == [12, 13, 14, 15, 3, 4, 5, 6]
    branches = sgl_kernel.build_draft_decode_metadata_cpu(table, pool, lengths, 2, 2, 10)
    assert branches[:, :5].tolist() == [
        [10, 11, 12, 13, 14],
        [10, 11, 14, 15, 14],
        [0, 1, 2, 3, 4],
        [0, 1, 2, 5, 6],
    ]

    layers = [torch.arange(12.0).view(6, 2), torch.arange(100, 112).view(6, 2)]
    pointers = torch.tensor([layer.data_ptr() for layer in layers])
    strides = torch.tensor([layer.stride(0) * layer.element_size() for layer in layers])
    sgl_kernel.copy_all_layer_kv_cache_cpu(
        pointers, strides, torch.tensor([1, 2]), torch.tensor([2, 5])
    )
    assert layers[0][1:3].tolist() == [[4, 5], [10, 11]]
    assert layers[1][1:3].tolist() == [[104, 105], [110, 111]]

    bonus = torch.zeros(2, dtype=torch.long)
    said = torch.tensor([1, 2, 3, 4, 5, 6])
    sgl_kernel.fill_bonus_tokens_cpu(said, torch.tensor([1, 3]), bonus, 3)
    assert bonus.tolist() == [1, 6]
    kept = torch.zeros(4, dtype=torch.long)
    sgl_kernel.fill_accept_out_cache_loc_cpu(
        torch.tensor([[0, -1], [2, 3]]), torch.tensor([7, 8, 9, 10]), kept
    )
    assert kept.tolist() == [7, 9, 10, 0]
    ids = torch.tensor([1, 2, 3, 4, 5])
    sgl_kernel.rotate_input_ids_cpu(
        ids, torch.tensor([0, 3]), torch.tensor([3, 2]), torch.tensor([[8], [9]])
    )
    assert ids.tolist() == [2, 3, 8, 5, 9]


def check_missing():
    try:
        sgl_kernel.fused_experts_cpu()
    except NotImplementedError as error:
        assert "fused_experts_cpu" in str(error)
    else:
        raise AssertionError("a kernel that is not there was called")
    assert not hasattr(torch.ops.sgl_kernel, "convert_weight_packed")


CHAIN = torch.ones(4, 4).tril().bool()
TREE = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]).bool()

check_decode()
check_extend([3, 5, 1])
check_extend([4, 4, 4])
check_extend([4, 4], CHAIN)
check_extend([4, 4, 4], TREE)
check_tree()
check_cache()
check_missing()
print("all agree")
