#!/usr/bin/env python3
"""Writes the tokenizer fixtures of tests/data/text with the PyPI package `tokenizers`.

    pip install tokenizers==0.23.3
    python3 tools/make_tokenizer_goldens.py

Writes, all deterministic:
  demo_cases.json        random and corpus strings against models/demo/tokenizer.json
  byte_level.json        a small Qwen-style tokenizer (NFC, Qwen expression, byte-level BPE)
  byte_level_cases.json  strings against it
  split_cases.json       what the Qwen and GPT-2 expressions and each Split behaviour cut
"""
import json
import pathlib
import random
import unicodedata

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/text"
VERSION = f"tokenizers {tokenizers.__version__}"

QWEN_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TRICKY = [
    "", " ", "  ", "   x", "x   ", "\n", "\r\n", "\r\n\r\n  x", " \n \n ", "\t\tx\t", "a\u00a0b",
    "\u3000全角\u3000", "I'm you're HE'S they'LL we'd 'tis it's' 's", "\u2019s", "x'\u017f",
    "don't DON'T", "1234567 12.5 ١٢٣ Ⅷ ½ 一二三", "C++20: std::vector<int> v{1,2};", "(a)[b]{c}",
    "...!!!\n\n\nnext", "?!\r\n!!", "\u0301combining first", "e\u0301 e\u0323\u0302 \u1100\u1161\u11a8",
    "naïve café Ångström \u212b \u2126", "नमस्ते दुनिया", "ภาษาไทย", "한국어 띄어쓰기", "日本語と中文，混排。",
    "Привет, мир!", "שלום עולם", "مرحبا بالعالم", "👩\u200d👩\u200d👧\u200d👦 🏳️\u200d🌈 🇫🇷",
    "\u200b\u200bzero\u200bwidth\ufeff", "a\u2028b\u2029c\x85d\x0be\x0cf", "_snake_case__x", "a_b-c/d\\e",
    "https://example.org/a?b=c&d=%20#e", "\x00\x01\x1f\x7f", "tail spaces    \n", "   \n\n   \n x",
    "\U0001D400\U0001D54F\U00020000", "\ue000\U000f0000\U0010fffd\ufffe", "ﬁ ﬂ ẞ İ ı ǆ", "x²³ ₁₂", "ª º",
    "<|im_start|>user\nhi<|im_end|>", "<|im_start|", "<tool_call>{}</tool_call>", "#  // <? ##",
]

ALPHABETS = [
    "abcdefgh  \n", "aAbB'sStT dDlL", "0123456789 .,", "  \t\n\r\u00a0\u3000", "!?#$%&*()-+=<>/\\|\"'",
    "éèüñßøçž\u0301\u0323\u0308e o", "日本語中文的一是了한국어", "😀👍🏽\u200d❤️🇩🇪", "абвгд ежз", "<>|/bosturnem_i",
    "\u2581 a", "▁▁ x",
]


def random_character(rng):
    while True:
        plane = rng.choice([0, 0, 0, 0, 1, 1, 2, 3, 14, 16])
        code = rng.randrange(plane << 16, (plane + 1) << 16)
        # Only characters of Unicode 14 (Python 3.11): libraries of other ages class newer ones
        # differently.
        if unicodedata.category(chr(code)) not in ("Cs", "Cn"):
            return chr(code)


def random_strings(rng, count):
    strings = []
    for _ in range(count):
        length = rng.choice([1, 2, 3, 5, 8, 13, 30])
        if rng.random() < 0.3:
            strings.append("".join(random_character(rng) for _ in range(length)))
            continue
        alphabet = rng.choice(ALPHABETS) + (rng.choice(ALPHABETS) if rng.random() < 0.5 else "")
        strings.append("".join(rng.choice(alphabet) for _ in range(length)))
    return strings


def corpus():
    lines = (ROOT / "models/demo/golden/tokenizer_cases.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def write(name, value):
    OUT.mkdir(parents=True, exist_ok=True)
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    text = text.replace('},{"text"', '},\n{"text"')
    (OUT / name).write_text(text + "\n", "utf-8")


def encode_cases(tokenizer, strings):
    cases = []
    for text in dict.fromkeys(strings):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids)})
    return cases


def decode_cases(tokenizer, rng, count):
    cases = []
    for _ in range(count):
        ids = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randrange(1, 20))]
        cases.append({"text": None, "ids": ids, "decoded": tokenizer.decode(ids)})
    return cases


def byte_run_cases(tokenizer, rng, count):
    """Ids with long runs of byte tokens: whole characters, cut ones, and noise."""
    byte_ids = [tokenizer.token_to_id(f"<0x{byte:02X}>") for byte in range(256)]
    cases = []
    for _ in range(count):
        ids = []
        for _ in range(rng.randrange(1, 5)):
            run = "".join(random_character(rng) for _ in range(rng.randrange(1, 4))).encode()
            if rng.random() < 0.5:
                cut = rng.randrange(len(run) + 1)
                run = run[:cut] + bytes(rng.randrange(256) for _ in range(rng.randrange(2))) + run[cut:]
            ids += [byte_ids[byte] for byte in run[: rng.randrange(1, len(run) + 1)]]
            if rng.random() < 0.6:
                ids.append(rng.randrange(tokenizer.get_vocab_size()))
        cases.append({"text": None, "ids": ids, "decoded": tokenizer.decode(ids)})
    return cases


def train_byte_level(strings):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(strings, trainer)
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True)
                                  for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")])
    tokenizer.add_tokens([AddedToken(t, normalized=False, special=False)
                          for t in ("<tool_call>", "</tool_call>")])
    tokenizer.add_tokens([AddedToken("é!", normalized=True, special=False)])
    return tokenizer


def split_cases(strings):
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    pattern_cases = []
    for text in dict.fromkeys(strings):
        qwen = pre_tokenizers.Split(Regex(QWEN_PATTERN), "isolated").pre_tokenize_str(text)
        case = {"text": text, "qwen": [piece for piece, _ in qwen],
                "gpt2": [text[begin:end] for _, (begin, end) in gpt2.pre_tokenize_str(text)]}
        # A piece that cuts a character of several bytes has no text of its own.
        if "".join(case["gpt2"]) == text:
            pattern_cases.append(case)
    behavior_cases = []
    for name in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            for text in ("a b", " a  b ", "  ", "ab", "a   b c", " "):
                pieces = pre_tokenizers.Split(" ", name, invert=invert).pre_tokenize_str(text)
                behavior_cases.append({"text": text, "behavior": name, "invert": invert,
                                       "pieces": [piece for piece, _ in pieces]})
    return {"generator": VERSION, "pattern": QWEN_PATTERN, "patterns": pattern_cases,
            "behaviors": behavior_cases}


def main():
    rng = random.Random(20251)
    strings = TRICKY + random_strings(rng, 500)

    demo = Tokenizer.from_file(str(ROOT / "models/demo/tokenizer.json"))
    cases = encode_cases(demo, strings) + decode_cases(demo, rng, 100)
    cases += byte_run_cases(demo, rng, 200)
    write("demo_cases.json", {"generator": VERSION, "cases": cases})

    byte_level = train_byte_level(corpus() + TRICKY)
    (OUT / "byte_level.json").write_text(
        json.dumps(json.loads(byte_level.to_str()), ensure_ascii=True, separators=(",", ":")) + "\n")
    cases = encode_cases(byte_level, strings + corpus()[:40]) + decode_cases(byte_level, rng, 300)
    write("byte_level_cases.json", {"generator": VERSION, "cases": cases})

    write("split_cases.json", split_cases(strings + corpus()[:20]))


if __name__ == "__main__":
    main()
