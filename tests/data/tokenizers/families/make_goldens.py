#!/usr/bin/env python3
"""Makes small tokenizers of the families that models publish, and what the `tokenizers` package says of texts.

    pip install tokenizers && python3 make_goldens.py

Writes FAMILY.json (a tokenizer.json) and FAMILY_cases.json beside this file. The vocabularies are trained here on the text
below; only the stages around them are those of the published files.
"""

import json
import pathlib

import tokenizers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).resolve().parent
META = "\u2581"

CORPUS = [
    "The river bends twice before it reaches the town, and on both banks there are mills that nobody runs.",
    "In 1987 it carried 12,345 barrels; in 2024 it carried none. That's what they'll tell you, isn't it?",
    "def add(left, right):\n    return left + right\n\n\nprint(add(1, 2))  # 3\n",
    "naïve café, straße, Ελληνικά, русский язык, 日本語の文章, 한국어, हिन्दी and عربي",
    "<h1>A page</h1>\n<p>of text</p>\n\n\n    four blanks, \t a tab; the user and the assistant said hello",
    "hello hello there there the the then they other mother another weather whether 100 200 300 123 456",
] * 4

# What tokenizers are at odds about.
TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n\n", "\t", " \n ", "a", " a", "  a", "a ", "a  ", "hello", " hello", "hello hello",
    "Hello, world!", "12345", " 1", "1 2  3", "12,345.67", "a1b22c333d4444", "\u0661\u0662\u0663 \u2167 \u00bd x\u00b2",
    "They'll say it's theirs, isn't it? I'D've", "line one\nline two\r\nline three\r\r\n\n end",
    "def f(x):\n    return {'a': x**2}\n\t\tif (a != b && c <= d) ++i;\n", "x" + " " * 40 + "y", " " * 33, "\n" * 35 + "z",
    "caf\u00e9 cafe\u0301 stra\u00dfe \u0130 \ufb01 \u212b", "\u65e5\u672c\u8a9e\u306e\u6587 \ud55c\uad6d\uc5b4 \u0440\u0443\u0441\u0441\u043a\u0438\u0439",
    "\u0939\u093f\u0928\u094d\u0926\u0940 \u0639\u0631\u0628\u064a", "\U0001f600\U0001f469\u200d\U0001f4bb \U0001f1e9\U0001f1ea e\u0301\u0323\u0327",
    META, META + "a", " " + META + " ", "a" + META + "b", "\u00a0\u2003\u3000 x", "\x01\x7f\x00 end",
    "<s>hello", "<s> hello</s>", "</s></s> a", "a<s>b</s>c", "<unk> <s", "[INST] hello [/INST] there</s>",
    "<|begin_of_text|>hello<|eot_id|>\n<|im_end|>", "<0x41><0xE2>", "<h1>the</h1>", "unreached unreached! the unreached",
    "the other mother's weather, whether another 100 or 200", "\u2019\u201cquoted\u201d \u2014 \u2026 \u20ac5",
]


def trained(pre_tokenizer, size, alphabet, normalizer=None, specials=()):
    """A vocabulary and its merges, from the corpus."""
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]


def all_splits(vocabulary, made):
    """Merges as published for vocabularies with scores: all pairs that make a token, in the order of the tokens."""
    merges = []
    for text in made:
        splits = [(text[:cut], text[cut:]) for cut in range(1, len(text))]
        splits = [pair for pair in splits if pair[0] in vocabulary and pair[1] in vocabulary]
        merges += sorted(splits, key=lambda pair: (vocabulary[pair[0]], vocabulary[pair[1]]))
    return [list(pair) for pair in merges]


def added(vocabulary, text, special=True, normalized=False):
    token = {"id": vocabulary.setdefault(text, len(vocabulary)), "content": text, "single_word": False, "lstrip": False}
    return token | {"rstrip": False, "normalized": normalized, "special": special}


