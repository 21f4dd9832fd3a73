"""Prompt lookup on prompts whose answers copy from them; on the CPU also beside OpenVINO GenAI's, interleaved.

    python samples/bench_lookup.py BUNDLE --gguf FILE --openvino-python PYTHON [--prompts samples/copy_heavy.jsonl]
    python samples/bench_lookup.py BUNDLE --device cuda

BUNDLE and FILE hold the same model. Both get the same token ids, threads and output lengths. OpenVINO's lookup runs
with each of --assistant-tokens drafted tokens; its best setting counts. Figures are tokens/s with the prompt's pass
left out, medians over prompts and rounds; each engine's speed-up is over its own plain decoding. The first prompt is
answered twice before, as a GPU records shapes of passes when it first sees them. The last line of stdout is JSON.
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
model, threads, new, prompts, device = sys.argv[1:]
speeds = {}
with Engine(model, threads=int(threads), max_context=4096, device=json.loads(device)) as engine:
    def run(ids, source):
        stats = engine.generate(ids, max_new_tokens=int(new), source=source, reuse_prefix=False).stats
        return (stats.num_new_tokens - 1) / (stats.draft_seconds + stats.verify_seconds + stats.other_seconds)
    for source in ("plain", "lookup", "auto"):
        for _ in range(2):
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


def prompt_ids(bundle: Path, prompts: Path) -> list[list[int]]:
    """The prompts' ids through the bundle's chat template."""
    with Engine(str(bundle), calibration="off") as engine:
        with prompts.open(encoding="utf-8") as lines:
            texts = [json.loads(line)["prompt"] for line in lines]
        return [engine.encode_chat([{"role": "user", "content": text}]) for text in texts]


def measure(engine: tuple[str, str], model: Path, args: argparse.Namespace, *last: object) -> dict[str, list[float]]:
    """Tokens/s by mode and prompt, in a fresh process of the engine's Python and code, which gets `last` last."""
    python, code = engine
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(code)
        script.flush()
        command = [python, script.name, str(model), str(args.threads), str(args.new), *map(json.dumps, last)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    speeds: dict[str, list[float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return speeds


def main() -> int:
    """Parse, measure in turn, print a table and JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--gguf", type=Path)
    parser.add_argument("--openvino-python", help="without it there is no comparison")
    parser.add_argument("--prompts", type=Path, default=Path(__file__).with_name("copy_heavy.jsonl"))
    parser.add_argument("--assistant-tokens", dest="assistant", type=int, nargs="+", default=[3, 5, 8])
    for name, default in (("threads", 2), ("new", 128), ("rounds", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    if args.openvino_python and not args.gguf:
        parser.error("--openvino-python needs --gguf")
    ids = prompt_ids(args.bundle, args.prompts)
    speeds: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        found = {"pilotfish": measure((sys.executable, OURS), args.bundle, args, ids, args.device)}
        if args.openvino_python:
            theirs = (args.openvino_python, OPENVINO)
            found["OpenVINO GenAI"] = measure(theirs, args.gguf, args, ids, args.assistant)
        for engine, modes in found.items():
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
