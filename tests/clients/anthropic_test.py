"""The official `anthropic` package, unmodified, against `kakeya serve`.
usage: anthropic_test.py KAKEYA (tools/test_clients runs it)"""

import sys
import unittest

import anthropic

from serving import Server

KAKEYA = sys.argv.pop(1)
QUESTION = [{"role": "user", "content": "Count from 5 to 12."}]
ANSWER = "5, 6, 7, 8, 9, 10, 11, 12."


class Anthropic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(KAKEYA)
        cls.addClassCleanup(cls.server.end)
        cls.client = anthropic.Anthropic(base_url=cls.server.url, api_key="none", max_retries=0)

    def ask(self, **options):
        return self.client.messages.create(model="demo", max_tokens=60, messages=QUESTION, **options)

    def test_answers_whole(self):
        message = self.ask(extra_body={"temperature": 0})
        self.assertEqual([block.text for block in message.content], [ANSWER])
        self.assertEqual(message.stop_reason, "end_turn")
        counted = self.client.messages.count_tokens(model="demo", messages=QUESTION)
        self.assertEqual(counted.input_tokens, message.usage.input_tokens + message.usage.cache_read_input_tokens)

    def test_answers_in_events(self):
        with self.client.messages.stream(model="demo", max_tokens=60, messages=QUESTION, system="Be brief.",
                                         stop_sequences=[" 9"], extra_body={"temperature": 0}) as stream:
            text = "".join(stream.text_stream)
            message = stream.get_final_message()
        self.assertEqual(text, message.content[0].text)
        self.assertEqual((message.stop_reason, message.stop_sequence), ("stop_sequence", " 9"))

    def test_takes_tools_and_their_results(self):
        tool = {"name": "weather", "description": "of a place",
                "input_schema": {"type": "object", "properties": {"place": {"type": "string"}}}}
        messages = QUESTION + [
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"place": "Bern"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}]}]
        message = self.client.messages.create(model="demo", max_tokens=5, messages=messages, tools=[tool])
        self.assertEqual(message.usage.output_tokens, 5)
        with_tools = self.client.messages.count_tokens(model="demo", messages=messages, tools=[tool])
        without = self.client.messages.count_tokens(model="demo", messages=messages)
        self.assertGreater(with_tools.input_tokens, without.input_tokens)

    def test_says_what_is_wrong(self):
        with self.assertRaises(anthropic.BadRequestError) as refused:
            self.ask(tools=[{"type": "web_search_20250305", "name": "web_search"}])
        self.assertIn("tools[0]: expected", str(refused.exception))
        with self.assertRaises(anthropic.NotFoundError):
            self.client.messages.create(model="other", max_tokens=1, messages=QUESTION)


if __name__ == "__main__":
    unittest.main()
