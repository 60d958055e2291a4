"""The examples of docs/python.md, as they stand there."""

from conftest import document_blocks
from kakeya import _core


def test_the_examples_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # test_client.py has the one that needs a server. A build without xgrammar refuses forms.
    blocks = [block for block in document_blocks() if "kakeya.client" not in block]
    if not _core.has_grammars:
        blocks = [block for block in blocks if "json_schema" not in block and "tool_choice" not in block]
    assert len(blocks) >= 8
    names = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
    assert (tmp_path / "talk.session").is_file()
