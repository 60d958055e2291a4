"""The tokens: equal to an independent implementation's, and to each other on every way to them."""

import kakeya
import numpy as np
import pytest

SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 7, "max_tokens": 40}


def alone(engine, prompt, options, **of_session):
    session = engine.session(**of_session)
    session.append(engine.apply_chat_template(prompt))
    return session.generate(**options)


def test_greedy_equals_the_goldens(goldens):
    engine = kakeya.Engine(threads=1, pin_threads=False, compute="f32")
    for golden in goldens:
        assert engine.apply_chat_template(golden["prompt"]).tolist() == golden["prompt_ids"]
        found = engine.generate([golden["prompt_ids"]], max_tokens=golden["max_tokens"])[0]
        assert found.ids.tolist() == golden["output_ids"]
        assert engine.chat(golden["prompt"], max_tokens=golden["max_tokens"]) == found.text


def test_drafts_change_no_token(engine, goldens):
    assert engine.draft_kind == "dflash"
    for options in ({"max_tokens": 40}, SAMPLED):
        for golden in goldens:
            drafted = alone(engine, golden["prompt"], {**options, "draft_length": 7})
            plain = alone(engine, golden["prompt"], {**options, "draft_length": 0})
            assert drafted.ids.tolist() == plain.ids.tolist()
            assert drafted.drafted > 0 and plain.drafted == 0
            assert sum(round.drafted for round in drafted.rounds) == drafted.drafted


def test_a_batch_gives_what_each_prompt_gives_alone(engine, goldens):
    prompts = [golden["prompt_ids"] for golden in goldens]
    for at_once in (1, 64):
        together = engine.generate(prompts, at_once=at_once, **SAMPLED)
        for golden, found in zip(goldens, together, strict=True):
            expected = alone(engine, golden["prompt"], SAMPLED)
            assert found.ids.tolist() == expected.ids.tolist()
            assert found.text == expected.text
    assert len({tuple(found.ids) for found in together}) == len(prompts)


def test_a_bounded_window_is_used(engine, goldens):
    golden = goldens[0]
    bounded = {"window": 32, "sink": 4, "evicted_full": "drop", "evicted_sliding": "drop"}
    whole = engine.session(context=1024)
    few = engine.session(context=1024, **bounded)
    assert sum(few.footprint().values()) < sum(whole.footprint().values())
    first = alone(engine, golden["prompt"], {"max_tokens": 20}, **bounded)
    engine_of_it = kakeya.Engine(threads=1, pin_threads=False, **bounded)
    again = engine_of_it.generate([golden["prompt_ids"]], max_tokens=20)[0]
    assert again.ids.tolist() == first.ids.tolist()
    assert first.ids.tolist() != alone(engine, golden["prompt"], {"max_tokens": 20}).ids.tolist()


def test_pieces_are_the_text(engine):
    whole = engine.chat("Count from 5 to 12.")
    assert whole == "5, 6, 7, 8, 9, 10, 11, 12."
    assert "".join(engine.stream("Count from 5 to 12.")) == whole
    assert len(list(engine.stream("Count from 5 to 12."))) > 5
    assert engine.chat([{"role": "user", "content": "Count from 5 to 12."}]) == whole


def test_stop_strings_biases_and_ids_are_used(engine):
    assert engine.chat("Count from 5 to 12.", stop=" 8") == "5, 6, 7,"
    ids = engine.apply_chat_template("Count from 5 to 12.")
    plain = engine.generate([ids])[0]
    assert plain.stop_reason == "stop_id"
    first = int(plain.ids[0])
    assert engine.generate([ids], stop_ids=[first])[0].ids.tolist() == [first]
    assert engine.generate([ids], logit_bias={first: -100.0})[0].ids[0] != first
    assert engine.generate([ids], stop=[" 8"])[0].stop_reason == "stop_text"


def test_logprobs_score_and_embedding(engine):
    ids = engine.encode("The cat sat on the mat.")
    session = engine.session()
    session.append(ids[:1])
    scores = session.score(ids[1:], top_logprobs=3)
    assert [score.id for score in scores] == ids[1:].tolist()
    assert all(score.logprob <= 0 and len(score.top) == 3 for score in scores)
    found = engine.generate([ids], max_tokens=4, logprobs=True, top_logprobs=1)[0]
    assert [here.top[0][0] for here in found.logprobs] == found.ids.tolist()  # greedy
    assert engine.generate([ids], max_tokens=4)[0].logprobs is None
    vector = engine.embed("The cat sat on the mat.")
    assert vector.dtype == np.float32 and vector.shape == (engine.hidden_size,)
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-4
    assert not np.array_equal(vector, engine.embed(ids, pooling="mean"))
    assert float(np.linalg.norm(engine.embed(ids, normalize=False))) > 1.5


def test_text_and_ids(engine):
    ids = engine.encode("The cat")
    assert ids.dtype == np.int32
    assert engine.decode(ids) == "The cat"
    assert engine.encode("The cat", begin=False).tolist() == ids[1:].tolist()
    assert engine.encode("<bos>", begin=False).size == 1
    assert engine.encode("<bos>", begin=False, parse_special=False).size > 1


def test_rows_are_those_of_scores_and_embeddings(engine, goldens):
    ids = np.array(goldens[0]["prompt_ids"], dtype=np.int32)
    session = engine.session()
    logits = session.logits(ids)
    assert logits.dtype == np.float32 and logits.shape == (len(ids), engine.vocab_size)
    greedy = session.generate(max_tokens=1).ids[0]
    assert logits[-1].argmax() == greedy
    scored = engine.session()
    scored.append(ids[:1])
    wide = logits[:-1].astype(np.float64)
    expected = wide[np.arange(len(ids) - 1), ids[1:]] - np.log(np.exp(wide).sum(axis=1))
    found = [score.logprob for score in scored.score(ids[1:])]
    # float32 holds numbers of this size to half a unit in the last place.
    np.testing.assert_allclose(found, expected, rtol=0, atol=2.0**-18)
    parts = engine.session()
    np.testing.assert_array_equal(np.concatenate([parts.logits(ids[:5]), parts.logits(ids[5:])]), logits)
    hidden = engine.session().hidden(ids)
    assert hidden.shape == (len(ids), engine.hidden_size)
    np.testing.assert_array_equal(hidden[-1], engine.embed(ids, pooling="last", normalize=False))
    assert session.logits([]).shape == (0, engine.vocab_size)


def test_rows_that_cannot_be_made_change_nothing(engine):
    session = engine.session(context=64)
    with pytest.raises(kakeya.ResourceExhausted, match="context"):
        session.logits(np.full(65, 5))
    assert len(session.tokens) == 0
