"""What the second reading of a GGUF file computes beside what its tensors show: a row an architecture, as llama.cpp.

Written down without the table that the exporter reads by, so that a mistake there does not come back here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Computation:
    """Of one architecture. Norms, biases, gates and fused matrices are seen by the file's tensors."""

    rotates_pairs: bool = False  # neighbouring dimensions of a head; else its two halves
    rotates: bool = True
    is_layer_norm: bool = False  # with a mean; else RMS
    activation: str = "silu"
    ffn_norm: str = "ffn_norm"
    is_parallel: bool = False  # attention and MLP read the same stream
    window: int = 0  # of files that do not state it
    window_period: int = 0  # the last layer of so many sees everything; 0: all layers have the file's window
    rotates_in_windows_alone: bool = False
    rotates_not_every: int = 0  # the last layer of so many
    norms_after_rotation: bool = False  # of heads
    embedding_root: bool = False  # the embedding is multiplied by the root of the hidden size
    divides_logits: bool = False  # by logit_scale, which multiplies them otherwise
    local_base: float = 0.0  # of layers with a window, which are not scaled; 0: as the others
    scales_full_attention_alone: bool = False  # the base is one, and layers with a window are not scaled
    has_alibi: bool = False  # scores lose a slope of the head times the distance
    norms_values: bool = False  # without weights, as keys are normed with some
    scale: float = 0.0  # of scores; 0: by the head's size
    width_scale_at: int = 0  # layers of the model whose scores are divided by the root of hidden size / heads
    attention_cap: float = 0.0
    final_cap: float = 0.0


_PAIRS = Computation(rotates_pairs=True)
_GPT2 = Computation(rotates=False, is_layer_norm=True, activation="gelu_tanh")
_HALVES = Computation()

COMPUTATIONS: dict[str, Computation] = {
    "llama": _PAIRS,
    "mistral": _PAIRS,
    "mistral3": _PAIRS,
    "qwen2": _HALVES,
    "qwen2vl": _HALVES,
    "qwen3": _HALVES,
    "qwen3vl": _HALVES,
    "gemma": Computation(activation="gelu_tanh", embedding_root=True),
    "gemma2": Computation(
        activation="gelu_tanh",
        embedding_root=True,
        window_period=2,
        width_scale_at=46,
        attention_cap=50.0,
        final_cap=30.0,
    ),
    "gemma3": Computation(
        activation="gelu_tanh", embedding_root=True, window_period=6, local_base=10000.0, width_scale_at=62
    ),
    "gemma3n": Computation(
        activation="gelu_tanh",
        embedding_root=True,
        window_period=5,
        local_base=10000.0,
        norms_values=True,
        scale=1.0,
        final_cap=30.0,
    ),
    "gemma4": Computation(
        activation="gelu_tanh", embedding_root=True, window_period=6, local_base=10000.0, norms_values=True, scale=1.0
    ),
    "phi3": _HALVES,
    "granite": Computation(rotates_pairs=True, divides_logits=True),
    "smollm3": Computation(rotates_pairs=True, rotates_not_every=4),
    "olmo2": Computation(window_period=4, scales_full_attention_alone=True),
    "olmo": Computation(rotates_pairs=True, is_layer_norm=True),
    "phi2": Computation(is_layer_norm=True, is_parallel=True, activation="gelu_tanh"),
    "stablelm": Computation(is_layer_norm=True),
    "starcoder2": Computation(is_layer_norm=True, activation="gelu_tanh", window=4096),
    "glm4": _PAIRS,
    "chatglm": _PAIRS,
    "exaone": _HALVES,
    "exaone4": Computation(window_period=4, rotates_in_windows_alone=True),
    "command-r": Computation(rotates_pairs=True, is_layer_norm=True, is_parallel=True),
    "cohere2": Computation(
        rotates_pairs=True, is_layer_norm=True, is_parallel=True, window_period=4, rotates_in_windows_alone=True
    ),
    "gpt2": _GPT2,
    "starcoder": _GPT2,
    "gptneox": Computation(is_layer_norm=True, activation="gelu"),  # llama.cpp takes the other GELU; trained with this
    "bloom": Computation(rotates=False, is_layer_norm=True, activation="gelu_tanh", has_alibi=True),
    "mpt": Computation(rotates=False, is_layer_norm=True, activation="gelu", has_alibi=True),  # as gptneox
    "ernie4_5": _PAIRS,
    "seed_oss": Computation(ffn_norm="post_attention_norm"),
    "nemotron": Computation(is_layer_norm=True, activation="relu_squared"),
    "arcee": Computation(rotates_pairs=True, activation="relu_squared"),
    "jais2": Computation(is_layer_norm=True, activation="relu_squared"),
    "hunyuan-dense": Computation(norms_after_rotation=True),
}
