"""tools/convert_projection.py: a .pt file as torch.save writes it becomes the same tensors, and one
that would run code is refused. The files are made here, by Python's own pickler with stand-ins for
the names of torch that such files hold."""

import collections
import io
import json
import pathlib
import pickle
import shutil
import struct
import subprocess
import sys
import tempfile
import types
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEMO = ROOT / "models/demo/projections/aux"
CONVERT = ROOT / "tools/convert_projection.py"

torch = types.ModuleType("torch")
torch_utils = types.ModuleType("torch._utils")


class FloatStorage:
    pass


def _rebuild_tensor_v2(*_):
    pass


FloatStorage.__module__ = FloatStorage.__qualname__ = "torch"
FloatStorage.__qualname__ = "FloatStorage"
_rebuild_tensor_v2.__module__ = "torch._utils"
torch.FloatStorage = FloatStorage
torch_utils._rebuild_tensor_v2 = _rebuild_tensor_v2
sys.modules.update({"torch": torch, "torch._utils": torch_utils})


class StoredKey:
    def __init__(self, key, count):
        self.reference = ("storage", FloatStorage, key, "cpu", count)


class Tensor:
    def __init__(self, key, count, offset, shape, stride):
        self.arguments = (StoredKey(key, count), offset, tuple(shape), tuple(stride), False,
                          collections.OrderedDict())

    def __reduce__(self):
        return _rebuild_tensor_v2, self.arguments


class TorchPickler(pickle.Pickler):
    def persistent_id(self, item):
        return item.reference if isinstance(item, StoredKey) else None


def safetensors(path):
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["dtype"], entry["shape"],
                   raw[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


class ConvertProjection(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copyfile(DEMO / "f_theta_config.json", self.folder / "f_theta_config.json")

    def save(self, objects, storages):
        text = io.BytesIO()
        TorchPickler(text, protocol=2).dump(objects)
        with zipfile.ZipFile(self.folder / "f_theta_weights.pt", "w") as archive:
            archive.writestr("f_theta_weights/data.pkl", text.getvalue())
            archive.writestr("f_theta_weights/byteorder", "little")
            for key, data in storages.items():
                archive.writestr(f"f_theta_weights/data/{key}", data)

    def convert(self):
        return subprocess.run([sys.executable, CONVERT, self.folder, self.folder / "out"],
                              capture_output=True, text=True, check=False)

    def refusal(self):
        run = self.convert()
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        return run.stderr

    def test_gives_the_same_tensors(self):
        tensors = safetensors(DEMO / "model.safetensors")
        objects, storages = collections.OrderedDict(), {}
        for key, (name, (_, shape, data)) in enumerate(tensors.items()):
            # Behind two numbers that belong to nobody.
            storages[str(key)] = b"\0" * 8 + data
            objects[name] = Tensor(str(key), len(data) // 4 + 2, 2, shape, (shape[1], 1))
        self.save(objects, storages)
        run = self.convert()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(safetensors(self.folder / "out/model.safetensors"), tensors)
        self.assertEqual((self.folder / "out/f_theta_config.json").read_bytes(),
                         (DEMO / "f_theta_config.json").read_bytes())

    def test_runs_no_code(self):
        class Evil:
            def __reduce__(self):
                return print, ("ran",)

        self.save(collections.OrderedDict(a=Evil()), {})
        self.assertIn("expected tensors only, got __builtin__.print", self.refusal())

    def test_refuses_what_it_cannot_read(self):
        self.save(collections.OrderedDict(a=Tensor("0", 4, 0, (2, 2), (1, 2))), {"0": b"\0" * 16})
        self.assertIn("contiguous", self.refusal())
        self.save(collections.OrderedDict(a=Tensor("0", 4, 1, (2, 2), (2, 1))), {"0": b"\0" * 16})
        self.assertIn("fewer", self.refusal())
        self.save(collections.OrderedDict(a=Tensor("0", 5, 0, (2, 2), (2, 1))), {"0": b"\0" * 16})
        self.assertIn("got 16 bytes", self.refusal())
        self.save([1, 2], {})
        self.assertIn("expected a dictionary", self.refusal())
        (self.folder / "f_theta_weights.pt").write_bytes(b"\x80\x02.")
        self.assertIn("expected a zip", self.refusal())


if __name__ == "__main__":
    unittest.main()
