#!/usr/bin/env python3
"""Writes tests/data/quantized with the packages that define the formats: gguf-py and MLX.

    pip install gguf==0.19.0 "mlx[cpu]==0.32.4" numpy==2.4.6
    python3 tools/make_quantized_goldens.py

  blocks.safetensors   for each block format of GGUF: `<format>.blocks` [N, bytes], random codes with
                       random and extreme scales, and `<format>.values` [N, elements], what
                       gguf.quants.dequantize makes of them
  encoded.safetensors  for each block format that gguf-py makes: `<format>.weights` [N, 64], and
                       `<format>.blocks`, what gguf.quants.quantize makes of them
  affine.safetensors   for each `<bits>.<group size>.<dtype>`: `.weights`, and what mlx.core.quantize
                       makes of them, `.codes`, `.scales` and `.biases`; `.values`, the codes with
                       scales and biases in f32 by mlx.core.dequantize; `.rounded`, the same with
                       scales and biases as they are
  small.gguf           a file of gguf.GGUFWriter: every type of metadata, several types of tensors
  small.safetensors    `small.gguf`'s tensors in f32
  flat.gguf            `small.gguf` without its array of arrays

The same packages write the same bytes.
"""
import json
import pathlib
import struct

import gguf
import mlx.core as mx
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFValueType as Value

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/quantized"
DTYPES = {"F32": mx.float32, "BF16": mx.bfloat16, "F16": mx.float16}

# Byte offsets of the halves in a block.
HALVES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q2_K: [80, 82], Type.Q3_K: [108], Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
    Type.IQ4_NL: [0], Type.IQ4_XS: [0], Type.MXFP4: [], Type.NVFP4: [],
}
# Zeros, ones, the smallest and largest subnormal, the smallest normal and the largest half.
EXTREMES = [0x0000, 0x8000, 0x3c00, 0xbc00, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x0400, 0x7bff, 0xfbff]
# Smallest, subnormal as halves of the scale, one, and the largest whose products are finite.
EXPONENTS = [0, 1, 2, 3, 126, 127, 128, 251]


def random_halves(random, count):
    bits = random.integers(0, 1 << 16, size=count, dtype=np.uint16)
    # No infinity and no NaN: they have all exponent bits.
    return np.where(bits & 0x7c00 == 0x7c00, bits ^ 0x4000, bits)


def blocks_of(random, kind):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    count = 12 if elements == 256 else 16
    blocks = random.integers(0, 256, size=(count, size), dtype=np.uint8)
    for position, offset in enumerate(HALVES[kind]):
        halves = random_halves(random, count)
        # Shifted, so that blocks with two halves see different pairs.
        halves[:len(EXTREMES)] = np.roll(EXTREMES, 4 * position)
        blocks[:, offset:offset + 2] = halves.view(np.uint8).reshape(count, 2)
    if kind == Type.MXFP4:
        blocks[:, 0] = random.integers(0, 252, size=count)
        blocks[:len(EXPONENTS), 0] = EXPONENTS
    if kind == Type.NVFP4:
        # Every scale byte occurs, those with the top bit and 0x7f too.
        scales = np.arange(256, dtype=np.uint8).reshape(64, 4)
        blocks = random.integers(0, 256, size=(64, size), dtype=np.uint8)
        blocks[:, :4] = scales
    return blocks


def write(name, tensors):
    """A safetensors file of {name: (dtype, array of its bytes)}."""
    header, data = {}, b""
    for key, (dtype, array) in tensors.items():
        end = len(data) + array.nbytes
        header[key] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), end]}
        data += np.ascontiguousarray(array).tobytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    (OUT / name).write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_blocks(random):
    tensors = {}
    for kind in HALVES:
        blocks = blocks_of(random, kind)
        values = gguf.quants.dequantize(blocks, kind)
        assert np.isfinite(values).all(), kind
        tensors[kind.name + ".blocks"] = ("U8", blocks)
        tensors[kind.name + ".values"] = ("F32", values)
    write("blocks.safetensors", tensors)


def encoded_weights(random):
    """[N, 64]: two blocks a row."""
    weights = random.standard_normal((24, 64)).astype(np.float32)
    weights[0] = 0.0
    weights[1] = 0.37
    weights[1, 32:] = -0.37
    weights[2] = np.abs(weights[2]) + 0.5
    weights[2, 32:] *= -1.0
    weights[3, :32] *= 1e-9  # the scale is less than the smallest half
    weights[3, 32:] *= 1e-6  # and here a subnormal one
    weights[4] *= 3000.0
    # Both signs of the largest magnitude; the first decides.
    weights[5, 3], weights[5, 7] = 4.0, -4.0
    weights[5, 35], weights[5, 39] = -4.0, 4.0
    # Halves of steps: ties.
    for row, step in [(6, 8), (7, 16), (8, 127), (9, 15), (10, 31)]:
        weights[row] = random.integers(-2 * step, 2 * step + 1, size=64) / 2
        weights[row, 1::32], weights[row, 2::32] = -step, step
    weights[11, 5] = 65504.0
    weights[12, 5] = -0.0
    weights[12, 6:32] = 0.0
    return weights


def write_encoded(random):
    tensors = {}
    for kind in (Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1, Type.Q8_0):
        weights = encoded_weights(random)
        tensors[kind.name + ".weights"] = ("F32", weights)
        tensors[kind.name + ".blocks"] = ("U8", gguf.quants.quantize(weights, kind))
    write("encoded.safetensors", tensors)


