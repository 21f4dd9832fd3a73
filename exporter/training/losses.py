"""Divergence of the draft from the target over a large vocabulary, without the logits of a whole batch in memory.

Logits of some tokens at a time are computed from hidden states, and their gradient is taken at once in the forward
pass, as in fused linear cross-entropy (Hsu et al. 2024, "Liger Kernel"). Peak memory is a few f32 tensors of
LOGIT_CHUNK_BYTES instead of the [tokens, vocabulary] ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable

LOGIT_CHUNK_BYTES = 256 << 20


class Distance(NamedTuple):
    """Of scored positions: the summed loss, and per position sum min(p, q) and whether both argmax agree."""

    loss_sum: Tensor  # f32 scalar, differentiable
    overlap: Tensor  # f32 [tokens]
    agrees: Tensor  # f32 [tokens], 0 or 1


def forward_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(target || draft) of each row; covers all that the target may say."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def reverse_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """KL(draft || target) of each row; prefers the target's main modes."""
    return (log_q.exp() * (log_q - log_p)).sum(-1)


def total_variation(log_p: Tensor, log_q: Tensor) -> Tensor:
    """1 - sum min(p, q) of each row: the rejection rate itself, with a weak gradient far from the target."""
    return 1 - torch.minimum(log_p.exp(), log_q.exp()).sum(-1)


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "forward-kl": forward_kl,
    "reverse-kl": reverse_kl,
    "total-variation": total_variation,
}


def distance(
    loss: str,
    hidden: Tensor,
    head: Tensor,
    target_hidden: Tensor,
    target_head: Tensor,
    *,
    chunk_tokens: int | None = None,
) -> Distance:
    """Compares next-token distributions at some positions.

    hidden [tokens, draft hidden] and head [vocab, draft hidden] receive gradients; target_hidden [tokens, target
    hidden] and target_head [vocab, target hidden] do not. `loss` is one of DIVERGENCES.
    """
    chunk = chunk_tokens or max(1, LOGIT_CHUNK_BYTES // (4 * head.shape[0]))
    values = _ChunkedDistance.apply(loss, chunk, hidden, head, target_hidden, target_head)  # type: ignore[no-untyped-call]
    return Distance(*values)


class _ChunkedDistance(torch.autograd.Function):
    """The gradients of loss_sum are ready when the forward pass ends; backward only scales them."""

    @staticmethod
    def forward(  # noqa: PLR0917  # apply() passes by position
        ctx: Any,
        loss: str,
        chunk: int,
        hidden: Tensor,
        head: Tensor,
        target_hidden: Tensor,
        target_head: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        with_gradient = any(ctx.needs_input_grad)
        grad_hidden, grad_head = torch.zeros_like(hidden), torch.zeros_like(head)
        loss_sum = torch.zeros((), dtype=torch.float32, device=hidden.device)
        overlaps, agreements = [loss_sum.new_zeros(0)], [loss_sum.new_zeros(0)]
        leaf_head = head.detach().requires_grad_(with_gradient)
        for start in range(0, hidden.shape[0], chunk):
            part = slice(start, start + chunk)
            log_p = functional.linear(target_hidden[part], target_head).float().log_softmax(-1)
            with torch.set_grad_enabled(with_gradient):
                leaf = hidden[part].detach().requires_grad_(with_gradient)
                log_q = functional.linear(leaf, leaf_head).float().log_softmax(-1)
                part_loss = DIVERGENCES[loss](log_p, log_q).sum()
                if with_gradient:
                    grad_hidden[part], part_grad = torch.autograd.grad(part_loss, (leaf, leaf_head))
                    grad_head += part_grad
            log_q = log_q.detach()
            loss_sum += part_loss.detach()
            overlaps.append(torch.minimum(log_p.exp(), log_q.exp()).sum(-1))
            agreements.append((log_p.argmax(-1) == log_q.argmax(-1)).float())
        ctx.save_for_backward(grad_hidden, grad_head)
        overlap, agrees = torch.cat(overlaps), torch.cat(agreements)
        ctx.mark_non_differentiable(overlap, agrees)
        return loss_sum, overlap, agrees

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> Any:
        grad_hidden, grad_head = ctx.saved_tensors
        return None, None, grad_hidden * grad_loss, grad_head * grad_loss, None, None
