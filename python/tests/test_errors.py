"""Refusals: the class of each, and one line that names the option."""

import kakeya
import pytest


def test_a_missing_model_is_a_file_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="/nowhere") as raised:
        kakeya.Engine("/nowhere")
    assert isinstance(raised.value, kakeya.NotFound)


def test_a_small_limit_is_a_memory_error():
    with pytest.raises(MemoryError) as raised:
        kakeya.Engine(memory_limit=1000)
    assert isinstance(raised.value, kakeya.ResourceExhausted)


@pytest.mark.parametrize("options, name", [({"temperature": -1.0}, "temperature"), ({"top_p": 7.0}, "top_p"),
                                           ({"max_tokens": -1}, "max_tokens")])
def test_a_value_out_of_range_is_a_value_error(engine, options, name):
    for call in (lambda: engine.chat("x", **options), lambda: engine.generate([[2]], **options)):
        with pytest.raises(ValueError, match=name) as raised:
            call()
        assert isinstance(raised.value, kakeya.InvalidArgument)
        assert "\n" not in str(raised.value) and "::" not in str(raised.value)


def test_unknown_names_and_words_are_refused(engine):
    with pytest.raises(TypeError, match="temprature: no such option; expected choices, constraint, draft_length"):
        engine.chat("x", temprature=1)
    with pytest.raises(TypeError, match="threads_of_it: no such option"):
        kakeya.Engine(threads_of_it=1)
    with pytest.raises(ValueError, match="compute: expected f32, fast, got slow"):
        kakeya.Engine(compute="slow")
    with pytest.raises(TypeError, match="max_tokens: expected an integer, got str"):
        engine.chat("x", max_tokens="5")
    with pytest.raises(ValueError, match="max_tokens: expected -?[0-9]+ to [0-9]+, got 1180591620717411303424"):
        engine.chat("x", max_tokens=2**70)
    with pytest.raises(TypeError, match="message 0: expected role and content, got no content"):
        engine.chat([{"role": "user"}])


def test_wrong_prompts_are_refused_by_number(engine):
    with pytest.raises(kakeya.InvalidArgument, match="prompt 1: .*token id"):
        engine.generate([[2], [10**6]])
    with pytest.raises(TypeError, match="put it into a list"):
        engine.generate("x")
    assert engine.generate([]) == []


def test_a_session_says_what_is_wrong(engine, tmp_path):
    session = engine.session(context=16)
    with pytest.raises(kakeya.FailedPrecondition):
        session.generate()
    with pytest.raises(kakeya.ResourceExhausted, match=r"at most 16 \(the context\), got 38"):
        session.append(range(2, 40))
    (tmp_path / "file").write_bytes(b"x" * 100)
    with pytest.raises(kakeya.Error, match="file"):
        session.restore(tmp_path / "file")
