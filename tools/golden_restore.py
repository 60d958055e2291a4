#!/usr/bin/env python3
"""Makes tests/data/restore/golden.safetensors: logits of the demo model in which rows that left the
window are restored by a projection, evaluated with numpy in double precision.

usage: tools/golden_restore.py   (needs numpy)

Written from the equations, independently of the C++ code. A row p is restored for a query q if
SINK <= p <= q - WINDOW; its features are of the same, restored run. Checks itself first: without
restoring, the logits must be those that another implementation gave (models/demo/golden).
"""

import json
import pathlib
import struct

import numpy as np

from golden_conditioning import load_safetensors

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEMO = ROOT / "models/demo"
SINK, WINDOW, TOKENS = 4, 32, 160
ROWS = [40, 101, 159]


def norm(x, weight=None):
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    return y if weight is None else y * weight


def rope(x, first, theta, rotated):
    """Turns heads [T, H, E] of positions first ...; `rotated` of the E / 2 pairs turn."""
    half = x.shape[-1] // 2
    frequencies = np.zeros(half, np.float32)
    exponents = -2.0 * np.arange(rotated) / (2 * half)
    frequencies[:rotated] = (theta**exponents).astype(np.float32)
    positions = np.arange(first, first + x.shape[0], dtype=np.float32)
    angles = (positions[:, None] * frequencies).astype(np.float64)[:, None]
    cos, sin = np.cos(angles), np.sin(angles)
    low, high = x[..., :half], x[..., half:]
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], -1)


