"""kakeya.client for asyncio: AsyncClient and AsyncSession, with `await`, `async for` and `async with`."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Self

import grpc
import grpc.aio

from kakeya import _client_calls as calls
from kakeya._client_calls import (DecodeMode, Evicted, GenerationInfo, InterTokenTimeoutError, SessionClosedError,
                                  SessionInfo, messages)
from kakeya._options import TokenIds

__all__ = ["AsyncClient", "AsyncSession"]


class AsyncClient:
    """As kakeya.client.Client; of one event loop."""

    def __init__(self, address: str = "localhost:50051", *, key: str | None = None,
                 credentials: grpc.ChannelCredentials | None = None, timeout: float | None = None,
                 channel_options: Sequence[tuple[str, Any]] | None = None) -> None:
        self._channel = (grpc.aio.insecure_channel(address, channel_options) if credentials is None
                         else grpc.aio.secure_channel(address, credentials, channel_options))
        self._metadata = calls.metadata_of(key)
        self._timeout = timeout

    async def create_session(self, eos_token_ids: Sequence[int] = (), client_label: str = "", *,
                             decode_mode: DecodeMode = DecodeMode.UNSPECIFIED,
                             evicted: Evicted = Evicted.UNSPECIFIED, sink: int | None = None,
                             window: int | None = None) -> "AsyncSession":
        request = calls.create_request(eos_token_ids, client_label, decode_mode, evicted, sink, window)
        return AsyncSession(self, (await self._call("CreateSession", request)).session_id)

    def session(self, session_id: str) -> "AsyncSession":
        return AsyncSession(self, session_id)

    async def sessions(self, most: int = 1000) -> list[SessionInfo]:
        reply = await self._call("ListSessions", messages.ListSessionsRequest(most=most))
        return [calls.info_of(session) for session in reply.sessions]

    async def close(self) -> None:
        await self._channel.close(None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, name: str, request: Any) -> Any:
        try:
            return await calls.method(self._channel, name)(request, metadata=self._metadata, timeout=self._timeout)
        except grpc.RpcError as failure:
            raise calls.error_of(failure) from None

    def _stream(self, name: str, request: Any) -> Any:
        return calls.stream(self._channel, name)(request, metadata=self._metadata)


class AsyncSession:
    """As kakeya.client.Session. A generation ends at the server when its task is cancelled."""

    def __init__(self, client: AsyncClient, session_id: str) -> None:
        self._client = client
        self._closed = False
        self.session_id = session_id
        self.last_result: GenerationInfo | None = None

    async def append(self, ids: TokenIds) -> int:
        request = messages.AppendTokensRequest(session_id=self._id(), token_ids=ids)
        return int((await self._client._call("AppendTokens", request)).history_length)

    async def generate(self, max_tokens: int, seed: int | None = None, temperature: float | None = None,
                       top_p: float | None = None, top_k: int | None = None, *, min_p: float | None = None,
                       repetition_penalty: float | None = None, presence_penalty: float | None = None,
                       frequency_penalty: float | None = None,
                       inter_token_timeout_s: float | None = None) -> AsyncIterator[int]:
        self.last_result = None
        frames = calls.Frames()
        call = self._client._stream("Generate", calls.generate_request(
            self._id(), max_tokens, seed=seed, temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p,
            repetition_penalty=repetition_penalty, presence_penalty=presence_penalty,
            frequency_penalty=frequency_penalty))
        messages_of_call = aiter(call)
        try:
            while (frame := await asyncio.wait_for(anext(messages_of_call, None), inter_token_timeout_s)) is not None:
                for token in frames.ids(frame):
                    yield token
            self.last_result = frames.result
        except TimeoutError:
            raise InterTokenTimeoutError(f"expected a token within {inter_token_timeout_s} s, got none") from None
        except grpc.RpcError as failure:
            raise calls.error_of(failure) from None
        finally:
            call.cancel()

    async def info(self) -> SessionInfo:
        return calls.info_of(await self._client._call(
            "GetSessionInfo", messages.GetSessionInfoRequest(session_id=self._id())))

    async def fork(self, length: int | None = None, client_label: str = "") -> "AsyncSession":
        request = messages.ForkSessionRequest(session_id=self._id(), length=length, client_label=client_label)
        return AsyncSession(self._client, (await self._client._call("ForkSession", request)).session_id)

    async def truncate(self, length: int) -> int:
        request = messages.TruncateSessionRequest(session_id=self._id(), length=length)
        return int((await self._client._call("TruncateSession", request)).history_length)

    async def close(self) -> int:
        if self._closed:
            return 0
        request = messages.CloseSessionRequest(session_id=self.session_id)
        length = int((await self._client._call("CloseSession", request)).final_history_length)
        self._closed = True
        return length

    @property
    def closed(self) -> bool:
        return self._closed

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _id(self) -> str:
        if self._closed:
            raise SessionClosedError(f"session {self.session_id}: expected an open one, got one that was closed")
        return self.session_id
