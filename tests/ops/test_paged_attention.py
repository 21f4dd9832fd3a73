from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ml_dtypes import bfloat16
from reference.attention_cases import Sequence, as_inputs, make_pass, runner
from reference.paged_attention import Attention, paged_attention, scaled_views

GQA = Attention(num_heads=6, num_kv_heads=2, head_dim=64, rotary_dim=64)
TREE = (-1, 0, 0, 1, 1, 2, 3, 6, -1, 8)
# Of each type of cache: how far the output may be from the oracle's, and keys, relatively and absolutely.
ROUNDING: dict[type, tuple[float, float, float]] = {
    np.float32: (2e-5, 1e-5, 1e-5),
    np.float16: (2e-3, 1e-3, 1e-5),
    np.uint8: (1e-2, 0, 1),
}


def check(
    library: str,
    attention: Attention,
    sequences: list[Sequence],
    *,
    block_size: int = 16,
    dtype: type = np.float16,
    norm: bool = False,
    **more: bool,
) -> None:
    inputs = make_pass(attention, sequences, block_size=block_size, dtype=dtype, norm=norm, **more)
    oracle = replace(inputs, key_cache=inputs.key_cache.copy(), value_cache=inputs.value_cache.copy())
    out = runner(library, attention, inputs)(as_inputs(inputs))
    expected = paged_attention(attention, oracle)
    # A key on a rounding border may become its neighbour: one unit in the last place of the cache.
    atol, rtol_key, atol_key = ROUNDING[dtype]
    np.testing.assert_allclose(out, expected, rtol=0, atol=atol)
    if not more.get("value_norm"):
        np.testing.assert_array_equal(inputs.value_cache.view(np.uint8), oracle.value_cache.view(np.uint8))
    keys, expected_keys = inputs.key_cache, oracle.key_cache
    if keys.dtype == np.uint8:
        (keys, scales), (expected_keys, expected_scales) = scaled_views(keys), scaled_views(expected_keys)
        np.testing.assert_allclose(scales, expected_scales, rtol=1e-3, atol=0)
    found = keys.astype(np.float32)
    np.testing.assert_allclose(found, expected_keys.astype(np.float32), rtol=rtol_key, atol=atol_key)


@pytest.mark.parametrize("head_dim", [8, 20, 64, 80, 96, 128, 256, 512])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 4), (8, 2), (9, 3), (5, 1)])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_heads(library: str, head_dim: int, heads: int, kv_heads: int, dtype: type) -> None:
    attention = Attention(heads, kv_heads, head_dim, head_dim, scale=head_dim**-0.5)
    check(library, attention, [Sequence(37, 3)], dtype=dtype)


def test_halfway_numbers_become_even(library: str) -> None:
    """Beside 127, the largest of int8, a head's scale is 1."""
    halfway = np.arange(126, dtype=np.float32) + 0.5
    head = np.zeros(256, np.float32)
    head[0], head[1 : 1 + len(halfway)], head[129 : 129 + len(halfway)] = 127, halfway, -halfway
    attention = Attention(1, 1, 256, 0)
    inputs = make_pass(attention, [Sequence(0, 1)], dtype=np.uint8)
    inputs.qkv[0, 512:] = head
    runner(library, attention, inputs)(as_inputs(inputs))
    found = scaled_views(inputs.value_cache)[0][inputs.block_table[0, 0], 0, 0]
    np.testing.assert_array_equal(found.astype(np.int64) - 128, np.rint(head).astype(np.int64))


@pytest.mark.parametrize("block_size", [1, 7, 16, 32, 256])
@pytest.mark.parametrize("context", [0, 1, 15, 16, 17, 100, 511, 512, 513])
def test_block_sizes_and_contexts(library: str, block_size: int, context: int) -> None:
    check(library, GQA, [Sequence(context, 2)], block_size=block_size)


@pytest.mark.parametrize("rows", [1, 2, 16, 33, 100])
@pytest.mark.parametrize("norm", [False, True])
def test_several_sequences(library: str, rows: int, *, norm: bool) -> None:
    check(library, GQA, [Sequence(5, rows), Sequence(0, 1), Sequence(90, 7), Sequence(3, 0)], norm=norm)


@pytest.mark.parametrize("window", [1, 5, 16, 40, 1000])
@pytest.mark.parametrize("context", [0, 3, 50])
@pytest.mark.parametrize("parents", [None, TREE])
def test_sliding_window(library: str, window: int, context: int, parents: tuple[int, ...] | None) -> None:
    attention = replace(GQA, sliding_window=window)
    rows = 40 if parents is None else len(parents)
    check(library, attention, [Sequence(context, rows, parents), Sequence(7, 3)])


@pytest.mark.parametrize("softcap", [0.5, 20.0, 50.0])
def test_softcap(library: str, softcap: float) -> None:
    check(library, replace(GQA, softcap=softcap, scale=1.0), [Sequence(40, 5)])


@pytest.mark.parametrize("softcap", [0.0, 20.0])
@pytest.mark.parametrize("window", [0, 21])
@pytest.mark.parametrize("parents", [None, TREE])
def test_alibi(library: str, softcap: float, window: int, parents: tuple[int, ...] | None) -> None:
    """Distances are counted along a row's own path, over the borders of splits and behind a window."""
    attention = replace(GQA, softcap=softcap, sliding_window=window, rotary_dim=0)
    rows = 40 if parents is None else len(parents)
    check(library, attention, [Sequence(300, rows, parents), Sequence(7, 3)], alibi=True)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("norm", [False, True])
def test_values_may_have_a_norm(library: str, dtype: type, *, norm: bool) -> None:
    """In place of one before attention; the oracle's values may be rounded to a neighbour, as keys are."""
    check(library, GQA, [Sequence(40, 5), Sequence(0, 70)], dtype=dtype, norm=norm, value_norm=True)


@pytest.mark.parametrize("softcap", [0.0, 20.0])
@pytest.mark.parametrize("parents", [None, TREE])
def test_biases_by_key(library: str, softcap: float, parents: tuple[int, ...] | None) -> None:
    """A key's position is its number on a row's own path, over the borders of splits."""
    attention = replace(GQA, softcap=softcap, rotary_dim=0)
    rows = 40 if parents is None else len(parents)
    check(library, attention, [Sequence(300, rows, parents), Sequence(7, 3)], biases=True)


def test_biases_by_key_bound_the_depth_of_a_tree_and_not_its_width(library: str) -> None:
    """Two levels behind 2046 tokens end at the last position, 2047, with 60 rows and with 3."""
    attention = replace(GQA, rotary_dim=0)
    check(library, attention, [Sequence(2046, 60, (-1,) * 30 + tuple(range(30)))], biases=True)
    deep = make_pass(attention, [Sequence(2046, 3, (-1, 0, 1))], biases=True)
    deep.position_ids[2] = 2047
    with pytest.raises(
        Exception, match=r"context_lens\[0\] is 2046: a row sees 2049 keys, more than the 2048 positions"
    ):
        runner(library, attention, deep)(as_inputs(deep))


def test_biases_by_key_bound_a_chain(library: str) -> None:
    """Whatever positions its rows claim."""
    chain = make_pass(GQA, [Sequence(2046, 3)], biases=True)
    chain.position_ids[2] = 2047
    with pytest.raises(Exception, match=r"context_lens\[0\] is 2046: a row sees 2049 keys"):
        runner(library, GQA, chain)(as_inputs(chain))


@pytest.mark.parametrize("window", [0, 21])
@pytest.mark.parametrize("parents", [None, TREE])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_sinks(library: str, window: int, parents: tuple[int, ...] | None, dtype: type) -> None:
    rows = 40 if parents is None else len(parents)
    sequences = [Sequence(300, rows, parents), Sequence(7, 3), Sequence(0, 1)]
    check(library, replace(GQA, sliding_window=window), sequences, dtype=dtype, sinks=True)


@pytest.mark.parametrize("sink", [-300.0, 300.0])
def test_sinks_that_outweigh_everything_or_nothing(library: str, sink: float) -> None:
    """The output is zero, or what it is without a sink, to the bit; never NaN."""
    inputs = make_pass(GQA, [Sequence(300, 5)])
    with_sinks = replace(inputs, sinks=np.full(GQA.num_heads, sink, np.float32))
    expected = runner(library, GQA, inputs)(as_inputs(inputs))
    found = runner(library, GQA, with_sinks)(as_inputs(with_sinks))
    np.testing.assert_array_equal(found if sink < 0 else np.abs(found) < 1e-30, expected if sink < 0 else True)


def test_biases_by_key_take_no_window(library: str) -> None:
    inputs = make_pass(GQA, [Sequence(4, 3)], biases=True)
    with pytest.raises(Exception, match="key_biases is given, and sliding_window is 9, not 0"):
        runner(library, replace(GQA, sliding_window=9), inputs)(as_inputs(inputs))


@pytest.mark.parametrize("parents", [None, TREE])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_layer_that_shares_a_cache(library: str, parents: tuple[int, ...] | None, dtype: type) -> None:
    """It has queries alone, sees the rows of this pass that another layer has written, and writes nothing."""
    rows = 40 if parents is None else len(parents)
    sequences = [Sequence(30, rows, parents), Sequence(7, 3)]
    inputs = make_pass(replace(GQA, shared_kv=1), sequences, dtype=dtype, norm=True)
    before = inputs.key_cache.copy(), inputs.value_cache.copy()
    out = runner(library, replace(GQA, shared_kv=1), inputs)(as_inputs(inputs))
    np.testing.assert_array_equal(inputs.key_cache, before[0])
    np.testing.assert_array_equal(inputs.value_cache, before[1])
    expected = paged_attention(replace(GQA, shared_kv=1), inputs)
    np.testing.assert_allclose(out, expected, rtol=0, atol=ROUNDING[dtype][0])


