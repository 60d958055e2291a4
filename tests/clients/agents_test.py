"""Frameworks for agents and for structured output, as published, against `kakeya serve`: LangChain, instructor, pydantic-ai,
the OpenAI Agents SDK, LiteLLM's bridges. usage: agents_test.py KAKEYA (tools/test_clients --all runs it)"""

import asyncio
import sys
import typing
import unittest

import agents
import instructor
import litellm
import openai
import pydantic_ai
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from serving import Server

KAKEYA = sys.argv.pop(1)
QUESTION = "Count from 5 to 12."
ANSWER = "5, 6, 7, 8, 9, 10, 11, 12."
TOKENS = 200


class Person(BaseModel):
    """A person."""
    name: typing.Annotated[str, Field(max_length=12)]
    age: typing.Annotated[int, Field(ge=0, le=130)]


class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(KAKEYA)
        cls.addClassCleanup(cls.server.end)
        cls.address = cls.server.url
        cls.url = cls.address + "/v1"
        agents.set_tracing_disabled(True)

    def langchain(self, **options):
        return ChatOpenAI(model="demo", base_url=self.url, api_key="none", temperature=0, max_tokens=TOKENS, **options)

    def test_langchain_structured_output(self):
        # "json_mode" asks for any JSON object, which this model knows nothing to put into.
        for method in ("json_schema", "function_calling"):
            model = self.langchain().with_structured_output(Person, method=method)
            self.assertIsInstance(model.invoke("Name a person."), Person)

    def test_langchain_tools(self):
        @tool
        def weather(place: str) -> str:
            """Weather of a place."""
            return "rain in " + place

        called = self.langchain().bind_tools([weather], tool_choice="any").invoke("Weather?")
        self.assertEqual(called.tool_calls[0]["name"], "weather")
        self.assertIsInstance(called.tool_calls[0]["args"]["place"], str)
        pieces = self.langchain().bind_tools([weather], tool_choice="none").stream(QUESTION)
        self.assertEqual("".join(piece.content for piece in pieces), ANSWER)

    def test_langchain_responses(self):
        self.assertEqual(self.langchain(use_responses_api=True).invoke(QUESTION).text, ANSWER)

    def test_instructor(self):
        for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
            client = instructor.from_openai(openai.OpenAI(base_url=self.url, api_key="none"), mode=mode)
            person = client.chat.completions.create(
                model="demo", messages=[{"role": "user", "content": "Name a person."}], response_model=Person,
                max_tokens=TOKENS, max_retries=0)
            self.assertIsInstance(person, Person)

    def test_pydantic_ai(self):
        model = OpenAIChatModel("demo", provider=OpenAIProvider(base_url=self.url, api_key="none"))
        settings = {"max_tokens": TOKENS, "temperature": 0}
        for output in (pydantic_ai.NativeOutput(Person), pydantic_ai.ToolOutput(Person)):
            agent = pydantic_ai.Agent(model, output_type=output, model_settings=settings)
            self.assertIsInstance(agent.run_sync(QUESTION).output, Person)
        self.assertEqual(pydantic_ai.Agent(model, model_settings=settings).run_sync(QUESTION).output, ANSWER)

    def test_openai_agents(self):
        client = openai.AsyncOpenAI(base_url=self.url, api_key="none")
        asked = []

        @agents.function_tool
        def weather(place: str) -> str:
            """Weather of a place."""
            asked.append(place)
            return "rain"

        def run(model, settings=None, **options):
            settings = agents.ModelSettings(temperature=0, max_tokens=TOKENS, **(settings or {}))
            agent = agents.Agent(name="agent", model=model("demo", client), model_settings=settings, **options)
            return asyncio.run(agents.Runner.run(agent, QUESTION, max_turns=3)).final_output

        for model in (agents.OpenAIChatCompletionsModel, agents.OpenAIResponsesModel):
            asked.clear()
            self.assertEqual(run(model), ANSWER)
            self.assertIsInstance(run(model, output_type=Person), Person)
            self.assertIsInstance(run(model, {"tool_choice": "required"}, tools=[weather]), str)
            self.assertEqual(len(asked), 1)

    def test_litellm(self):
        messages = [{"role": "user", "content": QUESTION}]
        openai_like = {"model": "openai/demo", "api_base": self.url, "api_key": "none"}
        whole = litellm.completion(**openai_like, messages=messages, response_format=Person, max_tokens=TOKENS)
        Person.model_validate_json(whole.choices[0].message.content)
        function = {"name": "save", "parameters": Person.model_json_schema()}
        called = litellm.completion(**openai_like, messages=messages, max_tokens=TOKENS, tool_choice="required",
                                    tools=[{"type": "function", "function": function}])
        Person.model_validate_json(called.choices[0].message.tool_calls[0].function.arguments)
        anthropic = litellm.completion(model="anthropic/demo", api_base=self.address, api_key="none", temperature=0,
                                       messages=messages, max_tokens=TOKENS)
        self.assertEqual(anthropic.choices[0].message.content, ANSWER)
        response = litellm.responses(**openai_like, input=QUESTION, temperature=0, max_output_tokens=TOKENS)
        self.assertEqual(response.output[-1].content[0].text, ANSWER)


if __name__ == "__main__":
    unittest.main(warnings="ignore")
