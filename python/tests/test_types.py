"""Types of the package as mypy reads them in its strictest form; lm_eval and Ray Serve, which some modules are for, have none."""

import pathlib

import pytest

api = pytest.importorskip("mypy.api", reason="pip install kakeya[pages]")

import kakeya

USE = """
import kakeya
from kakeya.client import Client

engine = kakeya.Engine(context=512, evicted_full="drop", window=64)
session = engine.session()
session.append(engine.encode("a"))
text: str | None = session.generate(max_tokens=4, temperature=0.5, stop=["."]).text
ids: list[int] = engine.generate([[2, 3], engine.encode("b"), "c"])[0].ids.tolist()
length: int = Client().create_session().append(engine.encode("a"))
"""


def test_mypy_finds_nothing(tmp_path):
    (tmp_path / "use.py").write_text(USE)
    package = pathlib.Path(kakeya.__file__).parent
    modules = sorted({f"kakeya.{path.stem}" for path in package.glob("*.py*")} - {"kakeya.lm_eval", "kakeya.serve_ray", "kakeya._ray_proxy", "kakeya._ray_router", "kakeya.__init__"})
    for arguments in ([str(tmp_path / "use.py")], ["-m", "kakeya", *(part for name in modules for part in ("-m", name))]):
        out, errors, status = api.run(["--strict", "--cache-dir", str(tmp_path / "cache"), *arguments])
        assert status == 0, out + errors
