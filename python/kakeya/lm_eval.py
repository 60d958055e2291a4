"""A model for EleutherAI's lm-evaluation-harness, in its process.

`python -m kakeya.lm_eval --model kakeya --model_args model=DIR --tasks arc_easy` is lm_eval's command line, which
knows the model `kakeya` then; in a program, `lm_eval.simple_evaluate(model=KakeyaLM("DIR"), ...)`.
"""

from collections.abc import Sequence
from typing import Any, cast

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.utils import get_rolling_token_windows
from tqdm import tqdm

from kakeya import Engine
from kakeya._options import Message

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")


@register_model("kakeya")
class KakeyaLM(TemplateLM):
    """An engine as lm_eval asks models. `model`: as Engine has it; `engine`: options of Engine.

    `add_bos_token`: texts begin with the model's beginning-of-sequence token, as its tokenizer has it (the harness's
    clients of servers send none). `batch_size`: most prompts that generate together. `device` says nothing, for the
    harness gives one to every model: `backend` names where the engine runs.
    """

    def __init__(self, model: str | None = None, *, add_bos_token: bool = True, batch_size: int | str = 1,
                 max_batch_size: int | None = None, device: str | None = None, **engine: Any) -> None:
        super().__init__()
        self._engine = Engine(model, **engine)
        self._session = self._engine.session()
        begin = self._engine.encode("")
        self._begin = int(begin[0] if len(begin) > 0 else self._engine.stop_ids[0])
        self._begins = add_bos_token
        self._at_once = max_batch_size or 64 if str(batch_size).startswith("auto") else int(batch_size)

    @property
    def eot_token_id(self) -> int:
        return self.prefix_token_id

    @property
    def prefix_token_id(self) -> int:
        """The token that every text begins with, or in a model without one the first that ends texts."""
        return self._begin

    @property
    def tokenizer_name(self) -> str:
        return self._engine.model_fingerprint

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: object) -> list[int]:
        begin = self._begins if add_special_tokens is None else add_special_tokens
        ids = self._engine.encode(string, begin=begin).tolist()
        # A chat template has written the beginning already.
        return cast(list[int], ids[1:] if ids[:2] == [self._begin] * 2 else ids)

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        messages = cast(list[Message], chat_history)
        ids = self._engine.apply_chat_template(messages, add_generation_prompt=add_generation_prompt)
        return self._engine.decode(ids, skip_special=False)

    def _loglikelihood_tokens(self, requests: Sequence[tuple[tuple[str, str], list[int], list[int]]],
                              disable_tqdm: bool = False,
                              **kwargs: object) -> list[tuple[float, bool]]:
        results = []
        for texts, context, ending in tqdm(requests, desc="loglikelihood", disable=disable_tqdm):
            results.append(self._score(context, ending))
            self.cache_hook.add_partial("loglikelihood", texts, results[-1])
        return results

    def _score(self, context: list[int], ending: list[int]) -> tuple[float, bool]:
        """The log-probability of an ending, and whether it is what greedy decoding would say."""
        room = self._session.context - len(ending)
        if room < 1:
            raise ValueError(f"a text of {len(ending)} tokens to score: expected at most "
                             f"{self._session.context - 1}, which the context holds behind one more")
        # What neighbouring requests have in common is not run again.
        self._session.sync(context[-room:])
        scores = self._session.score(ending, top_logprobs=1)
        return sum(score.logprob for score in scores), all(score.top[0][0] == score.id for score in scores)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        results = []
        for (text,) in tqdm([request.args for request in requests], disable=disable_tqdm):
            windows = get_rolling_token_windows(self.tok_encode(text, add_special_tokens=False),
                                                self.prefix_token_id, self._session.context - 1, 1)
            results.append(sum(self._score(given[:len(given) - len(told) + 1], told)[0] for given, told in windows))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), results[-1])
        return results

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        results: list[str] = []
        progress = tqdm(total=len(requests), desc="generate_until", disable=disable_tqdm)
        while len(results) < len(requests):
            # Neighbours with equal options run together.
            options = requests[len(results)].args[1]
            group = []
            for request in requests[len(results):len(results) + self._at_once]:
                if request.args[1] != options:
                    break
                group.append(request.args)
            results += self._generate([text for text, _ in group], options)
            for args, result in zip(group, results[-len(group):]):
                self.cache_hook.add_partial("generate_until", args, result)
            progress.update(len(group))
        progress.close()
        return results

    def _generate(self, prompts: list[str], options: dict[str, Any]) -> list[str]:
        wish = normalize_gen_kwargs(options)
        stop, most = wish["until"], wish["max_gen_toks"]
        unknown = set(wish) - {"until", "max_gen_toks", "do_sample", *_SAMPLING}
        if unknown:
            raise ValueError(f"generation options: expected {', '.join(_SAMPLING)}, got {', '.join(sorted(unknown))}")
        ids = [self.tok_encode(prompt)[-max(1, self._session.context - most):] for prompt in prompts]
        given = {name: wish[name] for name in _SAMPLING if name in wish}
        made = self._engine.generate(ids, at_once=self._at_once, max_tokens=most, stop=stop, **given)
        return [generation.text or "" for generation in made]


if __name__ == "__main__":
    cli_evaluate()
