#!/usr/bin/env python3
"""Makes tests/data/train/gradients-<drafter>.safetensors: the loss that drafters are trained with, and its gradient
in every tensor, by JAX's differentiation in double precision.

usage: tools/golden_gradients.py   (needs numpy and jax; jax 0.10.2 made the files that are kept)

Written from the equations in docs/speculation.md and docs/training.md, independently of the C++ code. Blocks begin
at three places of a golden's context, the last of which leaves a part of its block without labels. Checks itself
first: hidden rows must be those that the published implementation gave (tests/data/networks).
Of each gradient G the file has G.norm, its length, and G.some, every 15th number: all of them would be 700 KB.
"""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from golden_conditioning import load_safetensors
from golden_restore import save_safetensors

jax.config.update("jax_enable_x64", True)
ROOT = pathlib.Path(__file__).resolve().parent.parent
NETWORKS = ROOT / "tests/data/networks"
DRAFTERS = {"dflash-gemma4": "gemma4-moe", "dflash-qwen3": "qwen3-untied"}
WEIGHTS = {"decay": 3.0, "dpace": 0.5}
EVERY = 15


def norm(x, weight, epsilon):
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def rope(x, positions, theta):
    """Turns heads [T, H, E] of these positions."""
    half = x.shape[-1] // 2
    frequencies = (theta ** (-np.arange(half) / half)).astype(np.float32)
    angles = (np.asarray(positions, np.float32)[:, None] * frequencies).astype(np.float64)[:, None]
    cos, sin = np.cos(angles), np.sin(angles)
    low, high = x[..., :half], x[..., half:]
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], -1)


def block_rows(weights, config, parts, taps, anchor, ids):
    """Rows [B, D] behind the final norm of the block at `anchor`, which sees the positions below it."""
    epsilon, size = config["rms_norm_eps"], config["head_dim"]
    groups = config["num_attention_heads"] // config["num_key_value_heads"]
    context = norm(taps[:anchor] @ weights["fc.weight"].T, weights["hidden_norm.weight"], epsilon)
    before, inside = np.arange(anchor), anchor + np.arange(len(ids))
    positions = np.concatenate([before, inside])
    x = parts["embedding"][ids] * parts["scale"]
    for index, kind in enumerate(config["layer_types"]):
        def of(name):
            return weights[f"layers.{index}.{name}.weight"]

        def heads(rows, name):
            return (rows @ of(f"self_attn.{name}").T).reshape(rows.shape[0], -1, size)

        n = norm(x, of("input_layernorm"), epsilon)
        seen = jnp.concatenate([context, n])
        queries = rope(norm(heads(n, "q_proj"), of("self_attn.q_norm"), epsilon), inside, config["rope_theta"])
        keys = rope(norm(heads(seen, "k_proj"), of("self_attn.k_norm"), epsilon), positions, config["rope_theta"])
        values = heads(seen, "v_proj")
        allowed = np.ones((len(ids), len(positions)), bool)
        if kind == "sliding_attention":
            distance = inside[:, None] - positions
            allowed = (distance >= 0) & (distance < config["sliding_window"])
        taken = []
        for head in range(queries.shape[1]):
            scores = queries[:, head] @ keys[:, head // groups].T / np.sqrt(size)
            shares = jax.nn.softmax(jnp.where(allowed, scores, -jnp.inf), -1)
            taken.append(shares @ values[:, head // groups])
        x = x + jnp.concatenate(taken, -1) @ of("self_attn.o_proj").T
        n = norm(x, of("post_attention_layernorm"), epsilon)
        x = x + (jax.nn.silu(n @ of("mlp.gate_proj").T) * (n @ of("mlp.up_proj").T)) @ of("mlp.down_proj").T
    return norm(x, weights["norm.weight"], epsilon)


def log_probabilities(rows, config, parts, labels):
    logits = rows @ parts["head"].T
    cap = config.get("final_logit_softcapping")
    if cap:
        logits = jnp.tanh(logits / cap) * cap
    return jax.nn.log_softmax(logits, -1)[np.arange(len(labels)), labels]


def loss(weights, config, parts, taps, blocks, kind):
    total, weight_sum = 0.0, 0.0
    for anchor, ids, labels in blocks:
        drafts = len([label for label in labels if label >= 0])
        rows = block_rows(weights, config, parts, taps, anchor, np.array(ids))[1:1 + drafts]
        log_p = log_probabilities(rows, config, parts, np.array(labels[:drafts]))
        if kind == "decay":
            weight = np.exp(-np.arange(drafts) / WEIGHTS[kind])
        else:
            a = WEIGHTS[kind]
            products = jnp.cumprod((1 - a) * jnp.exp(jax.lax.stop_gradient(log_p)) + a)
            weight = jnp.cumsum(products[::-1])[::-1]
        total = total - (weight * log_p).sum()
        weight_sum = weight_sum + weight.sum()
    return total / weight_sum


def make(drafter, target):
    config = json.loads((NETWORKS / drafter / "config.json").read_text())
    stored = load_safetensors(NETWORKS / drafter / "model.safetensors")
    weights = {name: jnp.asarray(values, jnp.float64) for name, values in stored.items()}
    lent = load_safetensors(NETWORKS / target / "model.safetensors")
    embedding = jnp.asarray(lent["model.embed_tokens.weight"], jnp.float64)
    is_gemma = target.startswith("gemma")
    parts = {"embedding": embedding, "scale": config["hidden_size"] ** 0.5 if is_gemma else 1.0,
             "head": embedding if is_gemma else jnp.asarray(lent["lm_head.weight"], jnp.float64)}
    golden = load_safetensors(NETWORKS / drafter / "golden.safetensors")
    taps = jnp.asarray(golden["aux"], jnp.float64)
    context = taps.shape[0]

    given = block_rows(weights, config, parts, taps, context, np.asarray(golden["block_ids"]))
    worst = float(jnp.abs(given - golden["auto.hidden"]).max())
    assert worst < 1e-4, f"{drafter}: hidden rows differ from the published ones by {worst}"

    rng = np.random.default_rng(5)
    block = config["block_size"]
    blocks = []
    for anchor in (context, context // 2, 5):
        ids = [int(rng.integers(config["vocab_size"]))] + [config["dflash_config"]["mask_token_id"]] * (block - 1)
        labels = rng.integers(config["vocab_size"], size=block - 1).tolist()
        if anchor == context:
            labels[1:] = [-1] * (block - 2)  # the document ends
        blocks.append((anchor, ids, labels))
    tensors = {"anchors": np.array([b[0] for b in blocks], np.int32),
               "first_ids": np.array([b[1][0] for b in blocks], np.int32),
               "labels": np.array([b[2] for b in blocks], np.int32)}
    for kind in WEIGHTS:
        value, gradient = jax.value_and_grad(loss)(weights, config, parts, taps, blocks, kind)
        tensors[f"{kind}.loss"] = np.array([value], np.float32)
        for name, g in gradient.items():
            flat = np.asarray(g).reshape(-1)
            tensors[f"{kind}.{name}.norm"] = np.array([np.linalg.norm(flat)], np.float32)
            tensors[f"{kind}.{name}.some"] = flat[::EVERY].astype(np.float32)
    return tensors


def main():
    for drafter, target in DRAFTERS.items():
        tensors = make(drafter, target)
        save_safetensors(ROOT / f"tests/data/train/gradients-{drafter}.safetensors", tensors)
        print(f"{drafter}: " + ", ".join(f"{kind} {tensors[f'{kind}.loss'][0]:.6f}" for kind in WEIGHTS))


if __name__ == "__main__":
    main()
