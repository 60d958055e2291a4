"""Makes the small networks of Llama's, Gemma 3's, Qwen2's and Qwen3-MoE's families and what transformers says of them.

    python3 -m venv /tmp/goldens && /tmp/goldens/bin/pip install torch transformers safetensors
    /tmp/goldens/bin/python tests/data/networks/make_goldens.py tests/data/networks [CASE ...]

Weights are random, rounded to bf16 and stored so; outputs are computed from them in float32 with eager attention. The files are
those that README.md describes.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

COMMON = dict(vocab_size=96, max_position_embeddings=256, bos_token_id=1, eos_token_id=[2], pad_token_id=0)

CASES = {
    # Neighbours of pairs in GGUF files, 3 query heads a kv head, a rotation scaled as Llama 3's.
    "llama": dict(model_type="llama", hidden_size=72, intermediate_size=104, num_hidden_layers=3, num_attention_heads=6,
                  num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=False,
                  rope_parameters=dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
                                       high_freq_factor=4.0, original_max_position_embeddings=32)),
    # Biases of everything that can have one, heads without a size of their own.
    "llama-biased": dict(model_type="llama", hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=4, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                         rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # A window in all layers.
    "mistral": dict(model_type="mistral", hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, head_dim=16, sliding_window=7, tie_word_embeddings=False,
                    rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
    # The last layer slides, full layers are scaled, scores by another number than the heads' size.
    "gemma3": dict(model_type="gemma3_text", hidden_size=80, intermediate_size=112, num_hidden_layers=4, num_attention_heads=4,
                   num_key_value_heads=1, head_dim=32, query_pre_attn_scalar=20, sliding_window=6,
                   layer_types=["sliding_attention", "full_attention"] + ["sliding_attention"] * 2,
                   rope_parameters=dict(full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                                        sliding_attention=dict(rope_type="default", rope_theta=10000.0))),
    # Biases of queries, keys and values.
    "qwen2": dict(model_type="qwen2", hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=4,
                  num_key_value_heads=2, use_sliding_window=False, tie_word_embeddings=True,
                  rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
    # Experts in place of the MLP, heads wider than the hidden state.
    "qwen3moe": dict(model_type="qwen3_moe", hidden_size=64, intermediate_size=160, moe_intermediate_size=32, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, head_dim=32, num_experts=8, num_experts_per_tok=3,
                     norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], tie_word_embeddings=False,
                     rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
}

ROWS = 40
PROMPT = 12
NEW = 40


def randomize(model, generator):
    """Weights with the spread of trained ones, so that every part of the network shows in the outputs."""
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            values = torch.randn(tensor.shape, generator=generator)
            if "norm" in name:
                values = 0.1 * values + (0.0 if "gemma3" in model.config.model_type else 1.0)
            elif name.endswith("bias"):
                values = 0.3 * values
            elif "embed_tokens" in name:
                # Gemma multiplies them by the root of the width.
                values = values * (0.5 / (tensor.shape[-1] ** 0.5 if "gemma3" in model.config.model_type else 1.0))
            else:
                values = values * (1.5 / tensor.shape[-1] ** 0.5)
            tensor.copy_(values.to(torch.bfloat16).to(torch.float32))


def single_experts(name, tensor):
    """Experts one by one, as published checkpoints have them."""
    if name.endswith("mlp.experts.gate_up_proj"):
        stem, half = name.removesuffix("gate_up_proj"), tensor.shape[1] // 2
        for i, both in enumerate(tensor):
            yield f"{stem}{i}.gate_proj.weight", both[:half]
            yield f"{stem}{i}.up_proj.weight", both[half:]
    elif name.endswith("mlp.experts.down_proj"):
        stem = name.removesuffix("down_proj")
        for i, one in enumerate(tensor):
            yield f"{stem}{i}.down_proj.weight", one
    else:
        yield name, tensor


def forward(model, ids):
    with torch.no_grad():
        return model(input_ids=ids, output_hidden_states=True, use_cache=False)


def make(folder, case, settings):
    settings = {**COMMON, **settings}
    config = CONFIG_MAPPING[settings["model_type"]](**{key: value for key, value in settings.items() if key != "model_type"})
    config._attn_implementation = "eager"
    generator = torch.Generator().manual_seed(list(CASES).index(case) + 1)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    randomize(model, generator)
    ids = torch.randint(3, config.vocab_size, (1, ROWS), generator=generator)
    out = forward(model, ids)
    greedy, margins, sequence = [], [], ids[:, :PROMPT]
    for _ in range(NEW):
        best = forward(model, sequence).logits[0, -1].topk(2)
        greedy.append(best.indices[0].item())
        margins.append((best.values[0] - best.values[1]).item())
        sequence = torch.cat([sequence, best.indices[:1].view(1, 1)], dim=1)
    target = folder / case
    target.mkdir(exist_ok=True)
    weights = {}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        for part, values in single_experts(name, tensor):
            weights[part] = values.to(torch.bfloat16).contiguous()
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    written = {**settings, "architectures": [type(model).__name__], "hidden_act": "silu", "rms_norm_eps": config.rms_norm_eps,
               "num_key_value_heads": config.num_key_value_heads, "tie_word_embeddings": config.tie_word_embeddings}
    if "gemma3" in settings["model_type"]:
        del written["hidden_act"]
        written["hidden_activation"] = config.hidden_activation
    (target / "config.json").write_text(json.dumps(written, indent=2) + "\n")
    save_file({"input_ids": ids[0].to(torch.int32), "logits": out.logits[0].contiguous(),
               "hidden_states": torch.stack([each[0] for each in out.hidden_states]).contiguous(),
               "prompt_len": torch.tensor([PROMPT], dtype=torch.int32), "greedy_ids": torch.tensor(greedy, dtype=torch.int32),
               "greedy_margin": torch.tensor(margins, dtype=torch.float32)}, target / "golden.safetensors")
    print(case, "smallest margin", min(margins), "largest logit", out.logits.abs().max().item())


if __name__ == "__main__":
    for case in sys.argv[2:] or CASES:
        make(Path(sys.argv[1]), case, CASES[case])
