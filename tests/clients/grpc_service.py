"""What the tests of the gRPC service share: a server of the demo model, and the messages of kakeya.v1 as grpcio-tools makes them."""

import importlib
import sys
import tempfile

import grpc
from grpc_tools import protoc

import serving

MADE = tempfile.TemporaryDirectory()
assert protoc.main(["protoc", f"-I{serving.ROOT}/proto", f"--python_out={MADE.name}", f"--grpc_python_out={MADE.name}",
                    "kakeya/v1/runtime.proto"]) == 0
sys.path.insert(0, MADE.name)
pb = importlib.import_module("kakeya.v1.runtime_pb2")
rpc = importlib.import_module("kakeya.v1.runtime_pb2_grpc")


class Server(serving.Server):
    def __init__(self, kakeya, *flags):
        super().__init__(kakeya, "--grpc", "127.0.0.1:0", *flags)
        for line in self.process.stdout:
            if line.startswith("gRPC on "):
                self.address = line.split()[2].rstrip(":")
                break
        else:
            raise RuntimeError("the server has no gRPC")


def prompt(seed, tokens):
    return [2] + [(seed * 31 + i * 7) % 90 + 110 for i in range(1, tokens)]


MODES = {
    "plain": dict(decode_mode=pb.DECODE_MODE_PLAIN),
    "drafted": dict(decode_mode=pb.DECODE_MODE_SPECULATIVE),
    "dropped": dict(kv_policy=pb.KvPolicy(evicted=pb.EVICTED_DROP, sink=4, window=40)),
    "restored": dict(kv_policy=pb.KvPolicy(evicted=pb.EVICTED_RESTORE, sink=4, window=40)),
}


def create(stub, mode="plain", **more):
    # Stop ids that the demo never gives, so that each text has its length.
    return stub.CreateSession(pb.CreateSessionRequest(eos_token_ids=[0], **MODES[mode], **more)).session_id


def append(stub, session, ids):
    return stub.AppendTokens(pb.AppendTokensRequest(session_id=session, token_ids=ids))


def generate(stub, session, count, **more):
    """The ids, and the last frame."""
    ids, done = [], None
    for frame in stub.Generate(pb.GenerateRequest(session_id=session, max_tokens=count, seed=3, **more)):
        kind = frame.WhichOneof("payload")
        if kind == "token_id":
            ids.append(frame.token_id)
        elif kind == "tokens":
            ids.extend(frame.tokens.token_ids)
        elif kind == "done":
            done = frame.done
    return ids, done


def code_of(call):
    try:
        result = call()
        if hasattr(result, "__iter__"):
            list(result)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK
