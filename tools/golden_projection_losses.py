#!/usr/bin/env python3
"""Makes tests/data/train/projection-losses.safetensors: rows of a few layers, and the losses that projections are
trained on, in double precision.

usage: tools/golden_projection_losses.py   (needs numpy)

Written from the definitions of the first project, with a loop over layers, heads and rows, independently of the C++
code (train/projection_losses.h). Layers have other numbers of heads and other widths, and rows of other sizes, so that what
is averaged over what shows. One vector of the last layer is made as zeros.
"""

import pathlib

import numpy as np

from golden_restore import save_safetensors

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = 7
LAYERS = ((2, 8, 1.0), (1, 16, 5.0), (4, 4, 0.2))  # heads, elements, size of the numbers
FLOOR = 1e-6  # of relmse's denominators
SHARE = 0.1  # of the squares in combined


def vectors(rows):
    """Every head's vector of rows [T, K, E]."""
    return [rows[t, k] for t in range(rows.shape[0]) for k in range(rows.shape[1])]


def squares(made, wanted):
    return float(np.mean((made - wanted) ** 2))


def cosine(a, b):
    lengths = np.sqrt(a @ a) * np.sqrt(b @ b)
    return 0.0 if lengths == 0.0 else float(a @ b / lengths)


def direction(made, wanted):
    pairs = list(zip(vectors(made), vectors(wanted), strict=True))
    return 1.0 - sum(cosine(a, b) for a, b in pairs) / len(pairs)


def magnitude(made, wanted):
    pairs = list(zip(vectors(made), vectors(wanted), strict=True))
    difference = sum((np.sqrt(a @ a) - np.sqrt(b @ b)) ** 2 for a, b in pairs) / len(pairs)
    return float(difference / (sum(b @ b for _, b in pairs) / len(pairs)))


TERMS = {
    "mse": squares,
    "relmse": lambda made, wanted: squares(made, wanted) / (float(np.mean(wanted**2)) + FLOOR),
    "cos_mag": lambda made, wanted: direction(made, wanted) + magnitude(made, wanted),
    "combined": lambda made, wanted: (direction(made, wanted) + magnitude(made, wanted)
                                      + SHARE * squares(made, wanted) / float(np.var(wanted))),
}


def make_rows(rng):
    layers = []
    for heads, elements, size in LAYERS:
        layer = {}
        for name in ("keys", "values"):
            wanted = size * (rng.standard_normal((ROWS, heads, elements)) + 0.5)
            made = 0.8 * wanted + 0.4 * size * rng.standard_normal(wanted.shape)
            layer[name], layer["made_" + name] = wanted.astype(np.float32), made.astype(np.float32)
        layers.append(layer)
    layers[-1]["made_keys"][3, 1] = 0.0
    return layers


def main():
    layers = make_rows(np.random.default_rng(17))
    tensors = {f"{i}.{name}": rows for i, layer in enumerate(layers) for name, rows in layer.items()}
    for loss, term in TERMS.items():
        sides = [term(layer["made_" + name].astype(np.float64), layer[name].astype(np.float64))
                 for layer in layers for name in ("keys", "values")]
        value = sum(sides) / (2 * len(layers))
        tensors[f"loss.{loss}"] = np.array([value], np.float32)
        print(f"{loss:<9} {value:.9f}")
    save_safetensors(ROOT / "tests/data/train/projection-losses.safetensors", tensors)


if __name__ == "__main__":
    main()
