"""A GGUF file as a checkpoint folder, for the model builder of ONNX Runtime GenAI: python to_checkpoint.py GGUF FOLDER.

The builder reads GGUF files of float16 and float32 alone. Its int4 weights are therefore quantised anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers

gguf, folder = Path(sys.argv[1]), sys.argv[2]
for kind, options in ((transformers.AutoModelForCausalLM, {"dtype": torch.float32}), (transformers.AutoTokenizer, {})):
    kind.from_pretrained(gguf.parent, gguf_file=gguf.name, **options).save_pretrained(folder)
