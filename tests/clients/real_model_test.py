"""A published model behind `kakeya serve`, asked by the official `openai` package: English that is true, streams, forms,
tools; and lm-evaluation-harness, where it is installed with the package.
usage: real_model_test.py KAKEYA MODEL.gguf (tools/test_clients runs it with SmolLM2)"""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import jsonschema
import openai

from serving import Server

KAKEYA, MODEL = sys.argv.pop(1), sys.argv.pop(1)
PROGRAMS = pathlib.Path(sys.executable).parent  # of the packages that were installed with it
GOLDENS = pathlib.Path(__file__).parents[1] / "data/real/smollm2-tokens.json"
QUESTION = "What is the capital of Japan?"
PERSON = {"type": "object", "additionalProperties": False, "required": ["name", "age"],
          "properties": {"name": {"type": "string", "maxLength": 20},
                         "age": {"type": "integer", "minimum": 0, "maximum": 120}}}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "additionalProperties": False, "required": ["city"],
                   "properties": {"city": {"type": "string", "maxLength": 20}}}}}

# Sentences whose right ending a model that has read English finds likelier.
ENDINGS = [("The capital of Japan is", " Tokyo.", " potato."), ("The animal that says meow is a", " cat.", " table."),
           ("The plural of child is", " children.", " window."), ("A week has seven", " days.", " oceans."),
           ("The sun rises in the", " morning.", " spoon."), ("She opened the door with her", " key.", " cloud."),
           ("Fish live in the", " water.", " paper."), ("He was thirsty, so he drank a glass of", " water.", " stones.")]
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
target_delimiter: ""
metric_list:
  - metric: acc
"""


class RealModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        server = Server(KAKEYA, model=MODEL)
        cls.addClassCleanup(server.end)
        cls.url = server.url + "/v1"
        cls.client = openai.OpenAI(base_url=cls.url, api_key="none", max_retries=0)
        cls.name = cls.client.models.list().data[0].id

    def ask(self, question, **options):
        return self.client.chat.completions.create(
            model=self.name, **{"messages": [{"role": "user", "content": question}], "temperature": 0,
                                "max_tokens": 100, **options})

    def test_answers_in_english_whole_and_streamed(self):
        answer = self.ask(QUESTION).choices[0]
        self.assertEqual((answer.message.content, answer.finish_reason),
                         ("The capital of Japan is Tokyo.", "stop"))
        pieces = [chunk.choices[0].delta.content or "" for chunk in self.ask(QUESTION, stream=True) if chunk.choices]
        self.assertEqual("".join(pieces), answer.message.content)

    def test_a_long_answer_streams_as_it_is_whole(self):
        question = "Why do we sleep?"
        whole = self.ask(question).choices[0].message.content
        self.assertGreater(len(whole.split()), 40, whole)
        pieces = [chunk.choices[0].delta.content or "" for chunk in self.ask(question, stream=True) if chunk.choices]
        self.assertGreater(len(pieces), 10)
        self.assertEqual("".join(pieces), whole)

    def test_a_conversation_goes_on(self):
        messages = [{"role": "system", "content": "You answer in one short sentence."},
                    {"role": "user", "content": QUESTION}]
        first = self.ask("", messages=messages).choices[0].message.content
        self.assertIn("Tokyo", first)
        messages += [{"role": "assistant", "content": first},
                     {"role": "user", "content": "What is the capital of Germany?"}]
        answer = self.ask("", messages=messages)
        self.assertIn("Berlin", answer.choices[0].message.content)
        self.assertGreater(answer.usage.prompt_tokens_details.cached_tokens, 0)

    def test_an_answer_has_the_form_of_a_schema(self):
        form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
        for options in ({}, {"temperature": 1.0, "seed": 5}):
            answer = self.ask("Name a person and their age as JSON.", response_format=form, **options).choices[0]
            self.assertEqual(answer.finish_reason, "stop")
            jsonschema.validate(json.loads(answer.message.content), PERSON)

    def test_tokens_are_those_of_the_references(self):
        root = self.url.removesuffix("/v1")

        def post(path, body):
            request = urllib.request.Request(root + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)

        texts = json.loads(GOLDENS.read_text())["texts"]
        for text in texts:
            if not text["text"]:
                continue  # nothing to ask about
            self.assertEqual(post("/tokenize", {"content": text["text"]})["tokens"], text["ids"], text["text"])
            self.assertEqual(post("/detokenize", {"tokens": text["ids"]})["content"], text["text"])
        self.assertEqual(len(texts), 200)

    def test_tools_that_the_template_does_not_show_can_be_called(self):
        question = "What is the weather in Paris?"
        required = self.ask(question, tools=[WEATHER], tool_choice="required").choices[0]
        self.assertEqual(required.finish_reason, "tool_calls")
        call = required.message.tool_calls[0].function
        self.assertEqual(call.name, WEATHER["function"]["name"])
        jsonschema.validate(json.loads(call.arguments), WEATHER["function"]["parameters"])
        # Free to call or not, the model is shown them.
        shown = self.ask(question, tools=[WEATHER]).usage.prompt_tokens
        self.assertGreater(shown, self.ask(question).usage.prompt_tokens + 50)

    @unittest.skipUnless(importlib.util.find_spec("lm_eval"), "lm-eval is not installed: tools/test_clients --all")
    def test_lm_eval_finds_likelier_endings(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = [{"question": question, "choices": [right, wrong], "label": 0} for question, right, wrong in ENDINGS]
            pathlib.Path(folder, "endings.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            pathlib.Path(folder, "endings.yaml").write_text(TASK.format(folder=folder))
            got = subprocess.run(
                [PROGRAMS / "lm_eval", "--model", "local-completions", "--batch_size", "4", "--model_args",
                 f"base_url={self.url}/completions,model={self.name},tokenizer_backend=remote,"
                 "tokenized_requests=True,max_length=2048", "--include_path", folder, "--tasks", "endings",
                 "--output_path", f"{folder}/out"],
                capture_output=True, text=True, timeout=300, cwd=folder,
                env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "OPENAI_API_KEY": "none"})
            self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
            results = json.loads(next(pathlib.Path(folder, "out").rglob("results_*.json")).read_text())
            self.assertEqual(results["results"]["endings"]["acc,none"], 1)


if __name__ == "__main__":
    unittest.main()
