"""Modules of models whose own cannot be traced as rows, put so that they can: only that is new in them.

Above all, attention that does not ask transformers' registry for a function. Knows these models by their `model_type`;
all others without the registry are refused.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import own_alibi, own_streams

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

MODEL_TYPES = ("falcon", *own_alibi.MODEL_TYPES)  # without the registry


def register(name: str, attend: Callable[..., tuple[torch.Tensor, None]]) -> None:
    """Makes `attn_implementation=name` of these models call `attend` as transformers' registry does."""
    falcon: Any = import_module("transformers.models.falcon.modeling_falcon")

    class Attention(falcon.FalconAttention):  # type: ignore[misc]
        """Its three layouts of query, key and value are one: groups of queries with a key and a value behind each."""

        def forward(
            self,
            hidden_states: torch.Tensor,
            alibi: torch.Tensor | None,
            attention_mask: torch.Tensor | None,
            position_ids: torch.Tensor,
            position_embeddings: tuple[torch.Tensor, torch.Tensor],
            **_: Any,
        ) -> tuple[torch.Tensor, None]:
            """[batch, num_tokens, hidden] -> the same."""
            query, key, value = self._heads(self.query_key_value(hidden_states))
            options = {"scaling": self.inv_norm_factor}
            if alibi is None:
                query, key = falcon.apply_rotary_pos_emb(query, key, *position_embeddings)
            else:  # the model's has positions of all keys
                slopes = own_alibi.falcon_slopes(self.num_heads, position_ids.device)
                options["key_biases"] = own_alibi.rounded_biases(slopes, position_ids) * self.inv_norm_factor
            found, _weights = attend(self, query, key, value, attention_mask, **options)
            return self.dense(found.flatten(2)), None

        def _heads(self, fused: torch.Tensor) -> list[torch.Tensor]:
            """Each [batch, num_heads or num_kv_heads, num_tokens, head_dim]."""
            num_groups = 1 if self.multi_query else self.num_heads
            if self.new_decoder_architecture:
                num_groups = self.num_kv_heads
            groups = fused.reshape(*fused.shape[:-1], num_groups, -1, self.head_dim)
            parts = groups[..., :-2, :].flatten(2, 3), groups[..., -2, :], groups[..., -1, :]
            return [part.transpose(1, 2) for part in parts]

    falcon.FALCON_ATTENTION_CLASSES[name] = Attention


def put(model: torch.nn.Module, model_type: str, attend: Callable[..., tuple[torch.Tensor, None]]) -> None:
    """Changes the classes of modules that cannot be traced as they are; Falcon has done so while it was built."""
    classes: dict[type, type] = {}
    if model_type in own_alibi.MODEL_TYPES:
        own_alibi.set_slopes(model, model_type)
        classes = own_alibi.replacements(model_type, attend)
    elif model_type in own_streams.MODEL_TYPES:
        classes = own_streams.replacements()
    for module in list(model.modules()):
        if type(module) in classes:
            module.__class__ = classes[type(module)]
