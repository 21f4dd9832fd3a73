"""How near "auto" comes to the best chain: python tests/gpu/acceptance_pairs.py SHAPE FOLDER STD...

Makes the random pair of a shape (random_bundle.py: real compute, made-up text) once for each standard deviation of the
target's embedding, which decides the acceptance, and lets samples/search_settings.py answer random prompts on each.
Made once, a bundle is used again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import random_bundle

CHUNK = 1 << 24
PROMPT_TOKENS = 100
NUM_PROMPTS = 3
SEARCH = Path(__file__).parents[2] / "samples" / "search_settings.py"


def copy_with_std(base: Path, folder: Path, shape: random_bundle.Shape, std: float) -> None:
    """The bundle `base` with another embedding of the target, which is the first of its tensors."""
    folder.mkdir(parents=True)
    for name in ("draft.bin", "draft.onnx", "target.onnx", "tokenizer.json"):
        shutil.copy(base / name, folder / name)
    manifest = json.loads((base / "manifest.json").read_text())
    rng = np.random.Generator(np.random.SFC64(random_bundle.TARGET_SEED))
    embedding = rng.standard_normal((shape.vocabulary, shape.hidden), dtype=np.float32) * std
    packed = random_bundle.pack_rows(embedding, shape.ends).tobytes()
    digest = hashlib.sha256(packed)
    with (base / "target.bin").open("rb") as source, (folder / "target.bin").open("wb") as target:
        target.write(packed)
        source.seek(len(packed))
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            target.write(chunk)
    manifest["models"]["target"]["weights"]["sha256"] = digest.hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def write_prompts(path: Path, vocabulary: int) -> None:
    """Random words of the bundle's tokenizer."""
    numbers = random.Random(1)
    words = [[f"w{numbers.randrange(2, vocabulary)}" for _ in range(PROMPT_TOKENS)] for _ in range(NUM_PROMPTS)]
    path.write_text("".join(json.dumps({"category": "random", "prompt": " ".join(each)}) + "\n" for each in words))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=sorted(random_bundle.PAIRS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("std", type=float, nargs="+")
    args = parser.parse_args()
    shape = random_bundle.PAIRS[args.shape][0]
    folders = [args.folder / f"{args.shape}-{std}" for std in args.std]
    if not (folders[0] / "manifest.json").exists():
        make = [sys.executable, str(Path(random_bundle.__file__)), args.shape, str(folders[0])]
        subprocess.run([*make, "--std", str(args.std[0])], check=True)
    prompts = args.folder / f"{args.shape}-prompts.jsonl"
    write_prompts(prompts, shape.vocabulary)
    for std, folder in zip(args.std, folders, strict=True):
        if not (folder / "manifest.json").exists():
            copy_with_std(folders[0], folder, shape, std)
        sys.stdout.write(f"\n{args.shape}, std {std}\n")
        sys.stdout.flush()
        search = [sys.executable, str(SEARCH), str(folder), "--prompts", str(prompts), "--device", "cuda", "--chains"]
        subprocess.run([*search, "--new-tokens", "96", "--calibration", "refresh"], check=True)


if __name__ == "__main__":
    main()
