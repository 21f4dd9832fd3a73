"""A GGUF file as a checkpoint folder, for the model builder of ONNX Runtime GenAI: python to_checkpoint.py GGUF FOLDER.

The builder reads GGUF files of float16 and float32 alone. Its int4 weights are therefore quantised anew.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers

gguf, folder = Path(sys.argv[1]), sys.argv[2]
read = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
config = read.config
if hasattr(config, "quantization_config"):  # transformers refuses to save what says that it was quantised
    del config.quantization_config
model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
model.load_state_dict(read.state_dict())
model.save_pretrained(folder)
transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
