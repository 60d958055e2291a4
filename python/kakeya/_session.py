"""A session: one timeline of tokens with its memory."""

import os
from collections.abc import Iterator
from typing import Unpack

import numpy as np
import numpy.typing as npt

from kakeya import _core
from kakeya._core import Generation, TokenLogprobs
from kakeya._options import AnyPath, GenerateOptions, TokenIds


class Session:
    """Tokens in, tokens out. Engine.session() makes one, which keeps what it needs of its engine.

    One thread at a time: while a call runs, others raise FailedPrecondition.
    """

    def __init__(self, core: _core.Session) -> None:
        self._core = core

    def append(self, ids: TokenIds) -> None:
        """Adds tokens to the end; the next generation runs them."""
        self._core.append(ids)

    def sync(self, ids: TokenIds) -> int:
        """Makes the session hold exactly these tokens; returns how many need not be run again."""
        return self._core.sync(ids)

    def generate(self, **options: Unpack[GenerateOptions]) -> Generation:
        """Goes on with the tokens."""
        return self._core.generate(options)

    def stream(self, **options: Unpack[GenerateOptions]) -> Iterator[str]:
        """As generate(), piece by piece. Left early, it ends behind the token of the last piece."""
        return _pieces(self._core, options)

    def score(self, ids: TokenIds, top_logprobs: int = 0) -> list[TokenLogprobs]:
        """Adds tokens, and says of each how likely it was behind those before it."""
        return self._core.score(ids, top_logprobs)

    def logits(self, ids: TokenIds) -> npt.NDArray[np.float32]:
        """Adds tokens, and gives the logits [len(ids), vocab_size] of what comes behind each.

        They are the model's own: no sampling option changes them. The array takes 4 bytes a number;
        for those behind the last token alone append() the others.
        """
        return self._core.logits(ids)

    def hidden(self, ids: TokenIds) -> npt.NDArray[np.float32]:
        """Adds tokens, and gives the last layer's output behind the final norm, [len(ids), hidden_size]."""
        return self._core.hidden(ids)

    def fork(self) -> "Session":
        """Another session with the same tokens, which goes on by itself; both share what was run."""
        return Session(self._core.fork())

    def truncate(self, length: int) -> None:
        """Forgets the tokens from `length` on."""
        self._core.truncate(length)

    def snapshot(self, path: AnyPath, note: str = "") -> None:
        """Writes the session to a file, with a note of the caller's."""
        self._core.snapshot(os.fsencode(path), note.encode())

    def restore(self, path: AnyPath) -> str:
        """Becomes what was written, and returns the note."""
        return self._core.restore(os.fsencode(path)).decode()

    def footprint(self) -> dict[str, int]:
        """Bytes of the session, by class."""
        return self._core.footprint()

    @property
    def tokens(self) -> npt.NDArray[np.int32]:
        return self._core.tokens

    @property
    def position(self) -> int:
        """How many of the tokens have been run."""
        return self._core.position

    @property
    def context(self) -> int:
        """Most tokens that the session can hold."""
        return self._core.context


def _pieces(core: _core.Session, options: GenerateOptions) -> Iterator[str]:
    stream = _core.create_stream(core, options)
    try:
        while (piece := stream.next()) is not None:
            yield piece
    finally:
        stream.close()
