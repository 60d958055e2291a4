"""A server of three models with memory for two, by the packages `openai` and `ollama`: every answer is that of a server
with its model alone, and the ledger stays within the limit. usage: models_test.py KAKEYA FOLDER_OF_MODELS REQUESTS
(tools/test_clients runs it; of published models that are not there the demo model takes the place)"""

import concurrent.futures
import json
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request

import ollama
import openai

from serving import ROOT, Server

KAKEYA, FOLDER, REQUESTS = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)), int(sys.argv.pop(1))
MIB = 1 << 20
PROMPTS = ["Count from 5 to 12.", "Paris is the capital of", "The cat"]
# Names, files, other flags of their tables, parts of the memory.
MODELS = {
    "counter": (ROOT / "models/demo", {"ctx": 1024}, 150),
    "small": (FOLDER / "SmolLM2-135M-Instruct.Q4_1.gguf", {"ctx": 1024}, 300),
    "org/google": (FOLDER / "gemma-3-270m.Q4_K_M.gguf", {"ctx": 1024, "draft": "none"}, 450),
}
MEMORY = 800  # MiB: less than all of them, enough for any two


def path_of(name):
    path = MODELS[name][0]
    return path if path.exists() else ROOT / "models/demo"


def table_of(name, path=None, **more):
    fields = {"model": str(path or path_of(name)), "memory": f"{MODELS[name][2]}MiB", **MODELS[name][1], **more}
    return f'["{name}"]\n' + "".join(f"{key} = {value!r}\n".replace("True", "true") for key, value in fields.items())


def write_tables(folder, *tables):
    path = pathlib.Path(folder, "models.toml")
    path.write_text("\n".join(tables))
    return path


class Served(Server):
    """A server with a file of models."""

    def __init__(self, *tables, flags=()):
        self.folder = tempfile.TemporaryDirectory()
        path = write_tables(self.folder.name, *tables)
        super().__init__(KAKEYA, "--models", path, "--memory", f"{MEMORY}MiB", *flags, model=None)
        self.client = openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=120)

    def complete(self, model, prompt, tokens=8):
        answer = self.client.completions.create(model=model, prompt=prompt, max_tokens=tokens, temperature=0)
        return answer.model, answer.choices[0].text

    def metrics(self):
        return urllib.request.urlopen(f"{self.url}/metrics").read().decode()

    def forget(self):
        self.client.close()
        self.folder.cleanup()

    def end(self):
        self.forget()
        super().end()


def alone(name):
    """What a server with this model alone answers."""
    _, fields, memory = MODELS[name]
    flags = [word for key, value in fields.items() for word in (f"--{key}", str(value))]
    server = Server(KAKEYA, "--name", name, "--memory", f"{memory}MiB", *flags, model=path_of(name))
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
    texts = {prompt: client.completions.create(model=name, prompt=prompt, max_tokens=8, temperature=0).choices[0].text for prompt in PROMPTS}
    client.close()
    server.end()
    return texts


class Ledger(threading.Thread):
    """Looks at the ledger until it is told to stop; the most bytes that it has seen."""

    def __init__(self, server):
        super().__init__()
        self.server, self.most, self.models, self.stop = server, 0, set(), threading.Event()

    def run(self):
        while not self.stop.wait(0.02):
            text = self.server.metrics()
            found = re.findall(r'^kakeya_memory_bytes\{.*model_name="([^"]*)".*\} (\S+)$', text, re.MULTILINE)
            self.models.add(frozenset(name for name, _ in found))
            self.most = max(self.most, sum(float(value) for _, value in found))


