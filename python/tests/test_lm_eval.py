"""lm-evaluation-harness in the process: the numbers of transformers, and those of its client of a server."""

import json
import struct

import numpy as np
import pytest

lm_eval = pytest.importorskip("lm_eval", reason="pip install kakeya[lm-eval]")

from kakeya.lm_eval import KakeyaLM
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager
from conftest import ROOT, serve

TASK = """
dataset_path: json
dataset_kwargs:
  data_files: {{test: {folder}/endings.jsonl}}
test_split: test
doc_to_text: "{{{{question}}}}"
"""
ENDINGS = """
task: endings
output_type: multiple_choice
doc_to_choice: choices
doc_to_target: label
metric_list:
  - metric: acc
""" + TASK
COUNTING = """
task: counting
output_type: generate_until
doc_to_target: "{{{{choices[label]}}}}"
generation_kwargs:
  until: [",", "."]
  max_gen_toks: 8
metric_list:
  - metric: exact_match
""" + TASK


@pytest.fixture
def tasks(tmp_path):
    lines = [{"question": f"Count from {n} to {n + 3}: {n}, {n + 1}, {n + 2},",
              "choices": [f" {n + 3}", " a cat"], "label": 0} for n in range(3, 11)]
    (tmp_path / "endings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "endings.yaml").write_text(ENDINGS.format(folder=tmp_path))
    (tmp_path / "counting.yaml").write_text(COUNTING.format(folder=tmp_path))
    return TaskManager(include_path=str(tmp_path))


def evaluate(tasks, model, **options):
    """Accuracies, and what the model said to each question."""
    made = lm_eval.simple_evaluate(model=model, tasks=["endings", "counting"], task_manager=tasks, **options)
    said = {name: [(sample["doc_id"], sample["filtered_resps"]) for sample in samples]
            for name, samples in made["samples"].items()}
    return made["results"], {name: sorted(samples) for name, samples in said.items()}


def test_the_process_and_the_server_say_the_same(tasks):
    results, own = evaluate(tasks, KakeyaLM(add_bos_token=False, batch_size=4, threads=1))
    assert results["endings"]["acc,none"] >= 0.75
    assert results["counting"]["exact_match,none"] >= 0.75
    with serve() as server:
        _, theirs = evaluate(tasks, "local-completions", batch_size=4, model_args={
            "base_url": f"{server}/v1/completions", "model": "demo", "tokenizer_backend": "remote",
            "tokenized_requests": True, "max_length": 4096})
    assert own == theirs


def test_likelihoods_are_those_of_transformers():
    path = ROOT / "models/demo/golden/rows.safetensors"
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = np.frombuffer(file.read(), np.uint8)

    def tensor(name, dtype):
        begin, end = header[name]["data_offsets"]
        return data[begin:end].view(dtype)

    model = KakeyaLM(compute="f32", threads=1)
    for text in range(3):
        ids = tensor(f"{text}.input_ids", np.int32)
        expected = tensor(f"{text}.token_logprobs", np.float32)
        got, _ = model._score(ids[:1].tolist(), ids[1:].tolist())
        # The mean of the text's tokens; sums of a thousand roundings differ by their number.
        assert got / len(expected) == pytest.approx(expected.mean(dtype=np.float64), abs=1e-3)


def rolling(model, text):
    return model.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0)], disable_tqdm=True)[0]


def test_a_text_longer_than_the_context_is_read_in_windows():
    text = "one two three four five six seven eight nine ten " * 12
    small, large = KakeyaLM(threads=1, context=32), KakeyaLM(threads=1, context=512)
    ids = small.tok_encode(text, add_special_tokens=False)
    assert len(ids) > 64
    expected, begin = 0.0, 0
    for given, told in lm_eval.utils.get_rolling_token_windows(ids, small.prefix_token_id, 31, 1):
        scores = small._engine.session()
        scores.append([*given, told[-1]][:len(given) - len(told) + 1])
        expected += sum(score.logprob for score in scores.score(told))
        begin += len(told)
    assert begin == len(ids)
    assert rolling(small, text) == expected
    assert rolling(large, text) > expected  # which sees more


def test_options_that_are_unknown_are_refused():
    model = KakeyaLM(threads=1)
    with pytest.raises(ValueError, match="num_beams"):
        model.generate_until([Instance("generate_until", {}, ("a", {"until": ["."], "num_beams": 2}), 0)],
                             disable_tqdm=True)
