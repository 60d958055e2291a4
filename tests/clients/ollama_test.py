"""The official `ollama` package, unmodified, against `kakeya serve`. usage: ollama_test.py KAKEYA (tools/test_clients runs it)"""

import sys
import typing
import unittest

import ollama
from pydantic import BaseModel, Field

from serving import Server

KAKEYA = sys.argv.pop(1)
QUESTION = [{"role": "user", "content": "Count from 5 to 12."}]
ANSWER = "5, 6, 7, 8, 9, 10, 11, 12."


class Person(BaseModel):
    name: typing.Annotated[str, Field(max_length=12)]
    age: typing.Annotated[int, Field(ge=0, le=130)]


class Ollama(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(KAKEYA)
        cls.addClassCleanup(cls.server.end)
        cls.client = ollama.Client(host=cls.server.url)

    def chat(self, **options):
        return self.client.chat("demo", **{"messages": QUESTION, "options": {"temperature": 0}, **options})

    def test_chats_whole_and_streamed(self):
        whole = self.chat()
        self.assertEqual(whole.message.content, ANSWER)
        self.assertEqual(whole.done_reason, "stop")
        self.assertGreater(whole.eval_count, 0)
        pieces = list(self.chat(stream=True))
        self.assertEqual("".join(piece.message.content for piece in pieces), ANSWER)
        self.assertTrue(pieces[-1].done)
        self.assertEqual(self.chat(options={"temperature": 0, "num_predict": 3}).done_reason, "length")

    def test_generates(self):
        options = {"temperature": 0}
        self.assertEqual(self.client.generate("demo", QUESTION[0]["content"], options=options).response, ANSWER)
        pieces = self.client.generate("demo", "Once", raw=True, stream=True, options={"num_predict": 4})
        self.assertTrue("".join(piece.response for piece in pieces))
        self.assertEqual(self.client.generate("demo").done_reason, "load")

    def test_answers_have_the_form_that_is_asked_for(self):
        answer = self.chat(format=Person.model_json_schema(), options={"temperature": 1, "seed": 3})
        Person.model_validate_json(answer.message.content)

    def test_takes_tools_and_their_results(self):
        def weather(place: str) -> str:
            """Weather of a place."""
            return place

        call = {"function": {"name": "weather", "arguments": {"place": "Bern"}}}
        messages = [*QUESTION, {"role": "assistant", "content": "", "tool_calls": [call]},
                    {"role": "tool", "tool_name": "weather", "content": "rain"}]
        answer = self.chat(messages=messages, tools=[weather], options={"num_predict": 5, "temperature": 0})
        self.assertEqual(answer.eval_count, 5)

    def test_embeds(self):
        made = self.client.embed("demo", ["a cat", "a dog"])
        self.assertEqual(len(made.embeddings), 2)
        self.assertAlmostEqual(sum(number * number for number in made.embeddings[0]), 1.0, places=4)
        self.assertEqual(list(self.client.embeddings("demo", "a cat").embedding), list(made.embeddings[0]))

    def test_says_what_is_there(self):
        self.assertEqual([model.model for model in self.client.list().models], ["demo"])
        self.assertEqual([model.model for model in self.client.ps().models], ["demo"])
        self.assertIn("tools", self.client.show("demo").capabilities)
        with self.assertRaises(ollama.ResponseError) as refused:
            self.client.chat("other", messages=QUESTION)
        self.assertEqual(refused.exception.status_code, 404)
        with self.assertRaisesRegex(ollama.ResponseError, "options.mirostat: expected"):
            self.chat(options={"mirostat": 2})


if __name__ == "__main__":
    unittest.main()
