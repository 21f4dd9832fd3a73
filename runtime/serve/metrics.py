"""What the server counts, and its text for Prometheus."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pilotfish.runtime import Stats

    from .models import Model

_WEIGHT_OF_LAST = 0.1  # of a generation in the mean of their times
_COUNTERS = {
    "num_generations": ("generations", "Generations that ended, cancelled ones too."),
    "num_prompt_tokens": ("prompt_tokens", "Tokens of prompts."),
    "num_prefilled_tokens": ("prefilled_tokens", "Tokens of prompts that the target ran; the others were cached."),
    "num_new_tokens": ("generated_tokens", "Tokens that were generated."),
    "num_drafted": ("drafted_tokens", "Tokens that were drafted."),
    "num_accepted": ("accepted_tokens", "Drafted tokens that were accepted."),
    "num_rounds": ("rounds", "Passes of the target that verify a generation's tokens."),
    "num_refused": ("refused", "Requests that met a full queue."),
}
_GAUGES = {
    "num_running": ("running", "Generations that run."),
    "num_waiting": ("waiting", "Generations that wait for a place."),
}


class Counters:
    """Of one scheduler's generations; one thread writes."""

    def __init__(self) -> None:
        """All are 0."""
        self.num_generations = 0
        self.num_prompt_tokens = 0
        self.num_prefilled_tokens = 0
        self.num_new_tokens = 0
        self.num_drafted = 0
        self.num_accepted = 0
        self.num_rounds = 0
        self.num_refused = 0
        self._mean_seconds: float | None = None

    def add(self, stats: Stats) -> None:
        """Count a generation that ended."""
        self.num_generations += 1
        self.num_prompt_tokens += stats.num_prompt_tokens
        self.num_prefilled_tokens += stats.num_prefilled_target
        self.num_new_tokens += stats.num_new_tokens
        self.num_drafted += stats.num_drafted
        self.num_accepted += stats.num_accepted
        self.num_rounds += stats.num_rounds
        seconds = stats.prefill_seconds + stats.decode_seconds
        mean = seconds if self._mean_seconds is None else self._mean_seconds
        self._mean_seconds = mean + _WEIGHT_OF_LAST * (seconds - mean)

    def seconds_of_one(self, default: float) -> float:
        """How long a generation took lately; ``default`` if none has ended."""
        return default if self._mean_seconds is None else self._mean_seconds


class Requests:
    """Answers by path and status, and the time until their end."""

    def __init__(self) -> None:
        """None yet."""
        self.counts: Counter[tuple[str, int]] = Counter()
        self.seconds: Counter[str] = Counter()

    def add(self, path: str, status: int, seconds: float) -> None:
        """Count an answer."""
        self.counts[path, status] += 1
        self.seconds[path] += seconds  # type: ignore[assignment]  # a Counter counts anything


def metrics_text(requests: Requests, models: Sequence[Model]) -> str:
    """All metrics in Prometheus' text format."""
    lines: list[str] = []
    for kind, names in (("counter", _COUNTERS), ("gauge", _GAUGES)):
        for attribute, (name, text) in names.items():
            suffix = "_total" if kind == "counter" else ""
            values = {
                _labels(model=model.name): getattr(
                    model.scheduler.counters if kind == "counter" else model.scheduler, attribute
                )
                for model in models
            }
            lines += _metric(f"pilotfish_{name}{suffix}", kind, text, values)
    counts = {
        _labels(path=path, status=str(status)): number for (path, status), number in sorted(requests.counts.items())
    }
    lines += _metric("pilotfish_requests_total", "counter", "Answers, by path and status.", counts)
    seconds = {_labels(path=path): round(total, 6) for path, total in sorted(requests.seconds.items())}
    lines += _metric("pilotfish_request_seconds_total", "counter", "Time from request to the answer's end.", seconds)
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str, values: Mapping[str, float]) -> Iterable[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{labels} {value}"


def _labels(**values: str) -> str:
    escaped = {
        name: value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n") for name, value in values.items()
    }
    return "{" + ",".join(f'{name}="{value}"' for name, value in escaped.items()) + "}"
