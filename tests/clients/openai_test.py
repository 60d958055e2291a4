"""The official `openai` package, unmodified, and the curl lines of docs/serving.md against
`kakeya serve`. usage: openai_test.py KAKEYA (tools/test_clients runs it)"""

import json
import re
import ssl
import subprocess
import sys
import tempfile
import typing
import unittest

import httpx2
import openai
import pydantic

from serving import ROOT, Server, make_certificate, make_keys

KAKEYA = sys.argv.pop(1)
QUESTION = [{"role": "user", "content": "Count from 5 to 12."}]
ANSWER = "5, 6, 7, 8, 9, 10, 11, 12."


class OpenAi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(KAKEYA)
        cls.addClassCleanup(cls.server.end)
        cls.address = cls.server.url
        cls.client = openai.OpenAI(base_url=cls.address + "/v1", api_key="none", max_retries=0)

    def ask(self, **options):
        return self.client.chat.completions.create(
            model="demo", **{"messages": QUESTION, "temperature": 0, **options})

    def test_lists_its_model(self):
        self.assertEqual([model.id for model in self.client.models.list()], ["demo"])
        model = self.client.models.retrieve("demo")
        self.assertEqual(model.id, "demo")
        self.assertGreater(model.max_model_len, 0)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_answers_whole_and_streamed(self):
        whole = self.ask()
        self.assertEqual(whole.choices[0].message.content, ANSWER)
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        self.assertEqual(whole.usage.total_tokens,
                         whole.usage.prompt_tokens + whole.usage.completion_tokens)
        pieces, usage = [], None
        for chunk in self.ask(stream=True, stream_options={"include_usage": True}):
            pieces += [choice.delta.content or "" for choice in chunk.choices]
            usage = chunk.usage or usage
        self.assertEqual("".join(pieces), ANSWER)
        self.assertEqual(usage.total_tokens, whole.usage.total_tokens)

    def test_a_second_turn_pays_for_what_is_new(self):
        text = "Remember: " + " ".join(str(i * i % 1000) for i in range(150))
        messages = [{"role": "user", "content": text}]
        for turn in range(3):
            answer = self.client.chat.completions.create(model="demo", messages=messages,
                                                         max_tokens=8, temperature=0)
            cached = answer.usage.prompt_tokens_details.cached_tokens
            if turn == 0:
                self.assertLess(cached, 64)
            else:
                self.assertGreater(cached, 200)
            messages += [{"role": "assistant", "content": answer.choices[0].message.content},
                         {"role": "user", "content": "Go on."}]

    def test_streams_while_it_generates(self):
        # Tokens that a slow reader finds together come as one piece, so a short answer may be one.
        pieces = [chunk.choices[0].delta.content
                  for chunk in self.ask(stream=True, max_tokens=400, extra_body={"ignore_eos": True})]
        self.assertGreater(len(list(filter(None, pieces))), 1)

    def test_stops_and_is_cut(self):
        self.assertEqual(self.ask(stop=" 9").choices[0].message.content, "5, 6, 7, 8,")
        cut = self.ask(max_completion_tokens=4).choices[0]
        self.assertEqual(cut.finish_reason, "length")

    def test_gives_log_probabilities(self):
        content = self.ask(logprobs=True, top_logprobs=3).choices[0].logprobs.content
        self.assertEqual("".join(token.token for token in content).replace("<turn|>", ""), ANSWER)
        for token in content:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertEqual(token.logprob, max(top.logprob for top in token.top_logprobs))

    def test_gives_several_choices(self):
        options = {"n": 3, "temperature": 2, "top_p": 1, "seed": 7, "max_tokens": 20,
                   "extra_body": {"top_k": 0}}

        def texts():
            answer = self.ask(**options)
            self.assertEqual([choice.index for choice in answer.choices], [0, 1, 2])
            return [choice.message.content for choice in answer.choices]
        first = texts()
        self.assertEqual(first, texts())
        self.assertGreater(len(set(first)), 1)
        streamed = ["", "", ""]
        for chunk in self.ask(stream=True, **options):
            for choice in chunk.choices:
                streamed[choice.index] += choice.delta.content or ""
        self.assertEqual(streamed, first)

    def test_completes_texts_and_ids(self):
        text = "<|turn>user\nCount from 5 to 12.<turn|>\n<|turn>model\n"
        by_text = self.client.completions.create(model="demo", prompt=text, temperature=0,
                                                 max_tokens=40)
        self.assertEqual(by_text.object, "text_completion")
        ids = json.loads(self.post("/tokenize", {"content": text}))["tokens"]
        by_ids = self.client.completions.create(model="demo", prompt=ids, temperature=0,
                                                max_tokens=40, logprobs=2)
        self.assertEqual(by_ids.choices[0].text, by_text.choices[0].text)
        self.assertEqual(len(by_ids.choices[0].logprobs.tokens), by_ids.usage.completion_tokens)
        streamed = self.client.completions.create(model="demo", prompt=text, temperature=0,
                                                  max_tokens=40, stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in streamed),
                         by_text.choices[0].text)

    def test_completes_several_prompts(self):
        prompts = ["5, 6, 7", "a cat"]
        several = self.client.completions.create(model="demo", prompt=prompts, temperature=0,
                                                 max_tokens=4, n=2)
        self.assertEqual([choice.index for choice in several.choices], [0, 1, 2, 3])
        for index, prompt in enumerate(prompts):
            alone = self.client.completions.create(model="demo", prompt=prompt, temperature=0,
                                                   max_tokens=4)
            for choice in several.choices[2 * index:2 * index + 2]:
                self.assertEqual(choice.text, alone.choices[0].text)

    def test_says_how_likely_a_prompt_is(self):
        echoed = self.client.completions.create(model="demo", prompt="5, 6, 7, 8", echo=True,
                                                max_tokens=0, logprobs=1).choices[0]
        self.assertEqual(echoed.text, "5, 6, 7, 8")
        self.assertEqual("".join(echoed.logprobs.tokens), echoed.text)
        self.assertEqual(echoed.logprobs.text_offset[0], 0)
        self.assertTrue(all(value <= 0 for value in echoed.logprobs.token_logprobs if value))

    def test_embeds_many_texts(self):
        many = self.client.embeddings.create(model="demo", input=[f"text {i}" for i in range(300)])
        self.assertEqual([item.index for item in many.data], list(range(300)))
        with self.assertRaises(openai.BadRequestError) as refused:
            self.client.embeddings.create(model="demo", input="a", dimensions=64)
        self.assertEqual(refused.exception.param, "dimensions")

    def test_a_body_that_is_too_large_is_said_at_once(self):
        with self.assertRaises(openai.APIStatusError) as refused:
            self.client.chat.completions.create(
                model="demo", messages=[{"role": "user", "content": "a" * (9 << 20)}], timeout=20)
        self.assertEqual(refused.exception.status_code, 413)

    def test_embeds_texts(self):
        # The client asks for base64, unless it is told otherwise.
        texts = ["a cat", "a dog"]
        by_default = self.client.embeddings.create(model="demo", input=texts)
        as_floats = self.client.embeddings.create(model="demo", input=texts,
                                                  encoding_format="float")
        for a, b in zip(by_default.data, as_floats.data):
            self.assertAlmostEqual(sum(x * x for x in b.embedding), 1.0, places=4)
            for x, y in zip(a.embedding, b.embedding):
                self.assertAlmostEqual(x, y, places=6)
        self.assertNotEqual(as_floats.data[0].embedding, as_floats.data[1].embedding)
        mean = self.client.embeddings.create(model="demo", input=texts, encoding_format="float",
                                             extra_body={"pooling": "mean"})
        self.assertNotEqual(mean.data[0].embedding, as_floats.data[0].embedding)

    def test_takes_tools_and_their_results(self):
        tool = {"type": "function", "function": {
            "name": "weather", "description": "of a place",
            "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}}
        call = {"id": "1", "type": "function",
                "function": {"name": "weather", "arguments": "{\"place\": \"Bern\"}"}}
        messages = QUESTION + [{"role": "assistant", "tool_calls": [call]},
                               {"role": "tool", "tool_call_id": "1", "content": "rain"}]
        prompt = json.loads(self.post("/apply-template",
                                      {"messages": messages, "tools": [tool]}))["prompt"]
        for part in ("weather", "Bern", "rain"):
            self.assertIn(part, prompt)
        answer = self.client.chat.completions.create(model="demo", messages=messages, tools=[tool],
                                                     max_tokens=5, temperature=0)
        self.assertEqual(answer.usage.completion_tokens, 5)

    def test_answers_have_the_form_that_is_asked_for(self):
        class Person(pydantic.BaseModel):
            name: typing.Annotated[str, pydantic.Field(max_length=12)]
            age: typing.Annotated[int, pydantic.Field(ge=0, le=130)]
            likes: typing.Annotated[list[typing.Literal["tea", "rain"]], pydantic.Field(max_length=2)]

        for temperature in (0, 1.5):
            answer = self.client.chat.completions.parse(
                model="demo", messages=QUESTION, response_format=Person, temperature=temperature, seed=3)
            self.assertIsInstance(answer.choices[0].message.parsed, Person)
        streamed = ""
        with self.client.chat.completions.stream(
                model="demo", messages=QUESTION, response_format=Person, temperature=1, seed=5) as stream:
            for event in stream:
                if event.type == "content.delta":
                    streamed += event.delta
        Person.model_validate_json(streamed)
        colour = self.ask(temperature=2, extra_body={"guided_choice": ["red", "blue"]})
        self.assertIn(colour.choices[0].message.content, ("red", "blue"))
        unique = {"type": "array", "items": {"enum": [1]}, "maxItems": 2, "uniqueItems": True}
        with self.assertRaisesRegex(openai.BadRequestError, "uniqueItems at #"):
            self.ask(response_format={"type": "json_schema",
                                      "json_schema": {"name": "unique", "strict": True, "schema": unique}})
        raw = self.client.chat.completions.with_raw_response.create(
            model="demo", messages=QUESTION, extra_body={"guided_json": unique})
        self.assertEqual(raw.headers["x-kakeya-not-enforced"], "uniqueItems at #")

    def respond(self, **options):
        return self.client.responses.create(model="demo",
                                            **{"input": QUESTION, "temperature": 0, **options})

    def test_responds_whole_and_streamed(self):
        whole = self.respond(instructions="Be brief.", metadata={"k": "v"})
        said = self.ask(messages=[{"role": "system", "content": "Be brief."}] + QUESTION)
        self.assertEqual(whole.output_text, said.choices[0].message.content)
        self.assertEqual((whole.status, whole.metadata), ("completed", {"k": "v"}))
        self.assertEqual(whole.usage.total_tokens, said.usage.total_tokens)
        pieces, last = [], None
        for event in self.respond(stream=True):
            if event.type == "response.output_text.delta":
                pieces.append(event.delta)
            last = event
        self.assertEqual("".join(pieces), ANSWER)
        self.assertEqual(last.type, "response.completed")
        self.assertEqual(last.response.output_text, ANSWER)
        with self.client.responses.stream(model="demo", input=QUESTION, temperature=0) as stream:
            snapshots = [event.snapshot for event in stream
                         if event.type == "response.output_text.delta"]
            self.assertEqual(snapshots[-1], ANSWER)
            self.assertEqual(stream.get_final_response().output_text, ANSWER)
        cut = self.respond(max_output_tokens=4)
        self.assertEqual((cut.status, cut.incomplete_details.reason),
                         ("incomplete", "max_output_tokens"))

    def test_keeps_responses_and_goes_on_from_them(self):
        first = self.respond()
        self.assertEqual(self.client.responses.retrieve(first.id).output_text, ANSWER)
        turn = {"role": "user", "content": "Go on."}
        second = self.respond(input="Go on.", previous_response_id=first.id, max_output_tokens=8)
        said = self.ask(messages=QUESTION + [{"role": "assistant", "content": ANSWER}, turn],
                        max_tokens=8)
        self.assertEqual(second.output_text, said.choices[0].message.content)
        self.assertEqual(second.usage.input_tokens, said.usage.prompt_tokens)
        # A client that keeps the conversation itself sends items back as they came.
        third = self.respond(input=QUESTION + first.output + [turn], max_output_tokens=8)
        self.assertEqual(third.output_text, second.output_text)
        asked = self.client.responses.input_items.list(first.id)
        self.assertEqual([item.content[0].text for item in asked],
                         [message["content"] for message in QUESTION])
        counted = self.client.responses.input_tokens.count(model="demo", input=QUESTION)
        self.assertEqual(counted.input_tokens, first.usage.input_tokens)
        self.client.responses.delete(first.id)
        with self.assertRaises(openai.NotFoundError):
            self.client.responses.retrieve(first.id)
        with self.assertRaises(openai.NotFoundError) as refused:
            self.respond(previous_response_id=first.id)
        self.assertEqual(refused.exception.code, "previous_response_not_found")

    def test_responses_have_the_form_that_is_asked_for(self):
        class Colour(pydantic.BaseModel):
            name: typing.Literal["red", "blue"]

        parsed = self.client.responses.parse(model="demo", input=QUESTION, text_format=Colour,
                                             temperature=1, extra_body={"seed": 3})
        self.assertIsInstance(parsed.output_parsed, Colour)
        self.assertEqual(parsed.text.format.type, "json_schema")

    def test_responses_take_tools_and_their_results(self):
        tool = {"type": "function", "name": "weather", "description": "of a place", "strict": True,
                "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}
        items = QUESTION + [
            {"type": "function_call", "call_id": "1", "name": "weather",
             "arguments": "{\"place\": \"Bern\"}"},
            {"type": "function_call_output", "call_id": "1", "output": "rain"}]
        answer = self.respond(input=items, tools=[tool], max_output_tokens=5)
        self.assertEqual(answer.usage.output_tokens, 5)
        self.assertEqual(answer.tools[0].name, "weather")
        with self.assertRaises(openai.BadRequestError) as refused:
            self.respond(tools=[{"type": "web_search"}])
        self.assertEqual(refused.exception.param, "tools[0].type")

    def test_refuses_in_the_clients_words(self):
        with self.assertRaises(openai.NotFoundError) as refused:
            self.client.chat.completions.create(model="other", messages=QUESTION)
        self.assertEqual(refused.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as refused:
            self.ask(temperature=7)
        self.assertEqual(refused.exception.param, "temperature")

    def test_counts_what_it_does(self):
        self.ask()
        text = self.client.with_options().get("/../metrics", cast_to=str)
        tokens = re.search(r"^kakeya_tokens_total (\S+)", text, re.MULTILINE)
        self.assertGreater(float(tokens.group(1)), 0)
        self.assertIn("kakeya_first_token_seconds_count", text)
        self.assertRegex(text, r'kakeya_memory_bytes\{class="weights"\} [1-9]')

    def test_curl_lines_of_the_documents_work(self):
        document = (ROOT / "docs/serving.md").read_text()
        lines = re.findall(r"^curl (?:.*\\\n)*.*", document, re.MULTILINE)
        self.assertGreaterEqual(len(lines), 4)
        for line in lines:
            if "--cacert" in line:  # of a server with TLS and keys
                continue
            line = line.replace("http://127.0.0.1:8080", self.address)
            got = subprocess.run(["bash", "-c", line.replace("curl", "curl -sf --max-time 60", 1)],
                                 capture_output=True, text=True)
            self.assertEqual(got.returncode, 0, line)
            self.assertTrue(got.stdout, line)

    def post(self, path, body):
        got = subprocess.run(
            ["curl", "-sf", self.address + path, "-H", "Content-Type: application/json",
             "-d", json.dumps(body)], capture_output=True, text=True, check=True)
        return got.stdout


class OpenAiOverTls(unittest.TestCase):
    def test_answers_who_has_a_key(self):
        with tempfile.TemporaryDirectory() as folder:
            make_certificate(folder, "IP:127.0.0.1")
            key, = make_keys(KAKEYA, folder, "ann")
            server = Server(KAKEYA, "--keys", f"{folder}/keys", "--tls-cert", f"{folder}/tls.crt", "--tls-key", f"{folder}/tls.key")
            try:
                self.assertTrue(server.url.startswith("https://"))
                trust = ssl.create_default_context(cafile=f"{folder}/tls.crt")

                def client(api_key):
                    return openai.OpenAI(base_url=server.url + "/v1", api_key=api_key, max_retries=0,
                                         http_client=httpx2.Client(verify=trust))
                pieces = client(key).chat.completions.create(
                    model="demo", messages=QUESTION, temperature=0, stream=True)
                self.assertEqual(
                    "".join(piece.choices[0].delta.content or "" for piece in pieces), ANSWER)
                with self.assertRaises(openai.AuthenticationError):
                    client("another").models.list()
            finally:
                server.end()


if __name__ == "__main__":
    unittest.main()