def beginning(text, token_id):
    single = [{"SpecialToken": {"id": text, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = single + [{"SpecialToken": {"id": text, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    tokens = {text: {"id": text, "ids": [token_id], "tokens": [text]}}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}


def model_of(vocabulary, merges, **options):
    fields = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    fields |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False}
    return fields | options | {"vocab": vocabulary, "merges": merges}


MARK_SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": META}
SHOW_SPACES = [{"type": "Replace", "pattern": {"String": META}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def with_byte_tokens(specials):
    """A vocabulary in the order of Llama 2's: special tokens, bytes, what is made, characters."""
    normalizer = normalizers.Sequence([normalizers.Prepend(META), normalizers.Replace(" ", META)])
    cut = pre_tokenizers.Metaspace(replacement=META, prepend_scheme="never", split=True)
    trained_vocabulary, _ = trained(cut, 420, [], normalizer)
    characters = [text for text in trained_vocabulary if len(text) == 1 and text not in "\n\t"]
    made = [text for text in sorted(trained_vocabulary, key=trained_vocabulary.get) if len(text) > 1 and "\n" not in text]
    made += [META * 2, META * 4, META * 8]
    texts = list(specials) + [f"<0x{byte:02X}>" for byte in range(256)] + made + sorted(characters)
    vocabulary = {text: token_id for token_id, text in enumerate(texts)}
    return vocabulary, all_splits(vocabulary, made)


def llama2():
    """Llama 2, TinyLlama and the first Mistral."""
    vocabulary, merges = with_byte_tokens(["<unk>", "<s>", "</s>"])
    tokens = [added(vocabulary, text) for text in ("<unk>", "<s>", "</s>")]
    normalizer = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": META}, MARK_SPACES]}
    decoder = {"type": "Sequence", "decoders": SHOW_SPACES + [STRIP]}
    model = model_of(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return tokens, normalizer, None, beginning("<s>", 1), decoder, model


def llama2_normalized():
    """Older files of them: special tokens that are matched in the normalised text."""
    tokens, *rest = llama2()
    return [token | {"normalized": True} for token in tokens], *rest


def mistral():
    """Mistral's third version: Metaspace in place of a normaliser, words of instructions as tokens."""
    vocabulary, merges = with_byte_tokens(["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    tokens = [added(vocabulary, text) for text in ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")]
    cut = {"type": "Metaspace", "replacement": META, "prepend_scheme": "first", "split": False}
    decoder = {"type": "Sequence", "decoders": SHOW_SPACES + [STRIP]}
    model = model_of(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return tokens, None, cut, beginning("<s>", 1), decoder, model


def gemma3():
    """Gemma 3: nothing in front, runs of line ends and HTML tags as tokens."""
    vocabulary, merges = with_byte_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    tokens = [added(vocabulary, text) for text in ("<pad>", "<eos>", "<bos>", "<unk>")]
    tokens += [added(vocabulary, "\n" * run, special=False) for run in range(1, 32)]
    tokens += [added(vocabulary, text, special=False) for text in ("<h1>", "</h1>", "</s>")]
    tokens.append(added(vocabulary, "<end_of_turn>"))
    cut = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    decoder = {"type": "Sequence", "decoders": SHOW_SPACES}
    model = model_of(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return tokens, MARK_SPACES, cut, beginning("<bos>", 2), decoder, model


def byte_level(use_regex, **fields):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex} | fields


def llama3():
    """Llama 3: numbers of up to three digits, words that are tokens stay whole."""
    pattern = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    split = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    cut = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    vocabulary, merges = trained(cut, 500, pre_tokenizers.ByteLevel.alphabet())
    for text in ("\u0120unreached", "unreached", "4444"):  # no merges make them
        vocabulary[text] = len(vocabulary)
    names = ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|eom_id|>")
    first = len(vocabulary)
    tokens = [added(dict(vocabulary), text) | {"id": first + i} for i, text in enumerate(names)]
    processors = [byte_level(True), beginning("<|begin_of_text|>", first)]
    post_processor = {"type": "Sequence", "processors": processors}
    split_json = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    cut_json = {"type": "Sequence", "pretokenizers": [split_json, byte_level(False)]}
    return tokens, None, cut_json, post_processor, byte_level(True), model_of(vocabulary, merges, ignore_merges=True)


def smollm():
    """SmolLM2: digits one by one, then GPT-2's expression."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    cut = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary, merges = trained(cut, 500, pre_tokenizers.ByteLevel.alphabet(), specials=names)
    tokens = [added(vocabulary, text) for text in names]
    steps = [{"type": "Digits", "individual_digits": True}, byte_level(True)]
    cut_json = {"type": "Sequence", "pretokenizers": steps}
    decoder = byte_level(True, add_prefix_space=True)
    return tokens, None, cut_json, None, decoder, model_of(vocabulary, merges)


def cases_of(tokenizer, size, skips_special):
    """Ids and texts. `skips_special`: the library knows special tokens by their own texts, but not by normalised ones."""
    cases = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        case = {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
        cases.append(case | ({"decoded_without_special": tokenizer.decode(ids)} if skips_special else {}))
    for start in range(0, size, max(1, size // 40)):  # ids that no text gives
        ids = [(start * 7 + step * 13) % size for step in range(8)]
        case = {"text": None, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False)}
        cases.append(case | ({"decoded_without_special": tokenizer.decode(ids)} if skips_special else {}))
    return cases


def main():
    for make in (llama2, llama2_normalized, mistral, gemma3, llama3, smollm):
        tokens, normalizer, pre_tokenizer, post_processor, decoder, model = make()
        root = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": normalizer}
        root |= {"pre_tokenizer": pre_tokenizer, "post_processor": post_processor, "decoder": decoder, "model": model}
        text = json.dumps(root, ensure_ascii=False)
        tokenizer = Tokenizer.from_str(text)
        cases = cases_of(tokenizer, tokenizer.get_vocab_size(), make is not llama2_normalized)
        cases = {"library": f"tokenizers {tokenizers.__version__}", "cases": cases}
        (FOLDER / f"{make.__name__}.json").write_text(text + "\n")
        lines = json.dumps(cases, ensure_ascii=False).replace('{"text"', '\n{"text"')
        (FOLDER / f"{make.__name__}_cases.json").write_text(lines + "\n")


main()
