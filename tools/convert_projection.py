#!/usr/bin/env python3
"""Converts a projection of the first (Python) project to the form that kakeya loads.

usage: tools/convert_projection.py IN_DIR OUT_DIR

IN_DIR holds f_theta_config.json and f_theta_weights.pt; OUT_DIR gets f_theta_config.json and
model.safetensors with the same values. Needs nothing but Python: the .pt file is a zip of a pickle
and raw numbers, and of the pickle only what describes tensors is understood, so that a file from
anybody can run no code.
"""

import collections
import io
import json
import pathlib
import pickle
import shutil
import struct
import sys
import zipfile

STORAGES = {"FloatStorage": ("F32", 4), "HalfStorage": ("F16", 2), "BFloat16Storage": ("BF16", 2),
            "DoubleStorage": ("F64", 8)}


class Refused(Exception):
    pass


class Storage:
    """The kind of a storage, named in place of torch's class."""

    def __init__(self, name):
        self.dtype, self.width = STORAGES[name]


def rebuild_tensor(storage, offset, shape, stride, *_):
    dtype, width, raw = storage
    count, expected = 1, []
    for size in reversed(shape):
        expected.insert(0, count)
        count *= size
    if tuple(stride) != tuple(expected):
        raise Refused(f"expected contiguous tensors, got shape {tuple(shape)} stride {tuple(stride)}")
    begin = offset * width
    data = raw[begin:begin + count * width]
    if offset < 0 or len(data) != count * width:
        raise Refused(f"expected {count} numbers from {offset} on, the storage has fewer")
    return dtype, list(shape), data


class TensorUnpickler(pickle.Unpickler):
    ALLOWED = {("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
               ("collections", "OrderedDict"): collections.OrderedDict}

    def __init__(self, text, archive, folder):
        super().__init__(io.BytesIO(text))
        self.archive, self.folder = archive, folder

    def find_class(self, module, name):
        if module == "torch" and name in STORAGES:
            return Storage(name)
        if (module, name) not in self.ALLOWED:
            raise Refused(f"expected tensors only, got {module}.{name}")
        return self.ALLOWED[module, name]

    def persistent_load(self, reference):
        kind, storage, key, _, count = reference
        if kind != "storage" or not isinstance(storage, Storage):
            raise Refused(f"expected a storage, got {kind}")
        raw = self.archive.read(f"{self.folder}/data/{key}")
        if len(raw) != count * storage.width:
            raise Refused(f"expected {count} numbers in storage {key}, got {len(raw)} bytes")
        return storage.dtype, storage.width, raw


def load_tensors(path):
    if not zipfile.is_zipfile(path):
        raise Refused(f"{path}: expected a zip as torch.save writes it since 1.6, got something else")
    with zipfile.ZipFile(path) as archive:
        pickles = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise Refused(f"{path}: expected one data.pkl, got {len(pickles)}")
        folder = pickles[0].rsplit("/", 1)[0]
        if f"{folder}/byteorder" in archive.namelist():
            order = archive.read(f"{folder}/byteorder")
            if order != b"little":
                raise Refused(f"{path}: expected little-endian numbers, got {order!r}")
        tensors = TensorUnpickler(archive.read(pickles[0]), archive, folder).load()
    if not isinstance(tensors, dict) or not all(isinstance(name, str) for name in tensors):
        raise Refused(f"{path}: expected a dictionary of tensors, got {type(tensors).__name__}")
    return tensors


def save_safetensors(path, tensors):
    header, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, target = map(pathlib.Path, sys.argv[1:])
    try:
        config = json.loads((source / "f_theta_config.json").read_text())
        tensors = load_tensors(source / "f_theta_weights.pt")
        target.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / "f_theta_config.json", target / "f_theta_config.json")
        save_safetensors(target / "model.safetensors", tensors)
    except (Refused, OSError, ValueError, KeyError, EOFError, pickle.UnpicklingError,
            zipfile.BadZipFile) as error:
        sys.exit(f"convert_projection: {error}")
    print(f"{len(tensors)} tensors, rank {config.get('rank')}, features "
          f"{config.get('features', 'token (not said)')}: {target}")


if __name__ == "__main__":
    main()
