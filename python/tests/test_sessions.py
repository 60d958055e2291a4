"""Sessions: forks, files, lifetimes and memory."""

import gc

import kakeya
import pytest


def begun(engine, text="Tell me a story."):
    session = engine.session()
    session.append(engine.apply_chat_template(text))
    return session


def test_a_fork_goes_on_as_its_session(engine):
    session = begun(engine)
    session.generate(max_tokens=5)
    fork = session.fork()
    before = session.tokens.tolist()
    expected = session.generate(max_tokens=12).ids.tolist()
    assert fork.tokens.tolist() == before
    assert fork.generate(max_tokens=12).ids.tolist() == expected


def test_a_snapshot_goes_on_as_its_session(engine, tmp_path):
    session = begun(engine)
    session.generate(max_tokens=5)
    session.snapshot(tmp_path / "talk", note="nöte")
    expected = session.generate(max_tokens=12).ids.tolist()
    other = engine.session()
    assert other.restore(tmp_path / "talk") == "nöte"
    assert other.generate(max_tokens=12).ids.tolist() == expected


def test_truncate_and_sync(engine):
    session = begun(engine)
    prompt = session.tokens.tolist()
    first = session.generate(max_tokens=8).ids.tolist()
    assert session.position >= len(prompt)
    session.truncate(len(prompt))
    assert session.generate(max_tokens=8).ids.tolist() == first
    assert session.sync(prompt) > 0
    assert session.tokens.tolist() == prompt


def test_a_stream_left_early_ends_behind_its_last_piece(engine):
    session = begun(engine)
    prompt = len(session.tokens)
    pieces = session.stream(max_tokens=50, draft_length=0)
    seen = next(pieces) + next(pieces)
    pieces.close()
    assert engine.decode(session.tokens[prompt:]) == seen
    whole = begun(engine)
    assert "".join(whole.stream(max_tokens=50)) == begun(engine).generate(max_tokens=50).text


def test_objects_go_in_any_order():
    engine = kakeya.Engine(threads=1, pin_threads=False)
    session, pieces = begun(engine), engine.stream("Tell me a story.", max_tokens=30)
    next(pieces)
    tokens = session.tokens
    del engine
    gc.collect()
    assert session.generate(max_tokens=3).ids.size == 3
    assert "".join(pieces)
    kept = session.generate(max_tokens=3).ids
    del session
    gc.collect()
    assert kept.size == 3 and tokens.size > 3


def test_many_generations_leave_the_ledger_as_it_was(engine):
    engine.chat("Hello", max_tokens=2)
    begun(engine).generate(max_tokens=2)
    before = engine.footprint()
    for seed in range(250):
        engine.chat("Hello", max_tokens=2, temperature=1.0, seed=seed)
        begun(engine, "Hello").generate(max_tokens=2)
    assert engine.footprint() == before


def test_the_estimate_is_what_is_taken():
    options = {"threads": 1, "pin_threads": False, "context": 512}
    estimated = kakeya.Engine.estimate(**options)
    engine = kakeya.Engine(**options)
    session = engine.session()
    session.append([2])
    session.generate(max_tokens=1)
    assert engine.footprint()["weights"] == estimated["weights"]
    assert engine.footprint()["kv_full"] == estimated["kv_full"] > 0


def test_the_prompt_cache_is_used():
    engine = kakeya.Engine(threads=1, pin_threads=False, prompt_cache_bytes=1 << 24)
    ids = engine.encode("word " * 300)
    assert engine.generate([ids], max_tokens=1)[0].prefill_tokens == ids.size
    assert engine.generate([ids], max_tokens=1)[0].prefill_tokens < ids.size


def test_a_later_engine_has_the_prompt_cache_from_its_folder(tmp_path):
    text = "word " * 300
    run = []
    for _ in range(2):
        engine = kakeya.Engine(threads=1, pin_threads=False, prompt_cache_bytes=1 << 24, prompt_cache_dir=tmp_path / "kept")
        run.append(engine.generate([text], max_tokens=5)[0])
        del engine
        gc.collect()
    assert run[1].ids.tolist() == run[0].ids.tolist()
    assert run[1].prefill_tokens < run[0].prefill_tokens
    with pytest.raises(kakeya.InvalidArgument, match="prompt_cache"):
        kakeya.Engine(prompt_cache_dir=tmp_path)


def test_loading_says_how_far_it_is():
    seen = []
    kakeya.Engine(threads=1, pin_threads=False, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1] > 0
    with pytest.raises(ZeroDivisionError):
        kakeya.Engine(threads=1, pin_threads=False, on_progress=lambda done, total: 1 // 0)


def test_an_engine_says_what_it_does_without(tmp_path, caplog):
    (tmp_path / "file").write_text("not a folder")
    engine = kakeya.Engine(threads=1, pin_threads=False, draft="none", weights_cache=tmp_path / "file")
    assert [note.partition(":")[0] for note in engine.notes] == ["packed weights are not kept"]
    assert caplog.messages == engine.notes and caplog.records[0].name == "kakeya"
    assert kakeya.Engine(threads=1, pin_threads=False).notes == []