@pytest.mark.parametrize("norm", ["k_norm", "v_norm"])
def test_a_shared_cache_takes_no_norm_of_keys_or_values(library: str, norm: str) -> None:
    attention = replace(GQA, shared_kv=1)
    inputs = replace(make_pass(attention, [Sequence(4, 3)]), **{norm: np.ones(64, np.float32)})
    with pytest.raises(Exception, match=f"{norm} is given, and shared_kv is 1"):
        runner(library, attention, inputs)(as_inputs(inputs))


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rotary_dim", [0, 16, 64])
def test_rotary(library: str, interleaved: int, rotary_dim: int) -> None:
    check(library, replace(GQA, interleaved=interleaved, rotary_dim=rotary_dim), [Sequence(20, 5)])


@pytest.mark.parametrize("context", [0, 9, 509, 600])
def test_tree(library: str, context: int) -> None:
    check(library, GQA, [Sequence(context, len(TREE), TREE), Sequence(12, 4)])


def test_wide_tree(library: str) -> None:
    parents = (-1, *(int(p) for p in (np.random.default_rng(5).random(63) * np.arange(1, 64)).astype(int)))
    check(library, GQA, [Sequence(70, 64, parents)])


def test_window_that_hides_the_context_from_a_tree(library: str) -> None:
    check(library, replace(GQA, sliding_window=2), [Sequence(30, len(TREE), TREE)])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_kv_heads": 4}, "num_heads is 6, not a multiple of num_kv_heads, 4"),
        ({"rotary_dim": 63}, "rotary_dim is 63, not even"),
        ({"rotary_dim": 66}, "rotary_dim is 66"),
        ({"head_dim": 600}, "head_dim is 600, not in 1..512"),
        ({"interleaved": 2}, "interleaved is 2"),
        ({"shared_kv": 2}, "shared_kv is 2"),
        ({"shared_kv": 1}, r"qkv has shape \[3, 640\], not \[any, 384\]"),
        ({"softcap": -1.0}, "softcap is -1"),
        ({"sliding_window": -1}, "sliding_window is -1"),
        ({"num_heads": 4}, r"qkv has shape \[3, 640\], not \[any, 512\]"),
    ],
)
def test_refuses_attributes(library: str, change: dict[str, int | float], message: str) -> None:
    inputs = make_pass(GQA, [Sequence(4, 3)])
    with pytest.raises(Exception, match=message):
        runner(library, replace(GQA, **change), inputs)(as_inputs(inputs))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"position_ids": np.array([4, 5, 2048], np.int32)}, r"position_ids\[2\] is 2048, not in 0..2047"),
        ({"position_ids": np.array([4, 5], np.int32)}, r"position_ids has shape \[2\], not \[3\]"),
        ({"seq_starts": np.array([1, 3], np.int32)}, r"seq_starts\[0\] is 1, not 0"),
        ({"seq_starts": np.array([0, 2], np.int32)}, r"seq_starts\[1\] is 2, not the number of rows, 3"),
        ({"context_lens": np.array([-1], np.int32)}, r"context_lens\[0\] is -1"),
        ({"context_lens": np.array([30], np.int32)}, r"more than the 1 blocks of block_table hold"),
        ({"block_table": np.array([[9]], np.int32)}, r"block_table\[0\] is 9, not in 0..3"),
        ({"tree_mask": np.array([1, 2, 3], np.uint64)}, r"tree_mask\[2\] is 3: its highest bit must be the row's own"),
        ({"tree_mask": np.array([1, 6, 4], np.uint64)}, r"tree_mask\[2\] is 4: .* bit 3 or a later one"),
        ({"tree_mask": np.array([1, 0, 4], np.uint64)}, r"tree_mask\[1\] is 0: .* bit 1 or a later one"),
        ({"tree_mask": np.array([1, 2, 1 << 12], np.uint64)}, "with 13 rows more than the 1 blocks"),
        ({"seq_starts": np.array([0, 2000000], np.int32), "tree_mask": np.array([1, 2, 4], np.uint64)}, "seq_starts"),
        ({"value_cache": np.zeros((4, 16, 2, 64), np.float32)}, "value_cache has element type 1, key_cache has 10"),
        ({"value_cache": np.zeros((4, 16, 2, 32), np.float16)}, "value_cache has shape"),
        ({"key_cache": np.zeros((4, 16, 2, 64), bfloat16)}, "key_cache has element type 16, which no cache has"),
        ({"q_norm": np.zeros(63, np.float32)}, "q_norm has shape"),
        ({"slopes": np.zeros(5, np.float32)}, r"slopes has shape \[5\], not \[6\]"),
        ({"key_biases": np.zeros((2048, 5), np.float32)}, r"key_biases has shape \[2048, 5\], not \[2048, 6\]"),
        ({"key_biases": np.zeros((9, 6), np.float32)}, r"key_biases has shape \[9, 6\], not \[2048, 6\]"),
        ({"v_norm": np.zeros(63, np.float32)}, "v_norm has shape"),
        ({"sinks": np.zeros(7, np.float32)}, r"sinks has shape \[7\], not \[6\]"),
    ],
)
def test_refuses_inputs(library: str, change: dict[str, np.ndarray], message: str) -> None:
    inputs = replace(make_pass(GQA, [Sequence(4, 3)]), **change)
    with pytest.raises(Exception, match=message):
        runner(library, GQA, inputs)(as_inputs(inputs))