def softmax(scores):
    p = np.exp(scores - scores.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


class Drafter:
    """The projections of the drafter's context features."""

    def __init__(self):
        folder = DEMO / "drafter"
        self.config = json.loads((folder / "config.json").read_text())
        self.w = {k: v.astype(np.float64)
                  for k, v in load_safetensors(folder / "model.safetensors").items()}

    def project(self, layer, x):
        p = f"layers.{layer}.self_attn."
        return x @ self.w[p + "k_proj.weight"].T, x @ self.w[p + "v_proj.weight"].T

    def context_features(self, taps):
        x = norm(taps @ self.w["fc.weight"].T, self.w["hidden_norm.weight"])
        projected = [self.project(layer, x) for layer in range(self.config["num_hidden_layers"])]
        return [np.concatenate(side, -1) for side in zip(*projected)]


class Target:
    """The demo model, run in blocks of WINDOW tokens; `restored` layer types lose their old rows."""

    def __init__(self, projection=None, restored=()):
        self.config = json.loads((DEMO / "config.json").read_text())
        weights = load_safetensors(DEMO / "model.safetensors")
        self.w = {k.removeprefix("model."): v.astype(np.float64) for k, v in weights.items()}
        self.restored = restored
        self.drafter = Drafter()
        self.layers = [{"k": [], "v": []} for _ in self.config["layer_types"]]
        self.codes = ([], [])
        if projection:
            folder = DEMO / "projections" / projection
            self.features = json.loads((folder / "f_theta_config.json").read_text())["features"]
            self.f = {k: v.astype(np.float64)
                      for k, v in load_safetensors(folder / "model.safetensors").items()}

    def shape(self, layer):
        """Head dimension, RoPE theta and the pairs that turn."""
        c = self.config
        if c["layer_types"][layer] == "sliding_attention":
            return c["head_dim"], 1e4, c["head_dim"] // 2
        return c["global_head_dim"], 1e6, int(0.25 * c["global_head_dim"] / 2)

    def expand(self, layer):
        """Keys and values of all positions that have a code, as the layer would store them."""
        head_dim, theta, rotated = self.shape(layer)
        sides = []
        for side, codes in zip("kv", self.codes):
            raw = np.array(codes) @ self.f[f"decoders_{side}.{layer}.weight"].T
            sides.append(raw.reshape(len(raw), -1, head_dim))
        k = norm(sides[0], self.w[f"layers.{layer}.self_attn.k_norm.weight"])
        return rope(k, 0, theta, rotated), norm(sides[1])

    def attention(self, a, layer, first):
        p = f"layers.{layer}.self_attn."
        head_dim, theta, rotated = self.shape(layer)

        def heads(name):
            return (a @ self.w[p + name].T).reshape(len(a), -1, head_dim)

        q = rope(norm(heads("q_proj.weight"), self.w[p + "q_norm.weight"]), first, theta, rotated)
        raw_k = heads("k_proj.weight")
        raw_v = heads("v_proj.weight") if p + "v_proj.weight" in self.w else raw_k
        held = self.layers[layer]
        held["k"].extend(rope(norm(raw_k, self.w[p + "k_norm.weight"]), first, theta, rotated))
        held["v"].extend(norm(raw_v))
        k, v = np.array(held["k"]), np.array(held["v"])
        positions = np.arange(len(k))[None]
        distance = np.arange(first, first + len(a))[:, None] - positions
        visible = distance >= 0
        kind = self.config["layer_types"][layer]
        if kind == "sliding_attention":
            visible &= distance < self.config["sliding_window"]
        evicted = np.zeros_like(visible)
        k_hat, v_hat = k, v
        if kind in self.restored and self.codes[0]:
            evicted = (positions >= SINK) & (distance >= WINDOW)
            k_hat, v_hat = (np.concatenate([hat, own[len(hat):]])
                            for hat, own in zip(self.expand(layer), (k, v)))
        group = q.shape[1] // k.shape[1]
        out = np.zeros_like(q)
        for h in range(q.shape[1]):
            g = h // group
            scores = np.where(evicted, q[:, h] @ k_hat[:, g].T, q[:, h] @ k[:, g].T)
            prob = softmax(np.where(visible, scores, -np.inf))
            out[:, h] = np.where(evicted, prob, 0) @ v_hat[:, g]
            out[:, h] += np.where(evicted, 0, prob) @ v[:, g]
        return out.reshape(len(a), -1) @ self.w[p + "o_proj.weight"].T

    def experts(self, h, layer):
        p = f"layers.{layer}."
        r = norm(h) * self.w[p + "router.scale"] * self.config["hidden_size"]**-0.5
        probabilities = softmax(r @ self.w[p + "router.proj.weight"].T)
        x = norm(h, self.w[p + "pre_feedforward_layernorm_2.weight"])
        out = np.zeros_like(h)
        for t in range(len(h)):
            chosen = np.argsort(-probabilities[t])[:self.config["top_k_experts"]]
            total = probabilities[t][chosen].sum()
            for e in chosen:
                gate, up = np.split(self.w[p + "experts.gate_up_proj"][e] @ x[t], 2)
                share = probabilities[t][e] / total * self.w[p + "router.per_expert_scale"][e]
                out[t] += share * (self.w[p + "experts.down_proj"][e] @ (gelu(gate) * up))
        return out

    def feed_forward(self, h, layer):
        p = f"layers.{layer}."
        z = norm(h, self.w[p + "pre_feedforward_layernorm.weight"])
        gate = gelu(z @ self.w[p + "mlp.gate_proj.weight"].T)
        dense = (gate * (z @ self.w[p + "mlp.up_proj.weight"].T)) @ self.w[p + "mlp.down_proj.weight"].T
        dense = norm(dense, self.w[p + "post_feedforward_layernorm_1.weight"])
        return dense + norm(self.experts(h, layer), self.w[p + "post_feedforward_layernorm_2.weight"])

    def encode(self, taps):
        features = (taps, taps) if self.features == "aux" else self.drafter.context_features(taps)
        for side, codes, x in zip("kv", self.codes, features):
            codes.extend(x @ self.f[f"encoder_{side}.weight"].T)

    def embed(self, ids):
        scale = np.float64(np.float32(self.config["hidden_size"]**0.5))
        return self.w["embed_tokens.weight"][ids] * scale

    def block(self, ids, first):
        x, outputs = self.embed(ids), []
        for layer in range(len(self.layers)):
            p = f"layers.{layer}."
            a = self.attention(norm(x, self.w[p + "input_layernorm.weight"]), layer, first)
            x = x + norm(a, self.w[p + "post_attention_layernorm.weight"])
            f = self.feed_forward(x, layer)
            x = x + norm(f, self.w[p + "post_feedforward_layernorm.weight"])
            x = x * self.w[p + "layer_scalar"]
            outputs.append(x)
        if self.restored:
            layers = self.drafter.config["dflash_config"]["target_layer_ids"]
            self.encode(np.concatenate([outputs[l] for l in layers], -1))
        logits = norm(x, self.w["norm.weight"]) @ self.w["embed_tokens.weight"].T
        cap = self.config["final_logit_softcapping"]
        return cap * np.tanh(logits / cap)

    def logits(self, ids):
        return np.concatenate([self.block(ids[i:i + WINDOW], i) for i in range(0, len(ids), WINDOW)])


def save_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values).tobytes()
        kind = {"float32": "F32", "int32": "I32"}[str(values.dtype)]
        header[name] = {"dtype": kind, "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    golden = load_safetensors(DEMO / "golden/rows.safetensors")
    ids = golden["1.input_ids"]
    exact = Target().logits(ids)[-24:]
    print(f"without restoring: {np.abs(exact - golden['1.logits_last']).max():.1e} from the golden")
    ids = ids[:TOKENS]
    tensors = {"input_ids": ids.astype(np.int32), "rows": np.array(ROWS, np.int32)}
    both = ("full_attention", "sliding_attention")
    for name, projection, restored in [("context", "context", both),
                                       ("aux", "aux", both),
                                       ("aux_full", "aux", both[:1]),
                                       ("aux_sliding", "aux", both[1:])]:
        logits = Target(projection, restored).logits(ids)[ROWS]
        tensors[f"{name}.logits"] = logits.astype(np.float32)
        print(name, np.abs(logits).max())
    save_safetensors(ROOT / "tests/data/restore/golden.safetensors", tensors)


if __name__ == "__main__":
    main()
