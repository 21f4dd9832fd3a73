"""Gemma 3n's decoder with its residual streams side by side in each token, as a graph of rows needs them.

transformers stacks the streams in front of the tokens and changes some of them in place. What each computes is the
same; the comparison with transformers' own logits at each export shows it.
"""

from __future__ import annotations

from importlib import import_module
from statistics import NormalDist
from typing import Any

import torch
from transformers.cache_utils import KVSharingDict
from transformers.modeling_outputs import BaseModelOutputWithPast

MODEL_TYPES = ("gemma3n_text",)
_LEAST_SQUARE = 1e-5  # below which a stream's magnitude is not divided by


def replacements() -> dict[type, type]:
    """Classes of modules -> those that compute the same."""
    own: Any = import_module("transformers.models.gemma3n.modeling_gemma3n")

    class Mlp(own.Gemma3nTextMLP):  # type: ignore[misc]
        def _gaussian_topk(self, inputs: torch.Tensor) -> torch.Tensor:
            """What of each row exceeds the quantile that a normal distribution would have at its sparsity."""
            centred = inputs - inputs.mean(dim=-1, keepdim=True)
            deviation = (centred * centred).mean(dim=-1, keepdim=True).sqrt()
            return torch.relu(centred - deviation * NormalDist().inv_cdf(self.activation_sparsity))

    class AltUp(own.Gemma3nTextAltUp):  # type: ignore[misc]
        """Streams are [batch, num_tokens, num_streams, hidden]."""

        def predict(self, hidden_states: torch.Tensor) -> torch.Tensor:
            """Each stream and a mixture of all of them."""
            count = self.config.altup_num_inputs
            routed = self.compute_router_modalities(hidden_states[:, :, self.config.altup_active_idx])
            mixture = self.prediction_coefs(routed).unflatten(-1, (count, count))
            found: torch.Tensor = hidden_states + (mixture[..., None] * hidden_states[:, :, None]).sum(dim=-2)
            return found

        def correct(self, predictions: torch.Tensor, activated: torch.Tensor) -> torch.Tensor:
            """Each prediction and its share of what the layer has added to the active one."""
            share = self.correction_coefs(self.compute_router_modalities(activated)) + 1.0
            innovation = activated - predictions[:, :, self.config.altup_active_idx]
            found: torch.Tensor = predictions + innovation[:, :, None] * share[..., None]
            return found

    class Layer(own.Gemma3nTextDecoderLayer):  # type: ignore[misc]
        def forward(self, hidden_states: torch.Tensor, *given: Any, **options: Any) -> torch.Tensor:
            """[batch, num_tokens, num_streams, hidden] -> the same."""
            predictions = self.altup.predict(hidden_states)
            active = predictions[:, :, self.config.altup_active_idx]
            corrected: torch.Tensor = self.altup.correct(predictions, self._transformed(active, given[0], options))
            first = corrected[:, :, self.config.altup_active_idx]
            if self.config.altup_correct_scale:
                first = self.altup.scale_corrected_output(first)
            gated = self.act_fn(self.per_layer_input_gate(first)) * given[1]
            added = self.post_per_layer_input_norm(self.per_layer_projection(gated))
            return torch.cat((corrected[:, :, :1], corrected[:, :, 1:] + added[:, :, None]), dim=2)

        def _transformed(self, active: torch.Tensor, angles: Any, options: dict[str, Any]) -> torch.Tensor:
            """Attention and MLP of one stream."""
            normed = self.input_layernorm(active)
            attended, _ = self.self_attn(
                hidden_states=normed, position_embeddings=angles, attention_mask=None, **options
            )
            gated = active + self.post_attention_layernorm(attended)
            middle = (gated + self.laurel(normed)) * 2.0**-0.5
            changed = self.mlp(self.pre_feedforward_layernorm(middle))
            found: torch.Tensor = middle + self.post_feedforward_layernorm(changed)
            return found

    class Decoder(own.Gemma3nTextModel):  # type: ignore[misc]
        def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor, **_: Any) -> BaseModelOutputWithPast:
            """[batch, num_tokens] -> the states that the output layer reads."""
            embedded = self.embed_tokens(input_ids)
            inputs = self.project_per_layer_inputs(embedded, self.get_per_layer_inputs(input_ids))
            further = [_as_large(embedded, project(embedded)) for project in self.altup_projections]
            hidden_states = torch.stack((embedded, *further), dim=2)
            kinds = self.config.layer_types
            angles = {kind: self.rotary_emb(embedded, position_ids, kind) for kind in sorted(set(kinds))}
            shared = KVSharingDict()
            for index, layer in enumerate(self.layers):
                hidden_states = layer(hidden_states, angles[kinds[index]], inputs[:, :, index], shared_kv_states=shared)
            first = hidden_states[:, :, 0]
            total = first
            for index, project in enumerate(self.altup_unembed_projections, 1):
                total = total + _as_large(first, project(hidden_states[:, :, index]))
            mean = total * (1.0 / self.config.altup_num_inputs)
            return BaseModelOutputWithPast(last_hidden_state=self.norm(mean))

    return {
        own.Gemma3nRMSNorm: _norm(own),
        own.Gemma3nTextMLP: Mlp,
        own.Gemma3nTextAltUp: AltUp,
        own.Gemma3nTextDecoderLayer: Layer,
        own.Gemma3nTextModel: Decoder,
    }


def _norm(own: Any) -> type:
    class Norm(own.Gemma3nRMSNorm):  # type: ignore[misc]
        """One operator: eleven norms a layer are most of what tracing takes otherwise."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            """The same shape."""
            found: torch.Tensor = torch.ops.pilotfish.rms_norm(x, self.weight if self.with_scale else None, self.eps)
            return found

    return Norm


def _as_large(first: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """A stream with the magnitude of the first one."""
    wanted = (first * first).mean(dim=-1, keepdim=True).sqrt()
    magnitude = (other * other).mean(dim=-1, keepdim=True).clamp(min=_LEAST_SQUARE).sqrt()
    return other * wanted / magnitude
