#!/usr/bin/env python3
"""Writes tests/data/gguf with the converter of llama.cpp, which defines what a GGUF model is.

    pip install torch==2.15.0 transformers==5.23.0 numpy==2.4.6 safetensors==0.8.0
    python3 tools/make_gguf_goldens.py LLAMA_CPP     a checkout that knows gemma4 and dflash

  gemma4-moe.gguf     tests/data/networks/gemma4-moe with the demo model's tokenizer and template
  dflash-gemma4.gguf  tests/data/networks/dflash-gemma4 with the first tokens of that tokenizer

The converter of llama-cpp-python's source package (2026-11) wrote the stored files.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/gguf"
NETWORKS = ROOT / "tests/data/networks"
DEMO = ROOT / "models/demo"
TOKENIZER_FILES = ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja"]


def convert(llama_cpp, model, name, *options):
    command = [sys.executable, llama_cpp / "convert_hf_to_gguf.py", model, "--outtype", "bf16",
               "--model-name", name, "--outfile", OUT / f"{name}.gguf", *options]
    subprocess.run(command, check=True)


def cut_tokenizer(folder, count):
    """Leaves the tokens below `count`, without merges and template: nothing reads a drafter's."""
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    model = tokenizer["model"]
    model["vocab"] = {text: id for text, id in model["vocab"].items() if id < count}
    model["merges"] = []
    path.write_text(json.dumps(tokenizer))
    (folder / "chat_template.jinja").unlink()


def main():
    llama_cpp = pathlib.Path(sys.argv[1])
    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        target = pathlib.Path(scratch) / "gemma4-moe"
        shutil.copytree(NETWORKS / "gemma4-moe", target)
        (target / "golden.safetensors").unlink()
        for name in TOKENIZER_FILES:
            shutil.copy(DEMO / name, target / name)
        convert(llama_cpp, target, "gemma4-moe")
        cut_tokenizer(target, 512)
        drafter = pathlib.Path(scratch) / "dflash-gemma4"
        shutil.copytree(NETWORKS / "dflash-gemma4", drafter)
        (drafter / "golden.safetensors").unlink()
        convert(llama_cpp, drafter, "dflash-gemma4", "--target-model-dir", target)


if __name__ == "__main__":
    main()
