"""Graph rewrites from a traced decoder to the contract of native/GRAPH.md, one a file, in the order of `fuse`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.exporter import contract

from .activations import fuse_activations
from .attention import fuse_attention
from .canonical import canonicalise
from .check import check_fused
from .duplicates import join_duplicates
from .embedding import pack_embeddings
from .gated import fuse_swiglu
from .linear import fold_biases, pack_projections
from .lower import lower
from .match import sweep
from .norm_prologue import fold_norms, lower_norms, store_pending
from .norms import fuse_norms
from .output_rows import gather_output_rows
from .own_rows import look_up_rows
from .plan import PackedWeight, Plan, Vector
from .ports import finish_ports, shared_inputs
from .residual import fold_residual
from .row_steps import join_row_nodes
from .scale import fold_scales
from .siblings import pack_siblings
from .taps import finish_taps, gather_taps

if TYPE_CHECKING:
    from collections.abc import Mapping

    import onnx_ir as ir
    import torch

    from .plan import Formats

__all__ = ["PackedWeight", "Plan", "Vector", "fuse"]


def fuse(
    model: ir.Model,
    formats: Formats,
    cache_dtype: str,
    num_layers: int,
    *,
    buffers: Mapping[str, torch.Tensor] | None = None,
    logit_ids: tuple[int, ...] | None = None,
    taps: tuple[int, ...] = (),
) -> Plan:
    """Rewrites a traced decoder in place, to 5 nodes a layer where all fits, and returns the plan of its tensors.

    buffers: tensors that the model computes when it is built, by name.
    taps: residual streams that become outputs, see `gather_taps`.
    logit_ids: the only ids that the head scores; None: the whole vocabulary.

    Raises:
        UnsupportedModelError: a layer that no rows can express; the message names it and the reason.
    """
    plan = canonicalise(model, formats, logit_ids, buffers or {})
    shared = shared_inputs()
    lower(model, plan, shared)
    join_duplicates(model)
    fold_biases(model, plan)
    fuse_norms(model, plan)
    fuse_activations(model)
    sweep(model.graph)
    fuse_swiglu(model, plan)
    attentions = fuse_attention(model, plan, shared)
    sweep(model.graph)
    pack_embeddings(model, plan, shared)
    pack_projections(model, plan)
    fold_scales(model, plan)
    fold_residual(model)
    sweep(model.graph)
    gather_output_rows(model, shared)
    fold_norms(model, plan)
    sweep(model.graph)
    pack_siblings(model, plan)
    lower_norms(model, plan)
    look_up_rows(model)
    store_pending(model, plan)
    tapped = gather_taps(model, taps)
    join_row_nodes(model, plan)
    check_fused(model, plan, num_layers)
    plan.sort(model.graph)
    finish_ports(model, plan, attentions, shared, cache_dtype)
    finish_taps(model, plan, taps, tapped)
    model.graph.opset_imports[contract.DOMAIN] = contract.DOMAIN_VERSION
    return plan