class SeveralModels(unittest.TestCase):
    def served(self, *tables, **options):
        server = Served(*tables, **options)
        self.addCleanup(server.end)
        return server

    def test_answers_are_those_of_each_model_alone(self):
        expected = {name: alone(name) for name in MODELS}
        server = self.served(*map(table_of, MODELS))
        ledger = Ledger(server)
        ledger.start()

        def ask(number):
            choose = random.Random(number)
            name, prompt = choose.choice(list(MODELS)), choose.choice(PROMPTS)
            return (name, expected[name][prompt]) == server.complete(name, prompt)

        with concurrent.futures.ThreadPoolExecutor(8) as clients:
            equal = list(clients.map(ask, range(REQUESTS)))
        ledger.stop.set()
        ledger.join()
        self.assertEqual(equal.count(True), REQUESTS)
        self.assertLessEqual(ledger.most, MEMORY * MIB)
        self.assertEqual(max(map(len, ledger.models)), 2)
        self.assertEqual(set().union(*ledger.models), set(MODELS))
        print(f"models_test: {REQUESTS} requests, at most {ledger.most / MIB:.0f} MiB of {MEMORY} in the ledger")

    def test_clients_of_ollama_switch_models(self):
        server = self.served(table_of("counter", alias=["llama3"]), table_of("small"))
        client = ollama.Client(host=server.url)
        self.assertEqual([model.model for model in client.list().models], ["counter", "small"])
        self.assertEqual(client.ps().models, [])
        for name, answers in [("counter", "counter"), ("small:latest", "small"), ("llama3", "counter")]:
            self.assertEqual(client.generate(name, "Count", options={"num_predict": 2}).model, answers)
        self.assertEqual({model.model for model in client.ps().models}, {"counter", "small"})
        with self.assertRaises(ollama.ResponseError):
            client.generate("nobody", "Count")

    def test_requests_of_open_webui_switch_models(self):
        server = self.served(table_of("counter"), table_of("small", path=ROOT / "models/demo"))

        def lines_of(recorded, **fields):
            record = json.loads((ROOT / f"tests/clients/recorded/{recorded}.json").read_text())
            data = json.dumps({**record["body"], **fields}).encode() if "body" in record else None
            request = urllib.request.Request(server.url + record["path"], data, record["headers"], method=record["method"])
            with urllib.request.urlopen(request, timeout=60) as answer:
                texts = [line.removeprefix("data: ") for line in answer.read().decode().splitlines()]
            return [json.loads(text) for text in texts if text not in ("", "[DONE]")]

        [listed] = lines_of("open-webui-models")
        [tags] = lines_of("open-webui-ollama-models")
        self.assertEqual([model["id"] for model in listed["data"]], [model["model"] for model in tags["models"]])
        for model in listed["data"]:
            for chat in ("open-webui-chat", "open-webui-ollama-chat"):
                self.assertEqual({line["model"] for line in lines_of(chat, model=model["id"])}, {model["id"]}, chat)

    def test_clients_of_lm_studio_switch_models(self):
        server = self.served(table_of("counter"), table_of("small"))

        def call(path, **fields):
            data = json.dumps(fields).encode() if fields else None
            request = urllib.request.Request(f"{server.url}/api/v1/models{path}", data, {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)

        def loaded():
            return [instance["id"] for model in call("")["models"] for instance in model["loaded_instances"]]

        for model in call("")["models"]:
            name = model["key"]
            self.assertEqual(call("/load", model=name)["status"], "loaded")
            self.assertEqual(loaded(), [name])
            self.assertEqual(server.complete(name, "Count")[0], name)
            call("/unload", instance_id=name)
            for _ in range(600):
                if not loaded():
                    break
                threading.Event().wait(0.05)
            self.assertEqual(loaded(), [])

    def test_a_file_that_is_damaged_later_harms_its_model_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder, "model.gguf")
            data = bytearray(path_of("small").read_bytes()) if path_of("small").is_file() else None
            if data is None:
                self.skipTest("the published model is not there")
            model.write_bytes(data)
            server = self.served(table_of("counter"), table_of("small", path=model))
            self.assertTrue(server.complete("small", "The cat")[1])
            urllib.request.urlopen(urllib.request.Request(f"{server.url}/models/unload", b'{"model":"small"}', {"Content-Type": "application/json"}))
            while 'model_name="small"' in server.metrics():
                pass
            model.write_bytes(data[: len(data) // 2])
            with self.assertRaises(openai.APIStatusError) as refused:
                server.complete("small", "The cat")
            self.assertEqual(refused.exception.status_code, 503)
            self.assertNotIn(folder, str(refused.exception))
            self.assertTrue(server.complete("counter", "The cat")[1])
            model.write_bytes(data)
            self.assertTrue(server.complete("small", "The cat")[1])

    def test_a_server_that_was_killed_while_it_loaded_starts_anew(self):
        with tempfile.TemporaryDirectory() as cache:
            flags = ["--weights-cache", cache]
            for delay in (0.0, 0.05, 0.1, 0.2):
                server = Served(*map(table_of, MODELS), flags=flags)
                asked = threading.Thread(target=lambda: self.assertRaises(openai.OpenAIError, server.complete, "org/google", "The cat", 900))
                asked.start()
                threading.Event().wait(delay)
                server.kill()
                asked.join()
                server.forget()
            server = self.served(*map(table_of, MODELS), flags=flags)
            for name in MODELS:
                self.assertEqual(server.complete(name, PROMPTS[0])[0], name)

    def test_what_cannot_be_is_refused_at_the_start_with_its_place(self):
        with tempfile.TemporaryDirectory() as folder:
            for tables, flags, said in [
                (['[a]\nctx = 512\n'], [], "models.toml:1: expected model"),
                (['[a]\nmodel = "x"\nprot = 1\n'], [], "models.toml:3: there is no setting 'prot'"),
                (['[a]\nmodel = "x\n'], [], "models.toml:2: "),
                (["model = 1\n"], [], "models.toml:1: expected a table"),
                ([""], [], "expected a table for each model"),
                ([table_of("counter", path="/none/at/all")], [], "/none/at/all"),
                ([table_of("counter", ctx=0, alias=["counter"])], [], "'counter' twice"),
                ([table_of("counter")], ["--memory", "100MiB"], "counter: expected at most 100.0 MiB"),
                ([table_of("counter", memory="1MiB")], [], "expected more memory than its weights take"),
                ([table_of("counter")], ["--name", "a"], "--name"),
                ([table_of("counter")], ["--grpc", "127.0.0.1:0"], "--grpc"),
                ([table_of("counter")], ["--model-ttl", "-1"], "--model-ttl"),
            ]:
                path = write_tables(folder, *tables)
                memory = [] if "--memory" in flags else ["--memory", f"{MEMORY}MiB"]
                ended = subprocess.run([KAKEYA, "serve", "--port", "0", "--models", path, *memory, *flags], capture_output=True, text=True, timeout=60)
                self.assertEqual(ended.returncode, 2, tables)
                self.assertIn(said, ended.stderr, tables)
                self.assertEqual(ended.stderr.count("\n"), 1, ended.stderr)

    def test_a_limit_that_shrinks_gives_models_up(self):
        with tempfile.TemporaryDirectory() as folder:
            path = write_tables(folder, table_of("counter"), table_of("small", path=ROOT / "models/demo"))
            config = pathlib.Path(folder, "serve.toml")
            config.write_text(f'memory = "{MEMORY}MiB"\n')
            server = Server(KAKEYA, "--models", path, "--config", config, model=None)
            self.addCleanup(server.end)
            client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
            self.addCleanup(client.close)
            loaded = lambda: [model.id for model in client.models.list() if model.status["value"] == "loaded"]
            for name in ("counter", "small"):
                client.completions.create(model=name, prompt="Count", max_tokens=2)
            self.assertEqual(loaded(), ["counter", "small"])

            def shrink(memory):
                config.write_text(f'memory = "{memory}"\n')
                server.process.send_signal(signal.SIGHUP)

            shrink("1MiB")  # fits no model: the old limit stays
            shrink(f"{MODELS['small'][2]}MiB")
            for _ in range(600):
                if loaded() == ["small"]:
                    break
                threading.Event().wait(0.05)
            self.assertEqual(loaded(), ["small"])
            self.assertEqual(client.completions.create(model="counter", prompt="Count", max_tokens=2).model, "counter")
            self.assertEqual(loaded(), ["counter"])

    def test_flags_name_models_and_give_them_up(self):
        server = Server(KAKEYA, "--alias", "gpt-4o", "--model-ttl", "0.2", "--ctx", "512", model=None)
        self.addCleanup(server.end)
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        self.addCleanup(client.close)
        state = lambda: client.models.retrieve("gpt-4o").status["value"]
        self.assertEqual(state(), "unloaded")
        self.assertEqual(client.completions.create(model="gpt-4o", prompt="Count", max_tokens=2).model, "demo")
        for _ in range(600):
            if state() == "unloaded":
                break
            threading.Event().wait(0.05)
        self.assertEqual(state(), "unloaded")


if __name__ == "__main__":
    unittest.main()
