#!/usr/bin/env python3
"""Writes tests/data/kv/calibrated.json: vectors of keys and values, and what calibrated codes make of them, computed apart
from src/tensor/calibrated_code.cc, with whole arrays in double. Needs NumPy.

usage: tools/golden_kv_codes.py > tests/data/kv/calibrated.json
"""

import json
import sys

import numpy as np

STEPS = {1: 1.596, 2: 0.9957, 3: 0.586, 4: 0.3352, 5: 0.1881, 6: 0.1041, 7: 0.0569}
FACTORS = np.array([0.55, 0.65, 0.75, 0.85, 0.95, 1.05, 1.2, 1.35, 1.5, 1.7, 1.95, 2.25, 2.6, 3.0])


def bits_of(importance, rate):
    """Whole bits, each to the element whose error is largest; a bit leaves 0.36, 0.32, then 0.29 of it."""
    left = np.array(importance, dtype=np.float32)
    bits = np.zeros(len(left), dtype=int)
    for _ in range(rate * len(left)):
        most = np.argmax(np.where(bits < 7, left, -1))
        bits[most] += 1
        left[most] *= np.float32(0.36 if bits[most] == 1 else 0.32 if bits[most] == 2 else 0.29)
    return bits


def bfloat16(x):
    """Nearest, ties to even."""
    b = np.asarray(x, dtype=np.float32).view(np.uint32).astype(np.uint64)
    return ((b + 0x7fff + ((b >> 16) & 1)) & 0xffff0000).astype(np.uint32).view(np.float32).astype(np.float64)


def read_block(y, deviation, weight, bits):
    """A block of elements as it is read back."""
    step = np.array([STEPS.get(b, 0.0) for b in bits])
    has = bits > 0
    size = np.sqrt(np.mean((y[has] / deviation[has]) ** 2)) if has.any() else 0.0
    best, least = np.zeros_like(y), np.inf
    for factor in FACTORS if size > 0 else ():
        unit = bfloat16(size * factor) * step * deviation
        low = -(2.0 ** (bits - 1))
        code = np.clip(np.floor(np.divide(y, unit, out=np.zeros_like(y), where=has)), low, -low - 1)
        read = np.where(has, (code + 0.5) * unit, 0.0)
        error = np.sum((weight * (read - y) ** 2)[has])
        if error < least:
            best, least = read, error
    return best


def hadamard(size):
    h = np.ones((1, 1))
    while len(h) < size:
        h = np.block([[h, h], [h, -h]])
    return h / np.sqrt(size)


def main():
    random = np.random.default_rng(7)
    cases = []
    for head_dim, rate in ((16, 4), (32, 2), (64, 4), (96, 3), (128, 5)):
        mean = random.normal(0, 2, head_dim).astype(np.float32)
        deviation = np.exp(random.normal(-1, 1, head_dim))
        variance, cost = (deviation ** 2).astype(np.float32), np.exp(random.normal(0, 1, head_dim)).astype(np.float32)
        x = (mean + random.normal(0, 1, (4, head_dim)) * deviation).astype(np.float32)
        x[1] *= 8
        bits = bits_of(variance * cost, rate)
        keys = [read_block(row.astype(float) - mean, np.sqrt(variance.astype(float)), cost.astype(float), bits) + mean for row in x]
        piece = head_dim & -head_dim
        turn = np.kron(np.eye(head_dim // piece), hadamard(piece))
        block = 32 if head_dim % 32 == 0 else head_dim
        values = []
        for row in x:
            y = turn @ (row.astype(float) - mean)
            read = [read_block(part, np.ones(block), np.ones(block), np.full(block, rate)) for part in y.reshape(-1, block)]
            values.append(turn @ np.concatenate(read) + mean)
        texts = lambda rows: [[float(f"{v:.7g}") for v in row] for row in np.atleast_2d(rows)]
        cases.append({"bits": rate, "mean": texts(mean)[0], "variance": texts(variance)[0], "cost": texts(cost)[0],
                      "key_bits": bits.tolist(), "x": texts(x), "keys": texts(keys), "values": texts(values)})
    json.dump({"cases": cases}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
