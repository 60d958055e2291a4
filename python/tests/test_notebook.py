"""The notebook of examples/ runs as it stands there; it asserts what it says of equal outputs."""

import pytest

nbclient = pytest.importorskip("nbclient", reason="pip install kakeya[pages]")

import nbformat
from conftest import ROOT


def test_the_tour_runs(tmp_path):
    notebook = nbformat.read(ROOT / "examples/tour.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3",
                            resources={"metadata": {"path": str(tmp_path)}}).execute()
    plots = [output for cell in notebook.cells for output in cell.get("outputs", [])
             if "image/png" in output.get("data", {})]
    assert len(plots) == 2
