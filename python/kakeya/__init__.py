"""Kakeya in the process: Gemma, Llama, Mistral and Qwen with exact output and bounded memory.

    import kakeya
    print(kakeya.Engine().chat("Count from 5 to 12."))
"""

from kakeya._core import Generation, Round, TokenLogprobs
from kakeya._core import version as __version__
from kakeya._constraint import Constraint
from kakeya._engine import Engine
from kakeya._errors import (Cancelled, DataLoss, DeadlineExceeded, Error, FailedPrecondition, Internal,
                            InvalidArgument, NotFound, ResourceExhausted, Unavailable, Unimplemented)
from kakeya._functions import answer_calls, tool_of
from kakeya._session import Session

__all__ = ["Cancelled", "Constraint", "DataLoss", "DeadlineExceeded", "Engine", "Error", "FailedPrecondition",
           "Generation", "Internal", "InvalidArgument", "NotFound", "ResourceExhausted", "Round", "Session",
           "TokenLogprobs", "Unavailable", "Unimplemented", "__version__", "answer_calls", "tool_of"]
