"""The clients of gRPC against a server: sessions, forks, errors, generations that are left early."""

import asyncio
import subprocess

import pytest

grpc = pytest.importorskip("grpc", reason="pip install kakeya[client]")

import kakeya
from kakeya import client as sync
from kakeya.async_client import AsyncClient
from conftest import PROGRAM, document_blocks, serve

PROMPT = [2, 110, 117, 124, 131]


@pytest.fixture(scope="module")
def address():
    with serve("--grpc", "127.0.0.1:0", begins="gRPC on") as found:
        if found is None:
            pytest.skip("the program was built without gRPC")
        yield found


@pytest.fixture
def client(address):
    with sync.Client(address, timeout=30) as connected:
        yield connected


def test_tokens_are_those_of_the_process(client, engine):
    with client.create_session(eos_token_ids=[0], client_label="a") as session:
        assert session.append(PROMPT) == len(PROMPT)
        ids = list(session.generate(max_tokens=12))
        own = engine.generate([PROMPT], max_tokens=12, ignore_model_stop_ids=True)[0]
        assert ids == own.ids.tolist()
        assert session.last_stop_reason == sync.StopReason.MAX_TOKENS
        assert session.last_generated_token_count == 12
        info = session.info()
        assert (info.client_label, info.history_length) == ("a", len(PROMPT) + 12)
        fork = session.fork(length=len(PROMPT))
        assert list(fork.generate(max_tokens=12)) == ids
        assert session.truncate(len(PROMPT)) == len(PROMPT)
        sampled = list(session.generate(max_tokens=12, seed=4, temperature=1.0, top_k=20))
        fork.truncate(len(PROMPT))
        assert sampled == list(fork.generate(max_tokens=12, seed=4, temperature=1.0, top_k=20))
        assert {one.session_id for one in client.sessions()} >= {session.session_id, fork.session_id}
        assert client.session(fork.session_id).info().parent_session_id == session.session_id
        assert fork.close() == len(PROMPT) + 12
        assert fork.close() == 0
        with pytest.raises(sync.SessionClosedError):
            fork.append([2])


def test_a_generation_that_is_left_early_is_cancelled(client):
    session = client.create_session(eos_token_ids=[0])
    session.append(PROMPT)
    generation = session.generate(max_tokens=2000)
    given = [next(generation) for _ in range(3)]
    generation.close()
    assert session.last_result is None
    for _ in range(200):  # the server may be within a pass
        try:
            length = session.truncate(len(PROMPT) + 3)
            break
        except sync.AbortedError:
            continue
    assert length == len(PROMPT) + 3
    session.truncate(len(PROMPT))
    assert list(session.generate(max_tokens=3)) == given


def test_errors_are_typed(client, address):
    with pytest.raises(sync.SessionNotFoundError) as raised:
        client.session("none").info()
    assert raised.value.rpc_code.name == "NOT_FOUND"
    assert isinstance(raised.value, kakeya.NotFound)
    with client.create_session() as session:
        with pytest.raises(sync.InvalidArgumentError):
            session.append([1 << 30])
        session.append(PROMPT)
        with pytest.raises(sync.InvalidArgumentError):
            list(session.generate(max_tokens=1, temperature=-1.0))
    with sync.Client("127.0.0.1:1", timeout=5) as nowhere, pytest.raises(sync.UnavailableError):
        nowhere.create_session()


def test_a_token_that_does_not_come_in_time(client):
    with client.create_session(eos_token_ids=[0]) as session:
        session.append(PROMPT)
        with pytest.raises(sync.InterTokenTimeoutError):
            list(session.generate(max_tokens=2000, inter_token_timeout_s=1e-6))
        generation = session.generate(max_tokens=2, inter_token_timeout_s=30.0)
        assert len(list(_until_free(generation, session))) == 2


def _until_free(generation, session):
    for _ in range(200):
        try:
            yield from generation
            return
        except sync.AbortedError:
            generation = session.generate(max_tokens=2, inter_token_timeout_s=30.0)


def test_a_server_with_keys_and_tls(tmp_path):
    made = subprocess.run([PROGRAM, "serve", "--new-key", "ann"], capture_output=True, text=True, check=True)
    key = made.stderr.split()[-1]
    (tmp_path / "keys").write_text(made.stdout)
    certificate, secret = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", secret, "-out", certificate],
                   check=True, capture_output=True)
    credentials = grpc.ssl_channel_credentials(certificate.read_bytes())
    with serve("--grpc", "127.0.0.1:0", "--keys", tmp_path / "keys", "--tls-cert", certificate, "--tls-key", secret,
               begins="gRPC on") as address:
        if address is None:
            pytest.skip("the program was built without gRPC")
        named = address.replace("127.0.0.1", "localhost")
        with sync.Client(named, key=key, credentials=credentials, timeout=30) as client:
            client.create_session().close()
        with sync.Client(named, key="another", credentials=credentials, timeout=30) as client:
            with pytest.raises(sync.UnauthenticatedError):
                client.create_session()
        with sync.Client(address, key=key, timeout=5) as plain, pytest.raises(sync.UnavailableError):
            plain.create_session()


def test_the_example_of_the_document(address, capsys):
    block = next(block for block in document_blocks() if "kakeya.client" in block)
    exec(compile(block.replace("localhost:50051", address), "docs/python.md", "exec"), {})
    assert len(capsys.readouterr().out.splitlines()) > 1


def test_asyncio(address):
    async def run():
        async with AsyncClient(address, timeout=30) as client:
            async with await client.create_session(eos_token_ids=[0]) as session:
                await session.append(PROMPT)
                ids = [token async for token in session.generate(max_tokens=8)]
                assert session.last_result.stop_reason == sync.StopReason.MAX_TOKENS
                fork = await session.fork(length=len(PROMPT))
                assert [token async for token in fork.generate(max_tokens=8)] == ids
                assert (await fork.info()).history_length == len(PROMPT) + 8
                assert len(await client.sessions()) >= 2
                await fork.truncate(len(PROMPT))
                task = asyncio.create_task(_first(fork.generate(max_tokens=4000)))
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                with pytest.raises(sync.SessionNotFoundError):
                    await client.session("none").info()
                await fork.close()
                with pytest.raises(sync.SessionClosedError):
                    await fork.append([2])

    asyncio.run(run())


async def _first(tokens):
    async for _ in tokens:
        pass
