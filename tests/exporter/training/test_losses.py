"""The chunked distance against plain autograd over whole logits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pilotfish.exporter.training.losses import DIVERGENCES, Distance, Guess, distance

TOKENS, VOCAB = 13, 31


Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


@pytest.fixture
def tensors() -> Tensors:
    generator = torch.Generator().manual_seed(0)
    shapes = ((TOKENS, 8), (VOCAB, 8), (TOKENS, 12), (VOCAB, 12))
    hidden, head, target_hidden, target_head = (torch.randn(shape, generator=generator) for shape in shapes)
    return hidden.requires_grad_(), head.requires_grad_(), target_hidden, target_head


def of_one(loss: str, tensors: Tensors, *, chunk_tokens: int | None = None) -> Distance:
    """The distance of a single guess of full weight."""
    hidden, head, target_hidden, target_head = tensors
    guess = Guess(hidden, head, torch.ones(len(hidden)))
    return distance(loss, [guess], target_hidden, target_head, chunk_tokens=chunk_tokens)


def reference(loss: str, tensors: Tensors) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    hidden, head, target_hidden, target_head = tensors
    p, q = (target_hidden @ target_head.T).softmax(-1), (hidden @ head.T).softmax(-1)
    terms = {
        "forward-kl": (p * (p.log() - q.log())).sum(),
        "reverse-kl": (q * (q.log() - p.log())).sum(),
        "total-variation": (p - q).abs().sum() / 2,
    }
    return terms[loss], torch.minimum(p, q).sum(-1), (p.argmax(-1) == q.argmax(-1)).float()


@pytest.mark.parametrize("loss", DIVERGENCES)
@pytest.mark.parametrize("chunk", [1, 5, 13, 100])
def test_values_and_gradients(tensors: Tensors, loss: str, chunk: int) -> None:
    expected_loss, overlap, agrees = reference(loss, tensors)
    expected = torch.autograd.grad(3 * expected_loss, tensors[:2])
    found = of_one(loss, tensors, chunk_tokens=chunk)
    (3 * found.loss_sum).backward()
    torch.testing.assert_close(found.loss_sum, expected_loss, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found.overlap[0], overlap, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.agrees[0], agrees)
    for tensor, gradient in zip(tensors[:2], expected, strict=True):
        torch.testing.assert_close(tensor.grad, gradient, rtol=1e-4, atol=1e-5)


class LargestTensor(TorchDispatchMode):
    """Remembers the most elements that any operator returned."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.elements = max(self.elements, result.numel())
        return result


def test_logits_of_all_tokens_never_exist(tensors: Tensors) -> None:
    with LargestTensor() as largest:
        of_one("forward-kl", tensors, chunk_tokens=2).loss_sum.backward()
    assert largest.elements == max(VOCAB * 12, 2 * VOCAB)  # a weight, not [TOKENS, VOCAB]


def test_no_position(tensors: Tensors) -> None:
    hidden, head, target_hidden, target_head = tensors
    found = of_one("forward-kl", (hidden[:0], head, target_hidden[:0], target_head))
    assert found.loss_sum == 0
    assert found.overlap.shape == (1, 0)


def test_bf16_autocast_accumulates_in_f32(tensors: Tensors) -> None:
    expected = of_one("forward-kl", tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = of_one("forward-kl", tensors, chunk_tokens=4)
    found.loss_sum.backward()
    assert found.loss_sum.dtype == torch.float32
    assert tensors[1].grad.dtype == torch.float32
    torch.testing.assert_close(found.loss_sum, expected.loss_sum, rtol=0.05, atol=0.05)


def test_same_model_is_never_rejected(tensors: Tensors) -> None:
    hidden, head = tensors[0].detach(), tensors[1].detach()
    found = of_one("total-variation", (hidden, head, hidden, head))
    torch.testing.assert_close(found.overlap[0], torch.ones(TOKENS))
    assert found.agrees.min() == 1


def test_guesses_share_the_target_and_count_by_weight(tensors: Tensors) -> None:
    hidden, head, target_hidden, target_head = tensors
    other = torch.randn(TOKENS, 8, generator=torch.Generator().manual_seed(5)).requires_grad_()
    weights = torch.rand(2, TOKENS, generator=torch.Generator().manual_seed(6))
    log_p = (target_hidden @ target_head.T).log_softmax(-1)
    terms = [
        (weight * (log_p.exp() * (log_p - (rows @ head.T).log_softmax(-1))).sum(-1)).sum()
        for rows, weight in zip((hidden, other), weights, strict=True)
    ]
    expected = torch.autograd.grad(sum(terms), (hidden, other, head))
    guesses = [Guess(hidden, head, weights[0]), Guess(other, head, weights[1])]
    found = distance("forward-kl", guesses, target_hidden, target_head, chunk_tokens=5)
    torch.testing.assert_close(found.loss_sum, sum(terms))
    for gradient, wanted in zip(torch.autograd.grad(found.loss_sum, (hidden, other, head)), expected, strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-4, atol=1e-5)


def test_some_ids_are_compared_with_the_whole_distribution(tensors: Tensors) -> None:
    hidden, head, target_hidden, target_head = tensors
    ids = torch.tensor([1, 4, 5, 17, 30])
    own = head.detach()[: len(ids)].clone().requires_grad_()
    guess = Guess(hidden, own, torch.ones(TOKENS))
    found = distance("forward-kl", [guess], target_hidden, target_head, ids=ids, chunk_tokens=4)
    p, log_q = (target_hidden @ target_head.T).softmax(-1), (hidden @ own.T).log_softmax(-1)
    mass = p[:, ids].sum(-1, keepdim=True)
    among = p[:, ids] / mass
    torch.testing.assert_close(found.loss_sum, (mass * among * (among.log() - log_q)).sum())
    torch.testing.assert_close(found.overlap[0], torch.minimum(p[:, ids], log_q.exp()).sum(-1))
    torch.testing.assert_close(found.agrees[0], (ids[log_q.argmax(-1)] == p.argmax(-1)).float())


def test_a_frozen_head_gets_no_gradient(tensors: Tensors) -> None:
    hidden, _, target_hidden, target_head = tensors
    frozen = torch.randn(VOCAB, 8)
    distance("forward-kl", [Guess(hidden, frozen, torch.ones(TOKENS))], target_hidden, target_head).loss_sum.backward()
    assert hidden.grad is not None
    assert frozen.grad is None
