"""Packs a head (a folder that `pilotfish train` wrote) into 8 or 4 bits: python samples/pack_head.py HEAD OUT [FORMAT].

FORMAT int8: matrices become int8 with an f16 scale for 32 columns beside them (X and X_scale, as compressed-tensors
names them). int4_asym: two codes a byte, the first in the lower half, with scales and offsets (X_scale, X_offset).
`pilotfish export --head OUT --head-format FORMAT` stores just these integers again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from pilotfish.exporter.quantise import quantise

_QUANTISATION = {
    "int8": {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32},
            }
        },
    },
    "int4_asym": {"quant_method": "pilotfish", "format": "int4_asym", "group_size": 32},
}


def main(head: Path, out: Path, weight_format: str = "int8") -> None:
    """Writes the folder `out` and prints its size."""
    if weight_format not in _QUANTISATION:
        raise SystemExit(f"FORMAT is {weight_format}; choose {' or '.join(_QUANTISATION)}")
    stored: dict[str, torch.Tensor] = {}
    for name, tensor in load_file(head / "model.safetensors").items():
        if tensor.ndim != 2 or not tensor.is_floating_point():  # noqa: PLR2004 - a matrix
            stored[name] = tensor
            continue
        packed = quantise(tensor.float().numpy(), weight_format)
        codes = torch.from_numpy(packed.codes)
        if packed.offset is not None:
            codes = (codes[:, ::2] | codes[:, 1::2] << 4).view(torch.uint8)
            stored[f"{name}_offset"] = torch.from_numpy(packed.offset)
        stored[name], stored[f"{name}_scale"] = codes, torch.from_numpy(packed.scale)
    out.mkdir(parents=True, exist_ok=True)
    save_file(stored, out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((head / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = _QUANTISATION[weight_format]
    (out / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    print(f"{out}: {sum(path.stat().st_size for path in out.iterdir()) / 1e6:.2f} MB")


if __name__ == "__main__":
    if len(sys.argv) not in {3, 4}:
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
