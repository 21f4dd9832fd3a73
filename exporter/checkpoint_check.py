"""Whether a checkpoint's tensors are those of the model that its configuration makes: none missing, none left over.

A tensor that nobody reads is another computation than the one that is exported, so it is named and refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .config_check import beside_adapter
from .errors import CheckpointError, UnsupportedModelError, UnusedTensorError
from .heads import mtp
from .tensor_names import text_name
from .trace import build_on_meta, first_names

if TYPE_CHECKING:
    from .load import Checkpoint
    from .sources import CheckpointSource

_HARMLESS = {  # names of tensors that no model needs to read, with the reason
    re.compile(r"(.*\.)?rotary_emb\.inv_freq"): "the configuration says the same",
    re.compile(
        r"(.*\.)?(attn|attention)\.(bias|masked_bias)"
    ): "a causal mask, where it has more than two axes or none",
    re.compile(r"(.*\.)?position_ids"): "the numbers 0, 1, 2 ...",
}
_MASK_AXES = {0, 4}  # a fill value, or [1, 1, positions, positions]
_NUM_NAMED = 3


def check_checkpoint(checkpoint: Checkpoint, *, uses_mtp: bool, ignore_unused: bool) -> list[str]:
    """Compares names, shapes and types; reads no values but those of tied twins. Returns notes for the user.

    uses_mtp: a head is made of the checkpoint's multi-token prediction layers.

    Raises:
        CheckpointError: a tensor is missing, or has another shape than the configuration says, or no elements.
        UnsupportedModelError: a type that stands for packed values.
        UnusedTensorError: tensors that the export would leave out, unless that is asked for.
    """
    model = build_on_meta(checkpoint.config)
    source = checkpoint.source(model)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    empty = next((name for name, shape in expected.items() if 0 in shape), None)
    if empty is not None:
        raise CheckpointError(
            f"{checkpoint.id}: the configuration makes tensor {empty} {list(expected[empty])}, without elements"
        )
    first = first_names(model)
    stored = {name: found for name in expected if (found := source.stored_name(name)) is not None}
    for name, found in stored.items():
        _check_tensor(checkpoint, source, found, expected[name])
    missing = [name for name in expected if name not in stored and first.get(name, name) not in stored]
    unused, notes = _unused(checkpoint, source, set(stored.values()), uses_mtp=uses_mtp)
    if missing and not unused:  # with others instead, the tracer may know better why
        raise CheckpointError(f"{checkpoint.id} has no tensor {missing[0]}; is the checkpoint complete?")
    problems = [] if missing or not unused else [_unused_message(checkpoint.id, unused)]
    for name, found in stored.items():
        twin = stored.get(first.get(name, name))
        if twin not in (None, found) and not source.equal(found, str(twin)):
            problems.append(
                f"{checkpoint.id} has {found}, which is not equal to {twin} although its configuration ties both "
                "(set tie_word_embeddings to false in its config.json if both are meant)"
            )
    merged = {adapter.path.resolve() for adapter in checkpoint.adapters}
    if checkpoint.path.resolve() not in merged and (adapter := beside_adapter(checkpoint.path)) is not None:
        problems.append(adapter)
    if problems and not ignore_unused:
        raise UnusedTensorError(f"{problems[0]}; to export without: --ignore-unused, ignore_unused=True")
    return notes + [f"{problem}; it is left out" for problem in problems]


def _check_tensor(checkpoint: Checkpoint, source: CheckpointSource, name: str, expected: tuple[int, ...]) -> None:
    found = source.shape(name)
    if found != expected:
        raise CheckpointError(
            f"{checkpoint.id}: tensor {name} is {list(found)}, the configuration makes it {list(expected)}; "
            "one of them belongs to another model"
        )
    kind = source.packed_type(name)
    if kind is not None:
        raise UnsupportedModelError(
            f"{checkpoint.id}: tensor {name} has type {kind}, which is already quantised in a layout that its "
            "config.json does not name; export the checkpoint that it was made from, or a GGUF file"
        )


def _unused(
    checkpoint: Checkpoint, source: CheckpointSource, used: set[str], *, uses_mtp: bool
) -> tuple[list[str], list[str]]:
    """Names of tensors that nothing reads, and notes about those that a head could."""
    others = sorted(set(source.names()) - used)
    if checkpoint.is_text_part:  # the other parts are not what is exported
        others = [name for name in others if text_name(name) is not None]
    prefixes = mtp.prefixes_of(others)
    further = [name for name in others if prefixes and name.startswith(prefixes)]
    notes = []
    if further and not uses_mtp:
        notes.append(
            f"{checkpoint.id} has a multi-token prediction layer ({further[0]} ...), which is not exported: give the "
            "same checkpoint as the head to use it"
        )
    return [name for name in others if name not in further and not _is_harmless(name, source.shape(name))], notes


def _is_harmless(name: str, shape: tuple[int, ...]) -> bool:
    pattern = next((pattern for pattern in _HARMLESS if pattern.fullmatch(name)), None)
    return pattern is not None and ("bias" not in name or len(shape) in _MASK_AXES)


def _unused_message(where: str, unused: list[str]) -> str:
    named = ", ".join(unused[:_NUM_NAMED]) + (" ..." if len(unused) > _NUM_NAMED else "")
    count = f"{len(unused)} tensors" if len(unused) > 1 else "a tensor"
    return f"{where} has {count} that its model does not use ({named})"
