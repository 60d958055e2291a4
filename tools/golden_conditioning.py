#!/usr/bin/env python3
"""How much a golden network amplifies rounding, by evaluating it with numpy in single and double
precision. Prints, for each hidden state, the largest difference over its root mean square.

usage: tools/golden_conditioning.py gemma4-dense|gemma4-e|gemma4-e4   (needs numpy)

Written from the equations, independently of the C++ code: also a second opinion on them.
"""

import json
import pathlib
import struct
import sys

import numpy as np

NETWORKS = pathlib.Path(__file__).resolve().parent.parent / "tests/data/networks"
DTYPES = {"F32": np.float32, "I32": np.int32, "I64": np.int64}


def load_safetensors(path):
    raw = path.read_bytes()
    (header_size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + header_size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + header_size + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(raw[begin:end], np.uint16).astype(np.uint32) << 16)
            values = values.view(np.float32)
        else:
            values = np.frombuffer(raw[begin:end], DTYPES[entry["dtype"]])
        tensors[name] = values.reshape(entry["shape"])
    return tensors


class Network:
    """A dense or E network of Gemma 4 in one floating point type."""

    def __init__(self, config, weights, dtype):
        self.config = config
        self.weights = weights
        self.dtype = dtype

    def weight(self, name):
        return self.weights["model." + name].astype(self.dtype)

    def norm(self, x, name=None):
        y = x * ((x * x).mean(-1, keepdims=True) + self.dtype(1e-6)) ** self.dtype(-0.5)
        return y if name is None else y * self.weight(name)

    def gelu(self, x):
        inner = self.dtype(np.sqrt(2 / np.pi)) * (x + self.dtype(0.044715) * x**3)
        return self.dtype(0.5) * x * (1 + np.tanh(inner))

    def rope(self, x, sliding):
        half = x.shape[-1] // 2
        rotated = half if sliding else int(0.25 * half)
        theta = 1e4 if sliding else 1e6
        frequencies = np.zeros(half, np.float32)
        exponents = np.arange(0, 2 * rotated, 2, dtype=np.float32) / np.float32(2 * half)
        frequencies[:rotated] = 1 / theta**exponents
        angles = np.arange(x.shape[0], dtype=np.float32)[:, None] * frequencies
        cos = np.cos(angles.astype(self.dtype))[:, None]
        sin = np.sin(angles.astype(self.dtype))[:, None]
        low, high = x[..., :half], x[..., half:]
        return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)

    def attention(self, a, layer, stored):
        prefix = f"layers.{layer}.self_attn."
        sliding = self.config["layer_types"][layer] == "sliding_attention"
        head_dim = self.config["head_dim" if sliding else "global_head_dim"]
        rows = a.shape[0]

        def heads(name):
            return (a @ self.weight(prefix + name).T).reshape(rows, -1, head_dim)

        q = self.rope(self.norm(heads("q_proj.weight"), prefix + "q_norm.weight"), sliding)
        first_shared = self.config["num_hidden_layers"] - self.config["num_kv_shared_layers"]
        if layer < first_shared:
            raw_k = heads("k_proj.weight")
            has_v = "model." + prefix + "v_proj.weight" in self.weights
            raw_v = heads("v_proj.weight") if has_v else raw_k
            k = self.rope(self.norm(raw_k, prefix + "k_norm.weight"), sliding)
            stored[sliding] = k, self.norm(raw_v)
        k, v = stored[sliding]
        distance = np.arange(rows)[:, None] - np.arange(rows)[None]
        visible = distance >= 0
        if sliding:
            visible &= distance < self.config["sliding_window"]
        group = q.shape[1] // k.shape[1]
        out = np.zeros_like(q)
        for head in range(q.shape[1]):
            scores = np.where(visible, q[:, head] @ k[:, head // group].T, -np.inf)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = p / p.sum(-1, keepdims=True) @ v[:, head // group]
        return out.reshape(rows, -1) @ self.weight(prefix + "o_proj.weight").T

    def per_layer_inputs(self, x, ids):
        layers = self.config["num_hidden_layers"]
        width = self.config["hidden_size_per_layer_input"]
        table = self.weight("embed_tokens_per_layer.weight")[ids].reshape(len(ids), layers, width)
        context = x @ self.weight("per_layer_model_projection.weight").T
        context = context * self.dtype(self.config["hidden_size"] ** -0.5)
        context = self.norm(context.reshape(table.shape), "per_layer_projection_norm.weight")
        return (context + table * self.dtype(width**0.5)) * self.dtype(2**-0.5)

    def hidden_states(self, ids, perturbation=0.0):
        scale = self.dtype(np.float32(self.config["hidden_size"] ** 0.5))
        x = self.weight("embed_tokens.weight")[ids] * scale
        noise = np.random.default_rng(0).standard_normal(x.shape)
        x = (x * (1 + perturbation * noise)).astype(self.dtype)
        states, stored = [x], {}
        is_e_model = self.config["hidden_size_per_layer_input"] > 0
        per_layer = self.per_layer_inputs(x, ids) if is_e_model else None
        for layer in range(self.config["num_hidden_layers"]):
            p = f"layers.{layer}."
            attended = self.attention(self.norm(x, p + "input_layernorm.weight"), layer, stored)
            x = x + self.norm(attended, p + "post_attention_layernorm.weight")
            z = self.norm(x, p + "pre_feedforward_layernorm.weight")
            gate = self.gelu(z @ self.weight(p + "mlp.gate_proj.weight").T)
            hidden = gate * (z @ self.weight(p + "mlp.up_proj.weight").T)
            mlp = hidden @ self.weight(p + "mlp.down_proj.weight").T
            x = x + self.norm(mlp, p + "post_feedforward_layernorm.weight")
            if is_e_model:
                gate = self.gelu(x @ self.weight(p + "per_layer_input_gate.weight").T)
                added = (gate * per_layer[:, layer]) @ self.weight(p + "per_layer_projection.weight").T
                x = x + self.norm(added, p + "post_per_layer_input_norm.weight")
            x = x * self.weight(p + "layer_scalar")
            states.append(x)
        states[-1] = self.norm(x, "norm.weight")
        return np.array(states)


def main():
    folder = NETWORKS / sys.argv[1]
    config = json.loads((folder / "config.json").read_text())
    weights = load_safetensors(folder / "model.safetensors")
    golden = load_safetensors(folder / "golden.safetensors")
    ids = golden["input_ids"]
    expected = golden["hidden_states"].astype(np.float64)
    double = Network(config, weights, np.float64)
    exact = double.hidden_states(ids)
    rows = {
        "golden - exact": expected,
        "numpy f32 - exact": Network(config, weights, np.float32).hidden_states(ids),
        "embedding moved by 6e-8 - exact": double.hidden_states(ids, 6e-8),
    }
    scale = np.sqrt((expected**2).mean(axis=(1, 2)))
    for name, states in rows.items():
        distance = np.abs(states - exact).max(axis=(1, 2)) / scale
        print(f"{name:32}", " ".join(f"{value:.1e}" for value in distance))


if __name__ == "__main__":
    main()
