"""A row of a pass has the bits of the same token decoded alone: chains, trees, chunks, several sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from reference.attention_cases import Sequence, as_inputs, make_pass, runner, tree_rows
from reference.paged_attention import Attention, Pass, paged_attention

ATTENTIONS = {
    "gqa": Attention(num_heads=8, num_kv_heads=2, head_dim=64, rotary_dim=64),
    "uneven": Attention(num_heads=9, num_kv_heads=3, head_dim=80, rotary_dim=32, interleaved=1),
    "window": Attention(num_heads=4, num_kv_heads=1, head_dim=96, rotary_dim=96, sliding_window=21),
    "softcap": Attention(num_heads=2, num_kv_heads=2, head_dim=20, rotary_dim=20, softcap=3.0),
    "alibi": Attention(num_heads=3, num_kv_heads=3, head_dim=32, rotary_dim=0, sliding_window=300),
    "biases": Attention(num_heads=6, num_kv_heads=2, head_dim=32, rotary_dim=0),
    "sinks": Attention(num_heads=4, num_kv_heads=2, head_dim=64, rotary_dim=64, sliding_window=21),
}
SPECIAL = {name: {name: True} for name in ("alibi", "biases", "sinks")}
LEVELS = (((0,), (1, 2, 8), (3, 4, 5, 9), (6, 10), (7,), (11, 12)), ((0, 2), (1, 8), (3, 4, 5)))
NO_MASK = np.zeros(0, np.uint64)


def step(inputs: Pass, row: int, context: int, cache: tuple[np.ndarray, np.ndarray]) -> Pass:
    """The pass that decodes one row alone after `context` committed tokens of the first sequence."""
    return replace(
        inputs,
        qkv=inputs.qkv[row : row + 1].copy(),
        position_ids=np.array([context], np.int32),
        seq_starts=np.array([0, 1], np.int32),
        context_lens=np.array([context], np.int32),
        block_table=inputs.block_table[:1].copy(),
        tree_mask=NO_MASK,
        key_cache=cache[0],
        value_cache=cache[1],
    )


def decode_path(library: str, attention: Attention, inputs: Pass, path: list[int], context: int) -> np.ndarray:
    """Outputs of the rows of a path, each decoded alone after the ones before it."""
    cache = (inputs.key_cache.copy(), inputs.value_cache.copy())
    outputs = []
    for depth, row in enumerate(path):
        alone = step(inputs, row, context + depth, cache)
        outputs.append(runner(library, attention, alone, threads=1)(as_inputs(alone))[0])
    return np.stack(outputs)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("context", "rows"), [(0, 17), (5, 1), (30, 9), (500, 33), (1030, 4), (3, 64)])
def test_chain_rows_equal_sequential_decode(library: str, name: str, context: int, rows: int, *, masked: bool) -> None:
    attention = ATTENTIONS[name]
    parents = tuple(range(-1, rows - 1)) if masked else None
    inputs = make_pass(attention, [Sequence(context, rows, parents)], norm=True, **SPECIAL.get(name, {}))
    expected = decode_path(library, attention, inputs, list(range(rows)), context)
    np.testing.assert_array_equal(runner(library, attention, inputs)(as_inputs(inputs)), expected)


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("context", [0, 11, 500, 520])
def test_tree_paths_equal_sequential_decode(library: str, name: str, context: int) -> None:
    attention = ATTENTIONS[name]
    parents = (-1, 0, 0, 1, 1, 2, 3, 6, -1, 8, 7, 10, 11, 12, 12, 14, 4)
    inputs = make_pass(attention, [Sequence(context, len(parents), parents)], **SPECIAL.get(name, {}))
    committed = replace(inputs, key_cache=inputs.key_cache.copy(), value_cache=inputs.value_cache.copy())
    out = runner(library, attention, inputs)(as_inputs(inputs))
    _, masks = tree_rows(Sequence(context, len(parents), parents))
    for leaf in (5, 9, 13, 15, 16):
        path = [row for row in range(len(parents)) if masks[leaf] >> row & 1]
        np.testing.assert_array_equal(out[path], decode_path(library, attention, committed, path, context))


@pytest.mark.parametrize("name", ATTENTIONS)
@pytest.mark.parametrize("context", [0, 11, 500, 520])
@pytest.mark.parametrize("passes", LEVELS)
def test_a_tree_in_several_passes(library: str, name: str, context: int, passes: tuple[tuple[int, ...], ...]) -> None:
    """Rows of earlier passes are seen by their bits, whatever else was written between; slots may be left out."""
    attention = ATTENTIONS[name]
    parents = (-1, 0, 0, 1, 1, 2, 3, 6, 0, 8, 6, 10, 10)
    together = make_pass(attention, [Sequence(context, len(parents), parents)], norm=True, **SPECIAL.get(name, {}))
    cache = (together.key_cache.copy(), together.value_cache.copy())
    expected = runner(library, attention, together)(as_inputs(together))
    # In a pass the rows are in ascending order of bits: of a tree in an order of its own, each after its parent.
    bits = {row: bit for bit, row in enumerate(row for rows in passes for row in rows)}
    masks = {-1: 0}
    for rows in passes:
        for row in rows:
            masks[row] = masks[parents[row]] | 1 << bits[row]
        level = replace(
            together,
            qkv=together.qkv[list(rows)].copy(),
            position_ids=together.position_ids[list(rows)].copy(),
            seq_starts=np.array([0, len(rows)], np.int32),
            tree_mask=np.array([masks[row] for row in rows], np.uint64),
            key_cache=cache[0],
            value_cache=cache[1],
        )
        oracle = replace(level, key_cache=cache[0].copy(), value_cache=cache[1].copy())
        out = runner(library, attention, level)(as_inputs(level))
        np.testing.assert_array_equal(out, expected[list(rows)])
        np.testing.assert_allclose(out, paged_attention(attention, oracle), rtol=0, atol=2e-3)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_chunks_and_neighbours_do_not_matter(library: str, name: str) -> None:
    """600 prompt rows in one pass, in chunks, and beside two other sequences."""
    attention = ATTENTIONS[name]
    inputs = make_pass(attention, [Sequence(0, 600), Sequence(40, 3), Sequence(0, 1)], block_size=32)
    fresh = replace(inputs, key_cache=inputs.key_cache.copy(), value_cache=inputs.value_cache.copy())
    together = runner(library, attention, inputs)(as_inputs(inputs))[:600]
    first = 0
    for rows in (1, 17, 64, 200, 318):
        chunk = replace(
            fresh,
            qkv=inputs.qkv[first : first + rows].copy(),
            position_ids=inputs.position_ids[first : first + rows].copy(),
            seq_starts=np.array([0, rows], np.int32),
            context_lens=np.array([first], np.int32),
            block_table=inputs.block_table[:1].copy(),
        )
        out = runner(library, attention, chunk, threads=1)(as_inputs(chunk))
        np.testing.assert_array_equal(out, together[first : first + rows])
        first += rows


@pytest.mark.parametrize("rows", [1, 8, 100])
def test_threads_do_not_change_bits(library: str, rows: int) -> None:
    attention = ATTENTIONS["gqa"]
    inputs = make_pass(attention, [Sequence(1400, rows)])
    outs = [runner(library, attention, inputs, threads=t)(as_inputs(inputs)) for t in (1, 2, 4)]
    np.testing.assert_array_equal(outs[0], outs[1])
    np.testing.assert_array_equal(outs[0], outs[2])
