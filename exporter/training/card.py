"""The training card: README.md beside the weights, and its curves."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .curves import draw_curves
from .storage import storage_errors, write_text

if TYPE_CHECKING:
    from .evaluate import CategoryScores
    from .record import StageSummary, TrainingRecord

CARD = "README.md"
CURVES = "curves.png"
_SHOWN_CHAINS = (2, 4, 8)


def write_card(record: TrainingRecord, folder: Path) -> None:
    """Writes README.md and curves.png.

    Raises:
        StorageError: the disk is full or not writable.
    """
    with storage_errors(folder / CURVES):
        draw_curves(record.history, folder / CURVES)
    write_text(folder / CARD, card_text(record, folder.name))


def card_text(record: TrainingRecord, title: str) -> str:
    """The card as Markdown with the front matter that model hubs read."""
    parts = [
        _front_matter(record),
        f"# {title}\n",
        _summary(record),
        _held_out(record.stages),
        _prompts(record.prompts),
        f"![Loss, acceptance and tokens a round over the training steps]({CURVES})\n",
        _reproduce(record),
        _data(record),
    ]
    return "\n".join(part for part in parts if part)


def _front_matter(record: TrainingRecord) -> str:
    licence = record.target_licence or "other"
    tag = "draft-model" if record.kind == "draft" else "speculator"
    return f"---\nlicense: {licence}\nbase_model: {record.target_id}\ntags: [{tag}, speculative-decoding]\n---\n"


def _summary(record: TrainingRecord) -> str:
    bits = record.options["target_formats"]
    how = "as loaded"
    if bits is not None:
        how = f"with weights as stored in {bits['linear']} (embedding {bits['embedding']}, head {bits['lm_head']})"
    what, use = "A draft", "It has the target's tokens: use the target's tokenizer."
    if record.kind != "draft":
        what, use = "A head", "It reads that model's hidden states and drafts for it alone."
    return (
        f"{what} of {record.trained_parameters / 1e6:.1f}M parameters for speculative decoding with {record.target_id} "
        f"({record.target_parameters / 1e6:.0f}M parameters). {use}\n{record.description}, float16.\n\n"
        f"Distilled with {record.options['loss']} from the target's full next-token distribution, {how}"
        f"{_sha(record)}. Trained on {record.date} on {record.device} ({record.num_processes} process"
        f"{'es' if record.num_processes > 1 else ''}), {record.flops:.1e} floating-point operations.\n\n"
        + "".join(f"* {name}: {seconds:.0f} s\n" for name, seconds in record.seconds.items())
        + "".join(f"* stopped early: {stop}\n" for stop in record.stopped_early)
    )


def _sha(record: TrainingRecord) -> str:
    return f" (SHA-256 of its file {record.target_sha256})" if record.target_sha256 else ""


def _held_out(stages: tuple[StageSummary, ...]) -> str:
    lines = [
        "## Held-out text\n",
        "Teacher-forced. Sampled: sum min(p, q) at temperature 1; greedy: both argmax agree. Length: expected tokens a",
        "round of a drafted chain of K, the target's own token included.\n",
        "| text | tokens | loss, nats | sampled | greedy |"
        + "".join(f" greedy length, K = {k} |" for k in _SHOWN_CHAINS),
        "|---|---|---|---|---|" + "---|" * len(_SHOWN_CHAINS),
    ]
    for stage in stages:
        scores = stage.held_out
        lengths = " | ".join(f"{scores.greedy_lengths[k - 1]:.2f}" for k in _SHOWN_CHAINS)
        lines.append(
            f"| {stage.name} | {scores.num_tokens} | {stage.held_out_loss:.3f} "
            f"| {scores.sampled:.3f} | {scores.greedy:.3f} | {lengths} |"
        )
    lines.append("\nAcceptance of the k-th token of a chain, given the ones before it, k = 1 to 8:\n")
    for stage in stages:
        for name, depths in (("sampled", stage.held_out.sampled_by_depth), ("greedy", stage.held_out.greedy_by_depth)):
            lines.append(f"* {stage.name}, {name}: " + ", ".join(f"{value:.3f}" for value in depths))
    return "\n".join(lines) + "\n"


def _prompts(categories: tuple[CategoryScores, ...]) -> str:
    if not categories:
        return ""
    chains = [scores.chain for scores in categories[0].chains]
    lines = [
        "## Evaluation prompts\n",
        "Greedy drafting against the target's greedy answers. Rate: accepted / drafted; length: tokens a round.\n",
        "| category | prompts | tokens | agreement | " + " | ".join(f"K = {k}: rate, length" for k in chains) + " |",
        "|---|---|---|---|" + "---|" * len(chains),
    ]
    for row in categories:
        cells = " | ".join(f"{item.acceptance_rate:.3f}, {item.acceptance_length:.2f}" for item in row.chains)
        lines.append(f"| {row.category} | {row.num_prompts} | {row.num_tokens} | {row.agreement:.3f} | {cells} |")
    return "\n".join(lines) + "\n"


def _reproduce(record: TrainingRecord) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    return f"## How it was made\n\n```sh\n{record.command}\n```\n\nSeed {record.options['seed']}; {versions}.\n"


def _given(record: TrainingRecord) -> str:
    turns = record.options["user_turns"]
    return f"the user turns of {Path(turns).name} that fit, then to " if turns else ""


def _data(record: TrainingRecord) -> str:
    lines = ["## Data\n"]
    lines += [
        f"* {stage.name}: {stage.rows} rows of {stage.length} tokens for {stage.steps} steps, "
        f"{stage.held_out_rows} more rows held out"
        for stage in record.stages
    ]
    if record.self_written_tokens:
        writing = record.options["writing"]
        lines.append(
            f"* self_text is what the target wrote: {record.self_written_tokens} answer tokens at temperatures "
            f"{', '.join(str(value) for value in writing['temperatures'])}, to {_given(record)}user turns of its own "
            f"and, for a share of {writing['excerpt_share']}, to requests about excerpts of the text below; only "
            "answers are scored"
        )
    if record.options["earlier"]:
        names = ", ".join(Path(path).name for path in record.options["earlier"])
        lines.append(
            f"* only positions where none of {names} names the target's likeliest token were trained; the held-out "
            "scores are about such positions too"
        )
    if record.options["evaluation_prompts"]:
        lines.append(
            "* rows of text and conversations that share a run of 20 tokens with an evaluation prompt were left out"
        )
    lines += ["", "| file | bytes | licence | SHA-256 |", "|---|---|---|---|"]
    lines += [f"| {file.name} | {file.bytes} | {file.licence} | `{file.sha256}` |" for file in record.files]
    return "\n".join(lines) + "\n"
