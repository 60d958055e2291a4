#!/usr/bin/env python3
"""Writes tests/data/quantized/mlx_models.json: what mlx-lm makes of the demo model and of the small networks.

    pip install "mlx[cpu]==0.32.4" mlx-lm==0.32.2
    python3 tools/make_mlx_goldens.py

For each case: `source`, a folder of this repository; `wrapped`, whether its config.json is put into the
`text_config` of a multimodal one; `bits` and `group_size`; `quantization`, as it is in the configuration
that mlx-lm writes; `tensors`, each with its dtype, its shape and the first 16 digits of the SHA-256 of
its bytes. Models go through mlx-lm's own renaming and quantisation. mlx-lm has no drafters: each matrix
of one goes through mlx.core.quantize under its own name.
"""
import hashlib
import json
import pathlib

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes, quantize_model

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/quantized/mlx_models.json"
NAMES = {mx.uint32: "U32", mx.bfloat16: "BF16", mx.float32: "F32", mx.float16: "F16"}

# Source, wrapped, bits, group size.
CASES = [
    ("models/demo", False, 4, 64),
    ("tests/data/networks/gemma4-moe", True, 3, 32),
    ("tests/data/networks/gemma4-moe-edge", False, 8, 64),
    ("tests/data/networks/gemma4-e", True, 5, 32),
    ("tests/data/networks/qwen3-untied", False, 6, 64),
    ("models/demo/drafter", False, 4, 32),
]


def describe(array):
    raw = np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)
    digest = hashlib.sha256(np.ascontiguousarray(raw).tobytes()).hexdigest()
    return [NAMES[array.dtype], list(array.shape), digest[:16]]


def quantized_model(config, weights, wrapped, bits, group_size):
    if wrapped:
        config = {"model_type": "gemma4", "vocab_size": config["vocab_size"], "text_config": config}
        weights = {"model.language_model." + name.removeprefix("model."): array for name, array in weights.items()}
    model_class, args_class = _get_classes(config)
    model = model_class(args_class.from_dict(config))
    model.load_weights(list(model.sanitize(weights).items()), strict=True)
    model, config = quantize_model(model, config, group_size, bits)
    return dict(tree_flatten(model.parameters())), config["quantization"]


def quantized_drafter(weights, bits, group_size):
    tensors = {}
    for name, array in weights.items():
        if array.ndim < 2:
            tensors[name] = array
            continue
        codes, scales, biases = mx.quantize(array, group_size=group_size, bits=bits)
        stem = name.removesuffix(".weight")
        tensors |= {name: codes, stem + ".scales": scales, stem + ".biases": biases}
    return tensors, {"group_size": group_size, "bits": bits, "mode": "affine"}


def main():
    mx.set_default_device(mx.cpu)
    lines = []
    for source, wrapped, bits, group_size in CASES:
        config = json.loads((ROOT / source / "config.json").read_text())
        weights = mx.load(str(ROOT / source / "model.safetensors"))
        if "dflash_config" in config:
            tensors, quantization = quantized_drafter(weights, bits, group_size)
        else:
            tensors, quantization = quantized_model(config, weights, wrapped, bits, group_size)
        lines.append(json.dumps({
            "source": source, "wrapped": wrapped, "bits": bits, "group_size": group_size,
            "quantization": quantization,
            "tensors": {name: describe(tensors[name]) for name in sorted(tensors)}}))
    OUT.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
