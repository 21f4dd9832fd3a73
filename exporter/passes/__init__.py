"""Graph rewrites from a traced decoder to the contract of native/GRAPH.md, one a file, in the order of `fuse`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pilotfish.exporter import contract

from .attention import fuse_attention
from .canonical import canonicalise
from .check import check_fused
from .linear import pack_projections
from .match import sweep
from .norm_prologue import fold_norms
from .packed_tokens import flatten_tokens, gather_output_rows
from .plan import PackedWeight, Plan, Vector
from .ports import finish_ports, shared_inputs
from .residual import fold_residual
from .rms_norm import fuse_rms_norm
from .rotary import fuse_rotary
from .swiglu import fuse_swiglu
from .taps import add_taps

if TYPE_CHECKING:
    import onnx_ir as ir

    from .plan import Formats

__all__ = ["PackedWeight", "Plan", "Vector", "fuse"]


def fuse(
    model: ir.Model,
    formats: Formats,
    cache_dtype: str,
    num_layers: int,
    *,
    logit_ids: tuple[int, ...] | None = None,
    taps: tuple[int, ...] = (),
) -> Plan:
    """Rewrites a traced decoder in place to 5 nodes a layer and returns the plan of its stored tensors.

    taps: residual streams that become outputs, see `add_taps`.
    logit_ids: the only ids that the head scores; None: the whole vocabulary.

    Raises:
        UnsupportedModelError: a layer that does not have the expected shape; the message names it and the reason.
    """
    plan = canonicalise(model, formats, logit_ids)
    shared = shared_inputs()
    fuse_rms_norm(model)
    fuse_rotary(model, plan)
    fuse_swiglu(model, plan)
    attentions = fuse_attention(model, plan, shared)
    flatten_tokens(model, plan, shared)
    sweep(model.graph)
    pack_projections(model, plan)
    fold_residual(model)
    gather_output_rows(model, shared)
    sweep(model.graph)
    fold_norms(model, plan)
    sweep(model.graph)
    check_fused(model, num_layers)
    plan.sort(model.graph)
    finish_ports(model, plan, attentions, shared, cache_dtype)
    add_taps(model, plan, taps)
    model.graph.opset_imports[contract.DOMAIN] = contract.DOMAIN_VERSION
    return plan
