"""Prompt lookup beside OpenVINO GenAI's, on prompts whose answers copy from them, interleaved in one run.

    python samples/bench_lookup.py BUNDLE --gguf FILE --openvino-python PYTHON [--prompts samples/copy_heavy.jsonl]

BUNDLE and FILE hold the same model. Both get the same token ids, threads and output lengths. OpenVINO's lookup runs
with each of --assistant-tokens drafted tokens; its best setting counts. Figures are tokens/s with the prompt's pass
left out, medians over prompts and rounds; each engine's speed-up is over its own plain decoding. The last line of
stdout is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from pilotfish import Engine

OURS = """
import json, sys
from pilotfish import Engine
model, threads, new, prompts, _ = sys.argv[1:]
speeds = {}
with Engine(model, threads=int(threads), max_context=4096) as engine:
    def run(ids, source):
        stats = engine.generate(ids, max_new_tokens=int(new), source=source, reuse_prefix=False).stats
        return (stats.num_new_tokens - 1) / (stats.draft_seconds + stats.verify_seconds + stats.other_seconds)
    for source in ("plain", "lookup", "auto"):
        run(json.loads(prompts)[0], source)
        speeds[source] = [run(ids, source) for ids in json.loads(prompts)]
print(json.dumps(speeds))
"""

OPENVINO = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, openvino as ov, openvino_genai as genai
model, threads, new, prompts, assistant = sys.argv[1:]
speeds = {}
for count in [0, *json.loads(assistant)]:
    options = {"INFERENCE_NUM_THREADS": int(threads), **({"prompt_lookup": True} if count else {})}
    pipe = genai.LLMPipeline(model, "CPU", **options)
    def run(ids):
        ids = np.array([ids], dtype=np.int64)
        config = genai.GenerationConfig(max_new_tokens=int(new), do_sample=False)
        if count:
            config.num_assistant_tokens, config.max_ngram_size = count, 3
        inputs = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
        metrics = pipe.generate(inputs, config).perf_metrics
        seconds = (metrics.get_generate_duration().mean - metrics.get_ttft().mean) / 1000
        return (metrics.get_num_generated_tokens() - 1) / seconds
    run(json.loads(prompts)[0])
    speeds[f"lookup {count}" if count else "plain"] = [run(ids) for ids in json.loads(prompts)]
print(json.dumps(speeds))
"""


def prompt_ids(bundle: Path, prompts: Path) -> str:
    """The prompts through the bundle's chat template, as JSON lists of ids."""
    with Engine(str(bundle)) as engine:
        lines = prompts.read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["prompt"] for line in lines]
        return json.dumps([engine.encode_chat([{"role": "user", "content": text}]) for text in texts])


def measure(python: str, code: str, model: Path, args: argparse.Namespace, ids: str) -> dict[str, list[float]]:
    """Tokens/s by mode and prompt, in a fresh process."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        command = [python, script.name, str(model), str(args.threads), str(args.new), ids, json.dumps(args.assistant)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    speeds: dict[str, list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return speeds


def main() -> int:
    """Parse, measure in turn, print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--gguf", type=Path, required=True)
    parser.add_argument("--openvino-python", required=True)
    parser.add_argument("--prompts", type=Path, default=Path(__file__).with_name("copy_heavy.jsonl"))
    parser.add_argument("--assistant-tokens", dest="assistant", type=int, nargs="+", default=[3, 5, 8])
    for name, default in (("threads", 2), ("new", 128), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    ids = prompt_ids(args.bundle, args.prompts)
    speeds: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        ours = measure(sys.executable, OURS, args.bundle, args, ids)
        theirs = measure(args.openvino_python, OPENVINO, args.gguf, args, ids)
        for engine, modes in (("pilotfish", ours), ("OpenVINO GenAI", theirs)):
            for mode, values in modes.items():
                speeds.setdefault(f"{engine} {mode}", []).extend(values)
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    for name, median in medians.items():
        plain = medians["pilotfish plain" if name.startswith("pilotfish") else "OpenVINO GenAI plain"]
        values = speeds[name]
        span = f"{median:7.1f} [{min(values):6.1f} .. {max(values):6.1f}]"
        print(f"{name:24} {span} tokens/s, {median / plain:.2f} x plain")
    print(json.dumps(medians))
    return 0


if __name__ == "__main__":
    sys.exit(main())
