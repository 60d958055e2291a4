"""bench/peers/compare_servers.py: its arithmetic, and that both servers get the same load. The
servers are programs of this file that stream made-up tokens."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/peers"))

import compare_servers  # noqa: E402  (found by the path above)

# Answers every prompt with as many events as it asks for tokens, and notes the prompts in LOG.
SERVER = """#!{python}
import http.server, json, sys
port = int(sys.argv[sys.argv.index("--port") + 1])

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{{"data": [{{"id": "m"}}]}}')

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open({log!r}, "a") as log:
            log.write(body["prompt"] + "\\n")
        self.send_response({status})
        self.end_headers()
        for _ in range(body["max_tokens"]):
            self.wfile.write(b'data: {{"choices": [{{"text": "x"}}]}}\\n\\n')
        used = {{"choices": [], "usage": {{"completion_tokens": body["max_tokens"]}}}}
        self.wfile.write(b"data: " + json.dumps(used).encode() + b"\\n\\ndata: [DONE]\\n\\n")

    def log_message(self, *arguments):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


class CompareServersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def server(self, name, status=200):
        path = self.folder / name
        log = str(self.folder / (name + ".prompts"))
        path.write_text(SERVER.format(python=sys.executable, log=log, status=status), encoding="utf-8")
        path.chmod(0o755)
        return path

    def run_main(self, ours, theirs, turns=1):
        words = f"--model m.gguf --kakeya {ours} --llama-server {theirs} --logs {self.folder}".split()
        words += "--clients 1,3 --requests 2 --tokens 5 --words 4 --pairs 2".split()
        words += ["--turns", str(turns), "--json", str(self.folder / "report.json")]
        errors = io.StringIO()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
            return compare_servers.main(words), errors.getvalue()

    def test_both_get_the_same_prompts(self):
        code, errors = self.run_main(self.server("ours"), self.server("theirs"))
        self.assertEqual((code, errors), (0, ""))
        ours, theirs = (sorted((self.folder / f"{name}.prompts").read_text().splitlines()) for name in ("ours", "theirs"))
        self.assertEqual(ours, theirs)
        # A prompt a client to warm up, two that are measured; 1 and 3 clients; two pairs.
        self.assertEqual(len(ours), (1 + 2) * (1 + 3) * 2)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual([row["clients"] for row in report["measures"]], [1, 3])
        for row in report["measures"]:
            for pair in row["pairs"]:
                for engine in compare_servers.compare.ENGINES:
                    self.assertEqual(pair[engine]["tokens"], 5 * pair[engine]["answers"])

    def test_a_conversation_goes_on_from_its_prompt_and_answer(self):
        code, errors = self.run_main(self.server("ours"), self.server("theirs"), turns=2)
        self.assertEqual((code, errors), (0, ""))
        prompts = (self.folder / "ours.prompts").read_text().splitlines()
        self.assertEqual(len(prompts), 2 * (1 + 2) * (1 + 3) * 2)
        # Each first prompt, and what goes on from it and the five tokens of its answer.
        for prompt in [p for p in prompts if len(p.split()) < 10]:
            self.assertTrue(any(p.startswith(prompt + "xxxxx ") for p in prompts), prompt)
        report = json.loads((self.folder / "report.json").read_text())
        self.assertEqual(report["measures"][0]["pairs"][0]["kakeya"]["answers"], 2)

    def test_a_server_that_refuses_or_ends_is_one_line(self):
        code, errors = self.run_main(self.server("ours", status=500), self.server("theirs"))
        self.assertEqual(code, 1)
        self.assertIn("status 500", errors)
        code, errors = self.run_main(pathlib.Path("/bin/false"), self.server("theirs"))
        self.assertEqual(code, 1)
        self.assertIn("does not answer", errors)

    def test_samples(self):
        answers = [compare_servers.Answer(sent=1.0, first=1.5, last=3.0, tokens=10), compare_servers.Answer(2.0, 2.1, 5.0, 30)]
        sample = compare_servers.sample_of(answers)
        self.assertAlmostEqual(sample["tokens_per_second"], 10.0)  # 40 tokens from 1 s to 5 s
        self.assertAlmostEqual(sample["first_token_seconds"], 0.3)
        self.assertAlmostEqual(sample["first_token_seconds_p99"], 0.5)


if __name__ == "__main__":
    unittest.main()
