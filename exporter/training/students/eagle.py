"""EAGLE heads in training: one decoder layer that is unrolled over its own states.

EAGLE-1 (Li et al. 2024, "EAGLE: Speculative sampling requires rethinking feature uncertainty", section 3.2): regression
of the target's next state by smooth L1 beside the loss on tokens, and uniform noise on the states that come in; one
step, or several as in HASS (Zhang et al. 2024, "Learning harmonized representations for speculative sampling").

EAGLE-3 (Li et al. 2025, "EAGLE-3: Scaling up inference acceleration of large language models via training-time test",
section 3.2): no regression; the head's own states are fed back for `unroll` steps. A chain that starts at position t
attends to the true states up to t and to its own ones after it.

Row t holds token t + 1 and the state of position t, at position t, as in the exported graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding, rotate_half

from pilotfish.exporter.heads.eagle import TAPS
from pilotfish.exporter.heads.speculators import NORMED_RESIDUAL
from pilotfish.exporter.training.errors import TrainingOptionError
from pilotfish.exporter.training.shapes import EagleShape
from pilotfish.exporter.training.student import Student, shifted

from .chains import Chains, positions_of
from .head_files import save_head
from .streams import StreamReader, check_taps

if TYPE_CHECKING:
    from pathlib import Path

    from pilotfish.exporter.heads import HeadCheckpoint
    from pilotfish.exporter.training.rows import Batch
    from pilotfish.exporter.training.target import Seen, Target

_DRAFT_CHAIN = 8  # a head with a cache drafts on as long as it is asked to; evaluations look that far
_DEFAULT_THETA = 10_000.0
_INITIAL_STD = 0.02


def layer_config(shape: EagleShape, target: Target) -> LlamaConfig:
    """The head's decoder layer: the target's dimensions where the shape names none."""
    config: Any = target.model.config
    rope = getattr(config, "rope_parameters", None) or {}
    heads = shape.num_heads or config.num_attention_heads
    return LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=target.hidden_size,
        intermediate_size=shape.ffn_size or config.intermediate_size,
        num_hidden_layers=1,
        num_attention_heads=heads,
        num_key_value_heads=shape.num_kv_heads or config.num_key_value_heads,
        head_dim=target.hidden_size // heads,
        max_position_embeddings=config.max_position_embeddings,
        rms_norm_eps=config.rms_norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": float(rope.get("rope_theta", _DEFAULT_THETA))},
    )


class _Attention(nn.Module):
    """The projections of rotary attention; what is attended to is the chains' affair."""

    def __init__(self, config: Any, columns: int) -> None:
        super().__init__()
        self._size, width = config.head_dim, config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(columns, width, bias=False)
        self.k_proj = nn.Linear(columns, keys, bias=False)
        self.v_proj = nn.Linear(columns, keys, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    def keys(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """X [..., columns] -> keys and values [..., key/value heads, size]."""
        value = self._split(self.v_proj(x))
        return self._rotated(self.k_proj(x), rotary).to(value.dtype), value

    def queries(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """X [..., columns] -> [..., heads, size]."""
        projected = self.q_proj(x)
        return self._rotated(projected, rotary).to(projected.dtype)

    def _rotated(self, projected: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        split = self._split(projected)
        cos, sin = (part.unsqueeze(-2) for part in rotary)
        return split * cos + rotate_half(split) * sin  # type: ignore[no-untyped-call, no-any-return]

    def _split(self, projected: Tensor) -> Tensor:
        return projected.view(*projected.shape[:-1], projected.shape[-1] // self._size, self._size)  # also of no rows


class _Layer(nn.Module):
    """The decoder layer; of EAGLE-3 with norms of both its inputs, which it attends to side by side."""

    def __init__(self, config: Any, *, joins: bool) -> None:
        super().__init__()
        hidden = config.hidden_size
        self._joins = joins
        if joins:
            self.input_layernorm = LlamaRMSNorm(hidden, config.rms_norm_eps)
            self.hidden_norm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.self_attn = _Attention(config, 2 * hidden if joins else hidden)
        self.post_attention_layernorm = LlamaRMSNorm(hidden, config.rms_norm_eps)
        self.mlp = LlamaMLP(config)  # type: ignore[no-untyped-call]

    def attended(self, token: Tensor, state: Tensor) -> Tensor:
        """What is attended to, of embeddings and states [..., hidden]."""
        return torch.cat([self.input_layernorm(token), self.hidden_norm(state)], dim=-1) if self._joins else state

    def next(self, state: Tensor, found: Tensor) -> Tensor:
        """States and what their attention found [..., hidden] -> next states."""
        state = state + self.self_attn.o_proj(found)
        result: Tensor = state + self.mlp(self.post_attention_layernorm(state))
        return result


class EagleStudent(Student):
    """Both kinds. Parameters have the published names."""

    fc: nn.Linear  # an EAGLE-3 head's is a StreamReader

    def __init__(self, shape: EagleShape, target: Target, loss: str, ids: Tensor | None) -> None:
        """`ids`: ascending, the tokens that an EAGLE-3 head scores; None: all."""
        super().__init__(loss, shape.unroll, shape.decay)
        self._shape, self._target_id, self._vocab = shape, target.checkpoint.id, target.vocab_size
        self._config: Any = layer_config(shape, target)
        self._is_third = shape.version == 3  # noqa: PLR2004
        hidden, layers = target.hidden_size, target.model.config.num_hidden_layers
        self.register_buffer("_ids", ids, persistent=False)
        layer = _Layer(self._config, joins=self._is_third)
        self._rotary = LlamaRotaryEmbedding(self._config)
        if self._is_third:
            self.taps = check_taps(shape.taps or (2, layers // 2, layers - 3), layers, layers, "three different")
            self.fc, self.midlayer = StreamReader(len(self.taps), hidden), layer
            self.norm = LlamaRMSNorm(hidden, self._config.rms_norm_eps)
            self.lm_head = nn.Linear(hidden, self._vocab if ids is None else len(ids), bias=False)
        else:
            self.fc, self.layers = nn.Linear(2 * hidden, hidden), nn.ModuleList([layer])
        self._begin(target)

    @torch.no_grad()
    def _begin(self, target: Target) -> None:
        """Small random matrices; an EAGLE-3 head begins with the last tap as its state and the target's outputs."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=_INITIAL_STD)
        hidden = target.hidden_size
        if self._is_third:
            self.fc.weight[:, -hidden:] += torch.eye(hidden)
            head, decoder = target.head.float().cpu(), cast("Any", target.model.base_model)
            self.lm_head.weight.copy_(head if self.ids is None else head[self.ids])
            self.norm.weight.copy_(decoder.norm.weight.float().cpu())
        else:
            self.fc.weight[:, hidden:] += torch.eye(hidden)
            nn.init.zeros_(self.fc.bias)

    @torch.no_grad()
    def scale_taps(self, sizes: Tensor, *, fresh: bool) -> None:
        """Of an EAGLE-3 head; a fresh one's last norm takes over what the sizes took from the last tap."""
        cast("StreamReader", self.fc).scale(sizes, fresh=fresh)
        if fresh:
            last = sizes[-len(self.norm.weight) :]
            self.norm.weight.mul_(last / last.square().mean().sqrt())

    @property
    def ids(self) -> Tensor | None:
        """Tokens that its output layer scores."""
        return self._ids  # type: ignore[return-value]

    @property
    def max_depth(self) -> int | None:
        """As deep as evaluations look."""
        return _DRAFT_CHAIN

    def guess(self, batch: Batch, seen: Seen, target_head: Tensor, depth: int) -> list[tuple[Tensor, Tensor]]:
        """Unrolls `depth` steps over the text's own tokens, from where the position after is scored; zero elsewhere."""
        chains, attention = Chains(batch, depth), self._layer.self_attn
        state = self._incoming(seen)
        joined = self._joined(shifted(seen.embedded, -1), state)
        x = self._layer.attended(shifted(seen.embedded, -1), joined)
        chains.begin(*attention.keys(x, self._rotary(x, positions_of(batch))))
        joined, x = chains.gather(joined), chains.gather(x)
        guesses = []
        for step in range(depth):
            if step:
                token = chains.gather(shifted(seen.embedded, -1 - step))
                joined = self._joined(token, state)
                x = self._layer.attended(token, joined)
            rotary = tuple(part[0] for part in self._rotary(x, chains.positions[None] + step))
            if step:
                chains.extend(*attention.keys(x, rotary))
            state = self._layer.next(joined, chains.attend(attention.queries(x, rotary)))
            guessed = self.norm(state) if self._is_third else state
            guesses.append((chains.scatter(guessed), self.lm_head.weight if self._is_third else target_head))
        return guesses

    @property
    def _layer(self) -> Any:
        return self.midlayer if self._is_third else self.layers[0]

    def _incoming(self, seen: Seen) -> Tensor:
        state = seen.hidden
        if self._is_third:
            state = cast("Tensor", self.fc(torch.cat(seen.streams, dim=-1)))
        if self.training and self._shape.noise:
            state = state + (torch.rand_like(state) * 2 - 1) * self._shape.noise
        return state

    def _joined(self, token: Tensor, state: Tensor) -> Tensor:
        """The layer's state: an EAGLE-1 head makes it of embedding and state."""
        return state if self._is_third else cast("Tensor", self.fc(torch.cat([token, state], dim=-1)))

    def penalty(self, state: Tensor, target_state: Tensor, weight: Tensor) -> Tensor | None:
        """Smooth L1 to the target's state."""
        if not self._shape.regression:
            return None
        errors = functional.smooth_l1_loss(state.float(), target_state.float(), reduction="none").mean(-1)
        return self._shape.regression * (errors * weight).sum()

    def save(self, folder: Path) -> None:
        """The layouts of the authors' releases."""
        names = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim")
        further = ("vocab_size", "max_position_embeddings", "rms_norm_eps")
        config = {name: getattr(self._config, name) for name in (*names, *further)}
        config |= {
            "architectures": ["LlamaForCausalLMEagle3" if self._is_third else "LlamaForCausalLMEagle"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_act": "silu",
            "rope_theta": self._config.rope_parameters["rope_theta"],
            "rope_scaling": None,
            "target_model": self._target_id,
        }
        tensors = dict(self.state_dict())
        if self._is_third:
            tensors["fc.weight"] = cast("StreamReader", self.fc).stored()
            config |= {"eagle_config": {TAPS: list(self.taps)}}
            config |= {"draft_vocab_size": self.lm_head.out_features}
            if self.ids is not None:
                ids = self.ids.cpu()
                tensors["d2t"] = ids - torch.arange(len(ids))
                tensors["t2d"] = torch.zeros(self._vocab, dtype=torch.bool).index_fill(0, ids, value=True)
        else:
            config |= {"bias": True}
        save_head(folder, tensors, config, torch.float16)

    def describe(self) -> str:
        """For the card."""
        config = self._config
        scored = self.lm_head.out_features if self._is_third else self._vocab
        return (
            f"EAGLE-{self._shape.version}, one layer, hidden {config.hidden_size}, {config.num_attention_heads} heads "
            f"({config.num_key_value_heads} KV), FFN {config.intermediate_size}, {scored} tokens scored, "
            f"unrolled {self.depth} steps"
        )


def shape_of(checkpoint: HeadCheckpoint) -> EagleShape:
    """Of a finished head.

    Raises:
        TrainingOptionError: a variant that cannot be trained.
    """
    if checkpoint.config.get(NORMED_RESIDUAL):
        raise TrainingOptionError(f"{checkpoint.id} has {NORMED_RESIDUAL}; such heads cannot be evaluated here")
    nested = checkpoint.config.get("eagle_config") or {}
    return EagleShape(
        version=1 if checkpoint.kind == "eagle" else 3,
        ffn_size=int(checkpoint.setting("intermediate_size")),
        num_heads=int(checkpoint.setting("num_attention_heads")),
        num_kv_heads=int(checkpoint.setting("num_key_value_heads")),
        taps=tuple(nested.get(TAPS, ())),
    )
