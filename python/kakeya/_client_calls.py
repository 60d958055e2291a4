"""What both clients of gRPC share: messages, errors, and how a generation's frames are read."""

import dataclasses
import enum
from collections.abc import Iterator, Sequence
from typing import Any

import grpc

from kakeya import _runtime_pb2
from kakeya._errors import (Cancelled, DeadlineExceeded, Error, FailedPrecondition, InvalidArgument, NotFound,
                            ResourceExhausted, Unavailable, Unimplemented)

messages: Any = _runtime_pb2  # whose enumerations are others than those of this module
_SERVICE = "/kakeya.v1.RuntimeService/"


class KakeyaError(Error):
    """An error of a call; `rpc_code` is gRPC's, None for what the client finds by itself."""

    rpc_code: grpc.StatusCode | None = None


class SessionNotFoundError(KakeyaError, NotFound):
    """The session is not open, or another key's."""


class InvalidArgumentError(KakeyaError, InvalidArgument):
    """A field is out of range."""


class InvariantViolationError(KakeyaError, FailedPrecondition):
    """The call does not fit the state of the server."""


class ResourceExhaustedError(KakeyaError, ResourceExhausted):
    """The context, the queue, the memory or a quota is full."""


class UnimplementedError(KakeyaError, Unimplemented):
    """The server has no such call."""


class RpcCancelledError(KakeyaError, Cancelled):
    """The call was cancelled."""


class AbortedError(KakeyaError):
    """Another call of the session goes on."""


class UnavailableError(KakeyaError, Unavailable):
    """The server shuts down, or cannot be reached."""


class DeadlineExceededError(KakeyaError, DeadlineExceeded):
    """The time that was given is over."""


class UnauthenticatedError(KakeyaError):
    """The key is missing or wrong."""


class SessionClosedError(KakeyaError):
    """The session was closed by this client."""


class InterTokenTimeoutError(KakeyaError, TimeoutError):
    """No token came for `inter_token_timeout_s`; the generation is cancelled."""


_ERRORS = {
    grpc.StatusCode.NOT_FOUND: SessionNotFoundError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.FAILED_PRECONDITION: InvariantViolationError,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhaustedError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
    grpc.StatusCode.CANCELLED: RpcCancelledError,
    grpc.StatusCode.ABORTED: AbortedError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
}


def error_of(failure: grpc.RpcError) -> KakeyaError:
    code = failure.code()
    error = _ERRORS.get(code, KakeyaError)(failure.details() or code.name)
    error.rpc_code = code
    return error


class DecodeMode(enum.IntEnum):
    """With drafts where the server has a drafter, never, always. The tokens are the same."""

    UNSPECIFIED = 0
    PLAIN = 1
    SPECULATIVE = 2


class Evicted(enum.IntEnum):
    """The treatment of rows of the KV cache behind the window."""

    UNSPECIFIED = 0
    KEEP = 1
    DROP = 2
    RESTORE = 3


class StopReason(enum.IntEnum):
    """Why a generation ended."""

    UNSPECIFIED = 0
    MAX_TOKENS = 1
    EOS = 2
    CANCELLED = 3
    TRUNCATED = 4  # the context is full


@dataclasses.dataclass(frozen=True)
class SessionInfo:
    """A session as the server has it; lengths in tokens."""

    session_id: str
    client_label: str
    parent_session_id: str
    history_length: int
    kv_live_bytes: int
    kv_disk_bytes: int
    cached_tokens: int  # that need not be run to go on
    idle_seconds: float
    decode_mode: DecodeMode
    evicted: Evicted


def info_of(reply: Any) -> SessionInfo:
    values = {field.name: getattr(reply, field.name) for field in dataclasses.fields(SessionInfo)
              if field.name not in ("decode_mode", "evicted")}
    return SessionInfo(**values, decode_mode=DecodeMode(reply.decode_mode), evicted=Evicted(reply.kv_policy.evicted))


@dataclasses.dataclass(frozen=True)
class GenerationInfo:
    """How a generation went, once it has ended."""

    stop_reason: StopReason
    generated_token_count: int  # with the id that ended it
    prefill_duration_seconds: float
    total_duration_seconds: float
    queue_duration_seconds: float
    cached_tokens: int
    rounds: int  # passes of the model
    drafted_tokens: int
    accepted_tokens: int
    history_length: int
    history_truncated_dropped: int  # tokens that are no longer attended to


class Frames:
    """Reads the frames of a generation; `result` is set behind the last one."""

    def __init__(self) -> None:
        self.result: GenerationInfo | None = None
        self._dropped = 0

    def ids(self, frame: Any) -> Iterator[int]:
        kind = frame.WhichOneof("payload")
        if kind == "tokens":
            yield from frame.tokens.token_ids
        elif kind == "token_id":
            yield frame.token_id
        elif kind == "truncated":
            self._dropped = frame.truncated.dropped_token_count
        elif kind == "done":
            values = {field.name: getattr(frame.done, field.name) for field in dataclasses.fields(GenerationInfo)
                      if field.name not in ("stop_reason", "history_truncated_dropped")}
            self.result = GenerationInfo(**values, stop_reason=StopReason(frame.done.stop_reason),
                                         history_truncated_dropped=self._dropped)


def create_request(eos_token_ids: Sequence[int], client_label: str, decode_mode: DecodeMode,
                   evicted: Evicted, sink: int | None, window: int | None) -> Any:
    policy = None
    if evicted or sink is not None or window is not None:
        policy = messages.KvPolicy(evicted=evicted, sink=sink, window=window)
    return messages.CreateSessionRequest(eos_token_ids=eos_token_ids, client_label=client_label,
                                         decode_mode=decode_mode, kv_policy=policy)


def generate_request(session_id: str, max_tokens: int, **sampling: int | float | None) -> Any:
    return messages.GenerateRequest(session_id=session_id, max_tokens=max_tokens, packed=True, **sampling)


def method(channel: Any, name: str) -> Any:
    """A call of one reply."""
    return channel.unary_unary(_SERVICE + name, *_serializers(name))


def stream(channel: Any, name: str) -> Any:
    return channel.unary_stream(_SERVICE + name, *_serializers(name))


def _serializers(name: str) -> tuple[Any, Any]:
    call = messages.DESCRIPTOR.services_by_name["RuntimeService"].methods_by_name[name]
    return (getattr(messages, call.input_type.name).SerializeToString,
            getattr(messages, call.output_type.name).FromString)


def metadata_of(key: str | None) -> list[tuple[str, str]]:
    return [] if key is None else [("authorization", f"Bearer {key}")]
