"""Packs a head (a folder that `pilotfish train` wrote) into 8 bits: python samples/pack_head.py HEAD OUT.

Matrices become int8 with an f16 scale for 32 columns beside them (X and X_scale, as compressed-tensors names them);
`pilotfish export HEAD --head-format int8` stores just these integers again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from pilotfish.exporter.quantise import quantise


def main(head: Path, out: Path) -> None:
    """Writes the folder `out` and prints its size."""
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(head / "model.safetensors").items():
        if tensor.ndim == 2 and tensor.is_floating_point():  # noqa: PLR2004 - a matrix
            packed = quantise(tensor.float().numpy(), "int8")
            stored[name], stored[f"{name}_scale"] = torch.from_numpy(packed.codes), torch.from_numpy(packed.scale)
        else:
            stored[name] = tensor
    out.mkdir(parents=True, exist_ok=True)
    save_file(stored, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((head / "config.json").read_text(encoding="utf-8"))
    weights = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": groups,
    }
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{out}: {sum(path.stat().st_size for path in out.iterdir()) / 1e6:.2f} MB")


if __name__ == "__main__":
    if len(sys.argv) != 3:  # noqa: PLR2004 - program, head, out
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
