"""Keyword arguments, for type checkers and editors; the engine's own defaults stand where none is given."""

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from kakeya._constraint import Constraint

AnyPath: TypeAlias = str | os.PathLike[str]
TokenIds: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]
Evicted = Literal["keep", "drop", "restore"]
Kv = Literal["auto", "f32", "bf16", "int8", "e8"]
# Full layers also in calibrated codes, once `kakeya calibrate` has run.
KvFull = (
    Kv
    | Literal["k2v2", "k2v3", "k2v4", "k2v5", "k2v6", "k3v2", "k3v3", "k3v4", "k3v5", "k3v6", "k4v2", "k4v3", "k4v4"]
    | Literal["k4v5", "k4v6", "k5v2", "k5v3", "k5v4", "k5v5", "k5v6", "k6v2", "k6v3", "k6v4", "k6v5", "k6v6"]
)


class SessionOptions(TypedDict, total=False):
    """How a timeline of tokens is kept: fields of SessionOptions (include/kakeya/options.h)."""

    context: int  # most tokens; 0: the model's limit, at most 8192
    max_rows: int  # most tokens of one pass
    kv_full: KvFull
    kv_sliding: Kv
    kv_drafter: Kv
    kv_codes: Kv
    kv_exact: int  # with calibrated codes: the last tokens that stay exact
    window: int  # tokens further behind than this are evicted; 0: none
    sink: int  # but not the first ones
    evicted_full: Evicted
    evicted_sliding: Evicted
    drafting: bool
    grow: bool  # memory is taken as tokens come
    cache_scope: str  # rows of the prompt cache are shared within one scope alone


class EngineOptions(SessionOptions, total=False):
    """How an engine and its default session are made."""

    chat_template: AnyPath  # a file with the template to use instead of the model's
    backend: str  # "cpu", "cpu/avx2" and its like, "ref"
    compute: Literal["fast", "f32"]
    threads: int  # 0: one for each CPU
    pin_threads: bool
    memory_limit: int | None  # bytes of weights and all sessions
    device_memory_limit: int | None  # the same of a card's memory, where weights and sessions lie there
    prompt_cache_bytes: int | Literal["auto"]  # 0: no cache of what sessions have run
    prompt_cache_dir: AnyPath  # a folder that keeps it for later engines, and for others that run at once
    prompt_cache_dir_bytes: int  # most bytes of the folder's files: the oldest are deleted
    fit_memory: bool  # a smaller default session instead of a refusal
    draft: AnyPath  # "auto", "none", "ngram", a folder or a GGUF file
    kv_statistics: AnyPath  # what `kakeya calibrate` wrote: "auto", a file
    projection: AnyPath  # what restores evicted rows: "auto", "none", a folder
    weights_cache: AnyPath  # where packed weights are kept; "beside": where the model is
    weights_cache_trust: bool  # without comparing them with their checksums


class GenerateOptions(TypedDict, total=False):
    """How tokens are chosen, and when a generation ends."""

    max_tokens: int
    temperature: float  # 0: greedy
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    logit_bias: dict[int, float]
    seed: int
    stop: str | Sequence[str]
    stop_ids: Sequence[int]  # beside the model's own
    ignore_model_stop_ids: bool
    draft_length: int | Literal["auto"]  # tokens drafted in each round; 0: none
    logprobs: bool
    top_logprobs: int
    # What the answer is held to, one at most: in a chat behind the model's thoughts, elsewhere at once.
    json_schema: dict[str, Any] | str | type | None  # a schema, its JSON text, or a class with model_json_schema()
    json_object: bool  # any JSON object
    regex: str | None  # the whole answer matches it
    grammar: str | None  # llama.cpp's GBNF; the answer is what `root` allows
    choices: Sequence[str] | None  # one of them
    constraint: Constraint | None  # rules of one generation


class ChatOptions(TypedDict, total=False):
    """How a conversation becomes a prompt."""

    add_generation_prompt: bool
    continue_final_message: bool
    thinking: bool | None  # None: as the model's publisher has it
    tools: Sequence[dict[str, Any] | Callable[..., object]]  # that the model may call: as Engine.call() takes them


class EmbeddingOptions(TypedDict, total=False):
    """Which tokens a text's vector is of, and whether its length is 1."""

    pooling: Literal["last", "mean"]
    normalize: bool


class CalledFunction(TypedDict):
    """The tool that is called, and its arguments: a JSON text, in what is given also a dict."""

    name: str
    arguments: str | dict[str, Any]


class ToolCall(TypedDict):
    """A call of a tool."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class _Message(TypedDict):
    role: str
    content: str | None  # None: calls alone


class Message(_Message, total=False):
    """One turn of a conversation."""

    tool_calls: Sequence[ToolCall]
    name: str
    tool_call_id: str
    reasoning: str
