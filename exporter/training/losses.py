"""Divergence of a draft or head from the target over a large vocabulary, without the logits of a whole batch in memory.

Logits of some tokens at a time are computed from hidden states, and their gradient is taken at once in the forward
pass, as in fused linear cross-entropy (Hsu et al. 2024, "Liger Kernel"). Peak memory is a few f32 tensors of
LOGIT_CHUNK_BYTES instead of the [tokens, vocabulary] ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOGIT_CHUNK_BYTES = 256 << 20


class Divergence(NamedTuple):
    """Of each row of two distributions: its value, and its gradient by the logits of the second one."""

    values: Tensor  # f32 [tokens]
    gradient: Tensor  # f32 [tokens, vocab]


class Guess(NamedTuple):
    """What a student makes of some positions, before the product that gives logits."""

    hidden: Tensor  # [tokens, hidden], receives gradients
    head: Tensor  # [ids, hidden], receives gradients where it requires them
    weight: Tensor  # f32 [tokens]: of each position in the loss, 0 where this guess does not exist


class Distance(NamedTuple):
    """Of scored positions: the summed loss, and for each guess sum min(p, q) and whether both argmax agree."""

    loss_sum: Tensor  # f32 scalar, differentiable
    overlap: Tensor  # f32 [guesses, tokens]
    agrees: Tensor  # f32 [guesses, tokens], 0 or 1


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


def target_says(target_logits: Tensor, ids: Tensor | None) -> tuple[Tensor, Tensor]:
    """[tokens, vocab] -> log-probabilities of the ids that are scored (of all: None), and the likeliest token."""
    log_p = target_logits.float().log_softmax(-1)
    return log_p if ids is None else log_p[:, ids], target_logits.argmax(-1)


def compare(  # noqa: PLR0917  # compiled: by position
    loss: str, log_p: Tensor, best: Tensor, ids: Tensor | None, logits: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weighted divergence summed, its gradient by `logits`, overlap and agreement of each row.

    Where only some ids are scored, the divergence is between the distributions over these, and a row counts by the
    probability that the target gives them together; overlap and agreement are with the target's whole distribution.
    """
    log_q, guessed = logits.float().log_softmax(-1), logits.argmax(-1)
    among = log_p
    if ids is not None:
        mass = log_p.logsumexp(-1, keepdim=True)
        among, weight, guessed = log_p - mass, weight * mass[:, 0].exp(), ids[guessed]
    values, gradient = DIVERGENCES[loss](among, log_q)
    overlap = torch.minimum(log_p.exp(), log_q.exp()).sum(-1)
    weighted = (gradient * weight[:, None]).to(logits.dtype)
    return (values * weight).sum(), weighted, overlap, (guessed == best).float()


# one compilation for all numbers of tokens; without it a step writes some twenty f32 copies of the logits
_compiled_target_says = torch.compile(target_says, dynamic=True)
_compiled_compare = torch.compile(compare, dynamic=True)


def distance(
    loss: str,
    guesses: Sequence[Guess],
    target_hidden: Tensor,
    target_head: Tensor,
    *,
    ids: Tensor | None = None,
    chunk_tokens: int | None = None,
) -> Distance:
    """Compares guesses of next-token distributions with the target's at some positions.

    target_hidden [tokens, target hidden] and target_head [vocab, target hidden] receive no gradients. `loss` is one of
    DIVERGENCES. ids: int64 [ids], which tokens the guesses' heads score; None: all.
    """
    chunk = chunk_tokens or max(1, LOGIT_CHUNK_BYTES // (4 * target_head.shape[0]))
    weights = torch.stack([guess.weight for guess in guesses])
    parts = [*(guess.hidden for guess in guesses), *(guess.head for guess in guesses)]
    with_gradients = torch.is_grad_enabled()  # in the function's own forward it never is
    values = _ChunkedDistance.apply(  # type: ignore[no-untyped-call]
        loss, chunk, with_gradients, ids, target_hidden, target_head, weights, *parts
    )
    return Distance(*values)


class _ChunkedDistance(torch.autograd.Function):
    """The gradients of loss_sum are ready when the forward pass ends; backward only scales them."""

    @staticmethod
    def forward(  # noqa: PLR0917  # apply() passes by position
        ctx: Any,
        loss: str,
        chunk: int,
        with_gradients: bool,  # noqa: FBT001
        ids: Tensor | None,
        target_hidden: Tensor,
        target_head: Tensor,
        weights: Tensor,
        *parts: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        count = len(parts) // 2
        gradients = [
            torch.zeros_like(part) if needed and with_gradients else None
            for part, needed in zip(parts, ctx.needs_input_grad[-2 * count :], strict=True)
        ]
        casted = {id(part): part.to(target_hidden.dtype) for part in parts}  # of the products: bf16 under autocast
        cast = [casted[id(part)] for part in parts]
        loss_sum = torch.zeros((), dtype=torch.float32, device=target_hidden.device)
        overlap, agrees = torch.zeros_like(weights), torch.zeros_like(weights)
        says, run = (_compiled_target_says, _compiled_compare) if target_hidden.is_cuda else (target_says, compare)
        for start in range(0, target_hidden.shape[0], chunk):
            part = slice(start, start + chunk)
            log_p, best = says(target_hidden[part] @ target_head.T, ids)
            for index in range(count):
                rows, columns = cast[index][part], cast[count + index]
                logits = rows @ columns.T
                value, gradient, *scores = run(loss, log_p, best, ids, logits, weights[index, part])
                loss_sum += value
                overlap[index, part], agrees[index, part] = scores
                grad_hidden, grad_head = gradients[index], gradients[count + index]
                if grad_hidden is not None:
                    grad_hidden[part] = gradient @ columns
                if grad_head is not None:
                    grad_head += gradient.T @ rows
        ctx.gradients = gradients
        ctx.mark_non_differentiable(overlap, agrees)
        return loss_sum, overlap, agrees

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor, *_: Tensor) -> Any:
        scaled = [None if gradient is None else gradient * grad_loss for gradient in ctx.gradients]
        return None, None, None, None, None, None, None, *scaled