def affine_weights(random, bits):
    """[5, 128]: every group size gets whole groups of each kind."""
    weights = random.standard_normal((5, 128)).astype(np.float32)
    weights[0] = 0.0
    weights[1] = 0.37
    weights[1, 32:64] = 1e-9
    weights[1, 64:] = -0.37
    weights[2] = np.abs(weights[2]) + 0.5  # the scale is negative
    weights[2, 64:] *= -1.0  # and here it is positive
    weights[3, :64] *= 1e-8  # below the smallest scale
    weights[3, 64:] *= 3000.0
    # Steps of 1/2, and the larger end half a step from a whole number of them: ties.
    steps = (1 << bits) - 1
    high = steps // 2 / 2 + 0.75
    weights[4] = random.integers(0, 2 * steps + 1, size=128) / 4 + high - steps / 2
    weights[4, ::32] = high
    weights[4, 1::32] = high - steps / 2
    return weights


def raw(array):
    """The array's bytes as numpy can hold them: bfloat16 is none of its types."""
    return np.array(array.view(mx.uint16) if array.dtype == mx.bfloat16 else array)


def write_affine(random):
    mx.set_default_device(mx.cpu)
    tensors = {}
    cases = [(bits, group, "BF16") for bits in (2, 3, 4, 5, 6, 8) for group in (32, 64, 128)]
    cases += [(bits, 64, dtype) for bits in (3, 4, 8) for dtype in ("F16", "F32")]
    for bits, group, dtype in cases:
        weights = mx.array(affine_weights(random, bits)).astype(DTYPES[dtype])
        codes, scales, biases = mx.quantize(weights, group_size=group, bits=bits)
        wide = [array.astype(mx.float32) for array in (scales, biases)]
        values = mx.dequantize(codes, *wide, group_size=group, bits=bits)
        rounded = mx.dequantize(codes, scales, biases, group_size=group, bits=bits)
        key = f"{bits}.{group}.{dtype}"
        tensors[key + ".weights"] = (dtype, raw(weights))
        tensors[key + ".codes"] = ("U32", np.array(codes))
        tensors[key + ".scales"] = (dtype, raw(scales))
        tensors[key + ".biases"] = (dtype, raw(biases))
        tensors[key + ".values"] = ("F32", np.array(values))
        tensors[key + ".rounded"] = (dtype, raw(rounded))
    write("affine.safetensors", tensors)


def add_metadata(writer):
    writer.add_uint8("types.uint8", 255)
    writer.add_int8("types.int8", -128)
    writer.add_uint16("types.uint16", 65535)
    writer.add_int16("types.int16", -32768)
    writer.add_uint32("types.uint32", 4294967295)
    writer.add_int32("types.int32", -2147483648)
    writer.add_float32("types.float32", 0.1)
    writer.add_bool("types.bool", True)
    writer.add_string("types.string", "gr\u00fc\u00df dich \U0001f600\n")
    writer.add_uint64("types.uint64", 18446744073709551615)
    writer.add_int64("types.int64", -9223372036854775808)
    writer.add_float64("types.float64", 0.1)
    arrays = {
        Value.UINT8: [0, 255], Value.INT8: [-128, 127], Value.UINT16: [0, 65535],
        Value.INT16: [-32768, 32767], Value.UINT32: [0, 4294967295],
        Value.INT32: [-2147483648, 2147483647], Value.FLOAT32: [0.1, -1.5, 1e30],
        Value.BOOL: [True, False, True], Value.STRING: ["", "a", "\u2581the", "b\0c"],
        Value.UINT64: [0, 18446744073709551615],
        Value.INT64: [-9223372036854775808, 9223372036854775807], Value.FLOAT64: [0.1, -1e300],
    }
    for kind, values in arrays.items():
        writer.add_key_value("arrays." + kind.name.lower(), values, Value.ARRAY, kind)


def write_file(random, name, nested):
    writer = gguf.GGUFWriter(OUT / (name + ".gguf"), "kakeya-test")
    writer.add_custom_alignment(64)
    add_metadata(writer)
    if nested:
        writer.add_key_value("arrays.nested", [[1, 2], [3], [4, 5, 6]], Value.ARRAY, Value.ARRAY)
    expected = {}

    def add(name, stored, kind, values):
        writer.add_tensor(name, stored, raw_dtype=kind)
        expected[name] = ("F32", np.ascontiguousarray(values, dtype=np.float32))

    plain = random.standard_normal((3, 5)).astype(np.float32)
    add("plain.f32", plain, Type.F32, plain)
    half = plain.astype(np.float16)
    add("plain.f16", half, Type.F16, half)
    brain = gguf.quants.quantize(plain, Type.BF16)
    add("plain.bf16", brain, Type.BF16, gguf.quants.dequantize(brain, Type.BF16))
    vector = np.arange(7, dtype=np.float32)
    add("vector", vector, Type.F32, vector)
    for kind, shape in [(Type.Q4_0, (2, 64)), (Type.Q8_0, (2, 3, 32)), (Type.Q6_K, (2, 256)),
                        (Type.Q4_K, (1, 512)), (Type.MXFP4, (2, 2, 32))]:
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = blocks_of(random, kind)[-int(np.prod(shape)) // elements:]
        stored = blocks.reshape(*shape[:-1], shape[-1] // elements * size)
        add("blocks." + kind.name.lower(), stored, kind, gguf.quants.dequantize(stored, kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    write(name + ".safetensors", expected)


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    write_blocks(np.random.default_rng(1))
    write_affine(np.random.default_rng(2))
    write_encoded(np.random.default_rng(4))
    write_file(np.random.default_rng(3), "small", nested=True)
    write_file(np.random.default_rng(3), "flat", nested=False)
    (OUT / "flat.safetensors").unlink()  # as those of small.gguf


if __name__ == "__main__":
    main()
