"""Clients that people bring besides the official one, unmodified, against `kakeya serve`.
usage: more_clients_test.py KAKEYA (tools/test_clients --all runs it)"""

import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

os.environ.update({"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1",
                   "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "none"})

import langchain_openai
import litellm

from serving import ROOT, Server

KAKEYA = sys.argv.pop(1)
TEXT = "Count from 5 to 12."
QUESTION = [{"role": "user", "content": TEXT}]
ANSWER = "5, 6, 7, 8, 9, 10, 11, 12."
PROGRAMS = pathlib.Path(sys.executable).parent  # of the packages that were installed with it

# A choice between two endings, of the kind that harnesses are made for.
TASK = """
task: endings
dataset_path: json
dataset_kwargs:
  data_files: {{test: {folder}/endings.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: choices
doc_to_target: label
metric_list:
  - metric: acc
"""


class MoreClients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(KAKEYA)
        cls.addClassCleanup(cls.server.end)
        cls.address = cls.server.url
        cls.url = cls.address + "/v1"

    def test_litellm(self):
        def complete(**options):
            return litellm.completion(model="openai/demo", api_base=self.url, api_key="none",
                                      messages=QUESTION, temperature=0, **options)
        self.assertEqual(complete().choices[0].message.content, ANSWER)
        pieces = [chunk.choices[0].delta.content or "" for chunk in complete(stream=True)]
        self.assertEqual("".join(pieces), ANSWER)
        vectors = litellm.embedding(model="openai/demo", api_base=self.url, api_key="none",
                                    input=["a cat", "a dog"], encoding_format="float")
        self.assertEqual(len(vectors.data), 2)
        with self.assertRaises(litellm.exceptions.ContextWindowExceededError):
            litellm.completion(model="openai/demo", api_base=self.url, api_key="none",
                               messages=[{"role": "user", "content": "word " * 20000}])

    def test_langchain(self):
        model = langchain_openai.ChatOpenAI(model="demo", base_url=self.url, api_key="none",
                                            temperature=0)
        self.assertEqual(model.invoke(TEXT).content, ANSWER)
        self.assertEqual("".join(chunk.content for chunk in model.stream(TEXT)), ANSWER)
        self.assertEqual([answer.content for answer in model.batch([TEXT, TEXT])], [ANSWER] * 2)
        vectors = langchain_openai.OpenAIEmbeddings(
            model="demo", base_url=self.url, api_key="none",
            check_embedding_ctx_length=False).embed_documents([f"text {i}" for i in range(20)])
        self.assertEqual(len(vectors), 20)

    def test_llm(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "extra-openai-models.yaml").write_text(
                f"- model_id: demo\n  model_name: demo\n  api_base: {self.url}\n")
            got = subprocess.run([PROGRAMS / "llm", "-m", "demo", "-o", "temperature", "0", TEXT],
                                 env={**os.environ, "LLM_USER_PATH": folder}, capture_output=True,
                                 text=True, timeout=60)
            self.assertEqual(got.stdout.strip(), ANSWER, got.stderr)

    def test_examples_of_the_documents(self):
        page = (ROOT / "docs/clients.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
        self.assertEqual(len(blocks), 2)
        for block in blocks:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(block.replace("http://127.0.0.1:8080", self.url.removesuffix("/v1")), {})
            self.assertIn(ANSWER, said.getvalue())

    def evaluate(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            endings = [{"question": f"Count from {n} to {n + 3}: {n}, {n + 1}, {n + 2},",
                        "choices": [f" {n + 3}.", " a cat."], "label": 0} for n in range(3, 11)]
            pathlib.Path(folder, "endings.jsonl").write_text(
                "".join(json.dumps(line) + "\n" for line in endings))
            pathlib.Path(folder, "endings.yaml").write_text(TASK.format(folder=folder))
            got = subprocess.run(
                [PROGRAMS / "lm_eval", *arguments, "--include_path", folder, "--tasks", "endings",
                 "--output_path", f"{folder}/out"],
                capture_output=True, text=True, timeout=300, cwd=folder)
            self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
            results = next(pathlib.Path(folder, "out").rglob("results_*.json"))
            return json.loads(results.read_text())["results"]["endings"]

    def test_lm_eval_compares_endings(self):
        results = self.evaluate(
            "--model", "local-completions", "--batch_size", "4", "--model_args",
            f"base_url={self.url}/completions,model=demo,tokenizer_backend=remote,"
            "tokenized_requests=True,max_length=4096")
        self.assertGreaterEqual(results["acc,none"], 0.75)


if __name__ == "__main__":
    unittest.main()
