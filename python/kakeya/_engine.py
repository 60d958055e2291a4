"""The engine: a loaded model."""

import asyncio
import logging
import pathlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Unpack, cast

import numpy as np
import numpy.typing as npt

from kakeya import _core
from kakeya._core import Generation
from kakeya._functions import Function, as_tools
from kakeya._options import (AnyPath, ChatOptions, EmbeddingOptions, EngineOptions, GenerateOptions, Message,
                             SessionOptions, TokenIds)
from kakeya._session import Session
from kakeya._tools import Tool, ToolChoice, forced_by, names_of

_LOG = logging.getLogger("kakeya")
Ids = npt.NDArray[np.int32]
_DEMO = pathlib.Path(__file__).parent / "share/kakeya/models/demo"


def _with_model(model: AnyPath | None, options: EngineOptions) -> dict[str, object]:
    return {**options, "model": _DEMO if model is None else model}


class Engine:
    """A loaded model, which never changes; any number of threads may use it at once.

    `model` is a folder or a GGUF file; without one it is the demo model that the package carries.
    `on_progress` is called now and then while it loads, with bytes done and in all.
    """

    def __init__(self, model: AnyPath | None = None, *, on_progress: Callable[[int, int], object] | None = None,
                 **options: Unpack[EngineOptions]) -> None:
        self._notes = _core.Notes()
        self._core = _core.open_engine(_with_model(model, options), on_progress, self._notes)
        for note in self.notes:
            _LOG.warning(note)
        self._forms = _core.Forms(self._core)

    @staticmethod
    def estimate(model: AnyPath | None = None, **options: Unpack[EngineOptions]) -> dict[str, int]:
        """Bytes that the engine and one session will take, by class, from the headers alone."""
        return _core.estimate(_with_model(model, options))

    def chat(self, messages: str | Sequence[Message], *, thinking: bool | None = None,
             **options: Unpack[GenerateOptions]) -> str:
        """The answer to a conversation, or to one message of the user; call() has its thoughts, too."""
        batch = self._chat_batch(messages, thinking, options)
        _run(batch)
        return batch.take_text()

    def stream(self, messages: str | Sequence[Message], *, thinking: bool | None = None,
               **options: Unpack[GenerateOptions]) -> Iterator[str]:
        """As chat(), piece by piece: no pass is run before the piece it makes is asked for."""
        batch = self._chat_batch(messages, thinking, options)
        return _pieces(batch)

    async def astream(self, messages: str | Sequence[Message], *, thinking: bool | None = None,
                      **options: Unpack[GenerateOptions]) -> AsyncIterator[str]:
        """As stream(), each pass on a thread of asyncio's pool; ends when the task is cancelled."""
        batch = self._chat_batch(messages, thinking, options)
        try:
            more = True
            while more:
                more = await asyncio.to_thread(batch.step)
                piece = batch.take_text()
                if piece:
                    yield piece
        finally:
            batch.stop()

    def call(self, messages: str | Sequence[Message], tools: Sequence[Tool | Function], *, tool_choice: ToolChoice = "auto",
             parallel_tool_calls: bool = True, thinking: bool | None = None,
             **options: Unpack[GenerateOptions]) -> Message:
        """The assistant's message, which may call tools; its thoughts stand apart.

        A tool is a dict as OpenAI has it, or a function with type hints (tool_of()), which is not run: answer_calls()
        does. Calls are held to the tools' schemas. `tool_choice`: auto, none, required, or one of the tools.
        `parallel_tool_calls` False: the answer ends behind its first call.
        """
        known = as_tools(tools)
        required, only = forced_by(tool_choice, names_of(known))
        shown = [] if tool_choice == "none" else known
        ids = self.apply_chat_template(messages, thinking=thinking, tools=shown)
        batch = _core.create_call(self._forms, ids, options, shown, required, only, parallel_tool_calls,
                                  thinking)
        _run(batch)
        return cast(Message, batch.message())

    def generate(self, prompts: Sequence[str | TokenIds], *, at_once: int = 64,
                 **options: Unpack[GenerateOptions]) -> list[Generation]:
        """Goes on with each prompt, which no chat template writes: a text, or ids.

        One pass runs a token of each; every one gets what it would get alone. `at_once`: most that
        run together, the others wait for their turn.
        """
        if isinstance(prompts, str):
            raise TypeError("prompts: expected a sequence of prompts, got str; put it into a list")
        ids = [self.encode(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]
        batch = _core.create_batch(self._forms, ids, options, at_once, False, None)
        _run(batch)
        return batch.generations()

    def embed(self, text: str | TokenIds, **options: Unpack[EmbeddingOptions]) -> npt.NDArray[np.float32]:
        """The vector [hidden_size] of a text."""
        ids = self.encode(text) if isinstance(text, str) else text
        return self._core.embed(ids, options)

    def encode(self, text: str, *, begin: bool = True, parse_special: bool = True) -> Ids:
        """The tokens of a text, behind the beginning-of-sequence token if the model has one.

        `begin` False: without it, for what goes behind other tokens. `parse_special` False: text that
        spells a control token stays text.
        """
        return self._core.encode(text, begin, parse_special)

    def decode(self, ids: TokenIds, *, skip_special: bool = True) -> str:
        return self._core.decode(ids, skip_special)

    def apply_chat_template(self, messages: str | Sequence[Message], **options: Unpack[ChatOptions]) -> Ids:
        """The tokens of a conversation, as the model's own template writes it."""
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        if "tools" in options:
            options["tools"] = as_tools(options["tools"])
        return self._core.encode_chat(messages, options)

    def session(self, **options: Unpack[SessionOptions]) -> Session:
        """A timeline of tokens; with the engine's options where none are given."""
        return Session(_core.create_session(self._forms, options))

    def recommended_sampling(self) -> GenerateOptions:
        """Sampling as the model's publisher recommends it, to be given to chat() and its like."""
        return cast(GenerateOptions, self._core.recommended_sampling())

    def footprint(self) -> dict[str, int]:
        """Bytes that are allocated for weights and all sessions, by class."""
        return self._core.footprint()

    @property
    def backend(self) -> str:
        return self._core.backend

    @property
    def threads(self) -> int:
        return self._core.threads

    @property
    def draft_kind(self) -> str:
        """The proposer of drafts: none, dflash or ngram."""
        return self._core.draft_kind

    @property
    def notes(self) -> list[str]:
        """What is done without, a line each, oldest first, such as a cache that cannot be written.

        Those of loading went to the log `kakeya`, too.
        """
        return self._notes.lines()

    @property
    def memory_plan(self) -> str:
        """The default session as fit_memory made it, in words."""
        return self._core.memory_plan

    @property
    def stop_ids(self) -> Ids:
        """Tokens that end a generation, as the model has them."""
        return self._core.stop_ids

    @property
    def vocab_size(self) -> int:
        return self._core.vocab_size

    @property
    def hidden_size(self) -> int:
        return self._core.hidden_size

    @property
    def max_context(self) -> int:
        return self._core.max_context

    @property
    def model_fingerprint(self) -> str:
        """Tells this model from every other one, by configuration and weights."""
        return self._core.model_fingerprint

    def __repr__(self) -> str:
        return f"<kakeya.Engine on {self.backend}>"

    def _chat_batch(self, messages: str | Sequence[Message], thinking: bool | None,
                    options: GenerateOptions) -> _core.Batch:
        ids = self.apply_chat_template(messages, thinking=thinking)
        return _core.create_batch(self._forms, [ids], options, 1, True, thinking)


def _run(batch: _core.Batch) -> None:
    try:
        while batch.steps():
            pass
    finally:
        batch.stop()


def _pieces(batch: _core.Batch) -> Iterator[str]:
    try:
        more = True
        while more:
            more = batch.step()
            piece = batch.take_text()
            if piece:
                yield piece
    finally:
        batch.stop()
