"""A client of `kakeya serve --grpc`: token ids in, token ids out, in sessions that the server keeps.

    with Client("localhost:50051") as client, client.create_session() as session:
        session.append(ids)
        for token in session.generate(max_tokens=32): ...

kakeya.async_client is the same for asyncio. It needs `pip install "kakeya[client]"`.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import grpc

from kakeya import _client_calls as calls
from kakeya._client_calls import (AbortedError, DeadlineExceededError, DecodeMode, Evicted, GenerationInfo,
                                  InterTokenTimeoutError, InvalidArgumentError, InvariantViolationError, KakeyaError,
                                  ResourceExhaustedError, RpcCancelledError, SessionClosedError, SessionInfo,
                                  SessionNotFoundError, StopReason, UnauthenticatedError, UnavailableError,
                                  UnimplementedError, messages)
from kakeya._options import TokenIds

__all__ = ["AbortedError", "Client", "DeadlineExceededError", "DecodeMode", "Evicted", "GenerationInfo",
           "InterTokenTimeoutError", "InvalidArgumentError", "InvariantViolationError", "KakeyaError",
           "ResourceExhaustedError", "RpcCancelledError", "Session", "SessionClosedError", "SessionInfo",
           "SessionNotFoundError", "StopReason", "UnauthenticatedError", "UnavailableError", "UnimplementedError"]


class Client:
    """A connection; any number of threads may use it.

    `key`: one that the server's `--keys` knows. `credentials`: grpc.ssl_channel_credentials(...) for a server with
    TLS; without them the connection is plain. `timeout`: seconds for each call but generations.
    """

    def __init__(self, address: str = "localhost:50051", *, key: str | None = None,
                 credentials: grpc.ChannelCredentials | None = None, timeout: float | None = None,
                 channel_options: Sequence[tuple[str, Any]] | None = None) -> None:
        self._channel = (grpc.insecure_channel(address, channel_options) if credentials is None
                         else grpc.secure_channel(address, credentials, channel_options))
        self._metadata = calls.metadata_of(key)
        self._timeout = timeout

    def create_session(self, eos_token_ids: Sequence[int] = (), client_label: str = "", *,
                       decode_mode: DecodeMode = DecodeMode.UNSPECIFIED, evicted: Evicted = Evicted.UNSPECIFIED,
                       sink: int | None = None, window: int | None = None) -> "Session":
        """A new session. `eos_token_ids`: ids that end generations, in place of the model's own."""
        request = calls.create_request(eos_token_ids, client_label, decode_mode, evicted, sink, window)
        return Session(self, self._call("CreateSession", request).session_id)

    def session(self, session_id: str) -> "Session":
        """A session that is open already, by its id."""
        return Session(self, session_id)

    def sessions(self, most: int = 1000) -> list[SessionInfo]:
        """The sessions of this key, those used last first."""
        reply = self._call("ListSessions", messages.ListSessionsRequest(most=most))
        return [calls.info_of(session) for session in reply.sessions]

    def close(self) -> None:
        """Closes the connection; sessions stay open at the server."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, name: str, request: Any) -> Any:
        try:
            return calls.method(self._channel, name)(request, metadata=self._metadata, timeout=self._timeout)
        except grpc.RpcError as failure:
            raise calls.error_of(failure) from None

    def _stream(self, name: str, request: Any) -> Any:
        return calls.stream(self._channel, name)(request, metadata=self._metadata)


class Session:
    """One timeline of tokens at the server. One call at a time: another one gets AbortedError."""

    def __init__(self, client: Client, session_id: str) -> None:
        self._client = client
        self._closed = False
        self.session_id = session_id
        self.last_result: GenerationInfo | None = None  # of the last generation that ended by itself

    def append(self, ids: TokenIds) -> int:
        """Adds tokens and runs them; returns the length of all."""
        request = messages.AppendTokensRequest(session_id=self._id(), token_ids=ids)
        return int(self._client._call("AppendTokens", request).history_length)

    def generate(self, max_tokens: int, seed: int | None = None, temperature: float | None = None,
                 top_p: float | None = None, top_k: int | None = None, *, min_p: float | None = None,
                 repetition_penalty: float | None = None, presence_penalty: float | None = None,
                 frequency_penalty: float | None = None,
                 inter_token_timeout_s: float | None = None) -> Iterator[int]:
        """Goes on, token by token, with the id that ends it. Left early, it is cancelled."""
        request = calls.generate_request(
            self._id(), max_tokens, seed=seed, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p,
            repetition_penalty=repetition_penalty, presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty)
        return self._ids(request, inter_token_timeout_s)

    def info(self) -> SessionInfo:
        return calls.info_of(self._client._call(
            "GetSessionInfo", messages.GetSessionInfoRequest(session_id=self._id())))

    def fork(self, length: int | None = None, client_label: str = "") -> "Session":
        """Another session with the same tokens, or the first `length` of them."""
        request = messages.ForkSessionRequest(session_id=self._id(), length=length, client_label=client_label)
        return Session(self._client, self._client._call("ForkSession", request).session_id)

    def truncate(self, length: int) -> int:
        """Forgets the tokens from `length` on; returns the length of what is left."""
        request = messages.TruncateSessionRequest(session_id=self._id(), length=length)
        return int(self._client._call("TruncateSession", request).history_length)

    def close(self) -> int:
        """Ends the session at the server; returns its last length, 0 if it was closed already."""
        if self._closed:
            return 0
        request = messages.CloseSessionRequest(session_id=self.session_id)
        length = int(self._client._call("CloseSession", request).final_history_length)
        self._closed = True
        return length

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def last_stop_reason(self) -> StopReason | None:
        return None if self.last_result is None else self.last_result.stop_reason

    @property
    def last_generated_token_count(self) -> int | None:
        return None if self.last_result is None else self.last_result.generated_token_count

    @property
    def last_prefill_duration_seconds(self) -> float | None:
        return None if self.last_result is None else self.last_result.prefill_duration_seconds

    @property
    def last_total_duration_seconds(self) -> float | None:
        return None if self.last_result is None else self.last_result.total_duration_seconds

    @property
    def last_history_truncated_dropped(self) -> int | None:
        return None if self.last_result is None else self.last_result.history_truncated_dropped

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _id(self) -> str:
        if self._closed:
            raise SessionClosedError(f"session {self.session_id}: expected an open one, got one that was closed")
        return self.session_id

    def _ids(self, request: Any, timeout: float | None) -> Iterator[int]:
        self.last_result = None
        frames = calls.Frames()
        call = self._client._stream("Generate", request)
        watch = _Watch(call.cancel, timeout)
        try:
            while (frame := watch.wait(call)) is not None:
                yield from frames.ids(frame)
            self.last_result = frames.result
        except grpc.RpcError as failure:
            if watch.fired:
                raise InterTokenTimeoutError(f"expected a token within {timeout} s, got none") from None
            raise calls.error_of(failure) from None
        finally:
            call.cancel()


class _Watch:
    """Cancels a stream whose next message does not come in time."""

    def __init__(self, cancel: Callable[[], object], seconds: float | None) -> None:
        self.fired = False
        self._cancel = cancel
        self._seconds = seconds

    def wait(self, call: Iterator[Any]) -> Any:
        """The next message; None behind the last one."""
        if self._seconds is None:
            return next(call, None)
        timer = threading.Timer(self._seconds, self._fire)
        timer.daemon = True
        timer.start()
        try:
            return next(call, None)
        finally:
            timer.cancel()

    def _fire(self) -> None:
        self.fired = True
        self._cancel()
