#!/usr/bin/env python3
"""Makes tests/data/train/projection-losses.safetensors: rows of a few layers, and the losses that projections are
trained on, in double precision.

usage: tools/golden_projection_losses.py   (needs numpy)

Written from the definitions of the first project, with a loop over layers, heads and rows, independently of the C++
code (train/projection_losses.h). Layers have other numbers of heads and other widths, and rows of other sizes, so that what
is averaged over what shows. One vector of the last layer is made as zeros.

Attention is that of three layers: with and without a window, with a norm of values and without, groups of query heads of
several sizes, and some pairs that do not turn.
"""

import pathlib

import numpy as np

from golden_restore import save_safetensors

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = 7
LAYERS = ((2, 8, 1.0), (1, 16, 5.0), (4, 4, 0.2))  # heads, elements, size of the numbers
FLOOR = 1e-6  # of relmse's denominators
SHARE = 0.1  # of the squares in combined, and of lengths in attn_distill_hybrid
# Of each layer: query heads, pairs that turn, window (0: none), scale of scores, whether values are normed.
ATTENTION = ((4, 2, 0, 1.0, True), (3, 8, 3, 0.25, False), (4, 1, 5, 0.5, True))
HIDDEN = 10
EPSILON = 1e-6


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


def unit(vector):
    return vector / np.sqrt(np.mean(vector**2) + EPSILON)


def normed(rows, attention, name):
    """The vectors of rows [T, K, E] as attention norms them."""
    result = rows.copy()
    for t in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            if name == "keys":
                result[t, k] = unit(rows[t, k]) * attention["k_norm"]
            elif attention["normalise_values"]:
                result[t, k] = unit(rows[t, k])
    return result


def turn(vector, position, frequencies):
    result, half = vector.copy(), len(vector) // 2
    for i, frequency in enumerate(frequencies):
        cos, sin = np.cos(position * frequency), np.sin(position * frequency)
        result[i] = vector[i] * cos - vector[i + half] * sin
        result[i + half] = vector[i + half] * cos + vector[i] * sin
    return result


def attend(attention, raw_keys, raw_values):
    keys, values = normed(raw_keys, attention, "keys"), normed(raw_values, attention, "values")
    heads, group = attention["queries"].shape[1], attention["queries"].shape[1] // raw_keys.shape[1]
    outputs = []
    for t in range(ROWS):
        taken = []
        first = max(0, t - attention["window"] + 1) if attention["window"] else 0
        for h in range(heads):
            scores = [attention["scale"] * (attention["queries"][t, h]
                                            @ turn(keys[s, h // group], s, attention["frequencies"]))
                      for s in range(first, t + 1)]
            shares = np.exp(np.array(scores) - max(scores))
            shares /= shares.sum()
            taken.append(sum(share * values[first + i, h // group] for i, share in enumerate(shares)))
        outputs.append(attention["o_proj"] @ np.concatenate(taken))
    return np.array(outputs)


def output_error(layer, attention):
    return squares(attend(attention, layer["made_keys"], layer["made_values"]), attention["outputs"])


def vector_error(layer, attention):
    return sum(direction(normed(layer["made_" + name], attention, name), normed(layer[name], attention, name))
               + SHARE * magnitude(layer["made_" + name], layer[name]) for name in ("keys", "values"))


def make_attention(rng, layers):
    made = []
    for layer, (heads, pairs, window, scale, normalise) in zip(layers, ATTENTION, strict=True):
        elements = layer["keys"].shape[2]
        attention = {"queries": rng.standard_normal((ROWS, heads, elements)),
                     "k_norm": 1.0 + 0.3 * rng.standard_normal(elements),
                     "o_proj": rng.standard_normal((HIDDEN, heads * elements)) / np.sqrt(heads * elements),
                     "frequencies": 0.7 ** np.arange(pairs),
                     "window": window, "scale": scale, "normalise_values": normalise}
        for name in ("queries", "k_norm", "o_proj", "frequencies"):
            attention[name] = attention[name].astype(np.float32).astype(np.float64)
        # Not what the keys and values give, so that what is compared with what shows.
        exact = attend(attention, *(layer[name].astype(np.float64) for name in ("keys", "values")))
        attention["outputs"] = (exact + 0.1 * rng.standard_normal(exact.shape)).astype(np.float32).astype(np.float64)
        made.append(attention)
    return made


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
    rng = np.random.default_rng(17)
    layers = make_rows(rng)
    attentions = make_attention(rng, layers)
    tensors = {f"{i}.{name}": rows for i, layer in enumerate(layers) for name, rows in layer.items()}
    for loss, term in TERMS.items():
        sides = [term(layer["made_" + name].astype(np.float64), layer[name].astype(np.float64))
                 for layer in layers for name in ("keys", "values")]
        value = sum(sides) / (2 * len(layers))
        tensors[f"loss.{loss}"] = np.array([value], np.float32)
        print(f"{loss:<19} {value:.9f}")
    exact = [{name: rows.astype(np.float64) for name, rows in layer.items()} for layer in layers]
    outputs = np.mean([output_error(*pair) for pair in zip(exact, attentions, strict=True)])
    vectors_too = outputs + np.mean([vector_error(*pair) for pair in zip(exact, attentions, strict=True)])
    for loss, value in (("attn_distill", outputs), ("attn_distill_hybrid", vectors_too)):
        tensors[f"loss.{loss}"] = np.array([value], np.float32)
        print(f"{loss:<19} {value:.9f}")
    for i, attention in enumerate(attentions):
        for name in ("queries", "k_norm", "o_proj", "frequencies", "outputs"):
            tensors[f"{i}.{name}"] = attention[name].astype(np.float32)
    save_safetensors(ROOT / "tests/data/train/projection-losses.safetensors", tensors)


if __name__ == "__main__":
    main()
