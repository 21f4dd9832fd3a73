"""Divergence of the draft from the target over a large vocabulary, without the logits of a whole batch in memory.

Logits of some tokens at a time are computed from hidden states, and their gradient is taken at once in the forward
pass, as in fused linear cross-entropy (Hsu et al. 2024, "Liger Kernel"). Peak memory is a few f32 tensors of
LOGIT_CHUNK_BYTES instead of the [tokens, vocabulary] ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

LOGIT_CHUNK_BYTES = 256 << 20


class Divergence(NamedTuple):
    """Of each row of two distributions: its value, and its gradient by the logits of the second one."""

    values: Tensor  # f32 [tokens]
    gradient: Tensor  # f32 [tokens, vocab]


class Distance(NamedTuple):
    """Of scored positions: the summed loss, and per position sum min(p, q) and whether both argmax agree."""

    loss_sum: Tensor  # f32 scalar, differentiable
    overlap: Tensor  # f32 [tokens]
    agrees: Tensor  # f32 [tokens], 0 or 1


def forward_kl(log_p: Tensor, log_q: Tensor) -> Divergence:
    """KL(target || draft) of each row; covers all that the target may say."""
    p = log_p.exp()
    return Divergence((p * (log_p - log_q)).sum(-1), log_q.exp() - p)


def reverse_kl(log_p: Tensor, log_q: Tensor) -> Divergence:
    """KL(draft || target) of each row; prefers the target's main modes."""
    q, ratio = log_q.exp(), log_q - log_p
    value = (q * ratio).sum(-1)
    return Divergence(value, q * (ratio - value[:, None]))


def total_variation(log_p: Tensor, log_q: Tensor) -> Divergence:
    """1 - sum min(p, q) of each row: the rejection rate itself, with a weak gradient far from the target."""
    p, q = log_p.exp(), log_q.exp()
    rising = (q < p).float()  # more of these tokens is accepted more often
    return Divergence(1 - torch.minimum(p, q).sum(-1), q * ((q * rising).sum(-1, keepdim=True) - rising))


DIVERGENCES: dict[str, Callable[[Tensor, Tensor], Divergence]] = {
    "forward-kl": forward_kl,
    "reverse-kl": reverse_kl,
    "total-variation": total_variation,
}


def compare(loss: str, target_logits: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """[tokens, vocab] twice -> summed divergence, its gradient by `logits`, overlap and agreement of each row."""
    log_p, log_q = target_logits.float().log_softmax(-1), logits.float().log_softmax(-1)
    values, gradient = DIVERGENCES[loss](log_p, log_q)
    overlap = torch.minimum(log_p.exp(), log_q.exp()).sum(-1)
    agrees = (target_logits.argmax(-1) == logits.argmax(-1)).float()
    return values.sum(), gradient.to(logits.dtype), overlap, agrees


# one compilation for all numbers of tokens; without it a step writes some twenty f32 copies of the logits
_compiled_compare = torch.compile(compare, dynamic=True)


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
        rows, columns = hidden, head.to(target_hidden.dtype)  # of the products: bf16 under autocast
        rows = rows.to(columns.dtype)
        run = _compiled_compare if hidden.is_cuda else compare
        for start in range(0, hidden.shape[0], chunk):
            part = slice(start, start + chunk)
            target_logits, logits = target_hidden[part] @ target_head.T, rows[part] @ columns.T
            part_loss, gradient, overlap, agrees = run(loss, target_logits, logits)
            if with_gradient:
                grad_hidden[part] = gradient @ columns
                grad_head += gradient.T @ rows[part]
            loss_sum += part_loss
            overlaps.append(overlap)
            agreements.append(agrees)
        ctx.save_for_backward(grad_hidden, grad_head)
        overlap, agrees = torch.cat(overlaps), torch.cat(agreements)
        ctx.mark_non_differentiable(overlap, agrees)
        return loss_sum, overlap, agrees

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> Any:
        grad_hidden, grad_head = ctx.saved_tensors
        return None, None, grad_hidden * grad_loss, grad_head * grad_loss, None, None
