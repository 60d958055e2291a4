"""Thousands of generations, forks and cancelled tasks leave nothing: neither resident memory nor the ledger grows."""

import asyncio
import os

import kakeya

ROUNDS = 10_000 if os.environ.get("KAKEYA_THOROUGH") else 300


def resident_kib():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


async def cancelled(engine, seed):
    async def read():
        async for _ in engine.astream("Tell me a story.", max_tokens=200, temperature=1.0, seed=seed):
            started.set()

    started = asyncio.Event()
    task = asyncio.create_task(read())
    await started.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    return False


def one_round(engine, session, index):
    """Returns how many tasks were cancelled before their answer was whole."""
    kind = index % 4
    if kind == 0:
        engine.generate([[2, 110 + index % 90, 124]], max_tokens=4, seed=index, temperature=1.0)
    elif kind == 1:
        session.truncate(5)
        fork = session.fork()
        fork.generate(max_tokens=2)
        session.generate(max_tokens=2)
    elif kind == 2:
        stream = engine.stream("Count from 5 to 12.", max_tokens=50)
        next(stream)
        stream.close()
    else:
        return asyncio.run(cancelled(engine, index))
    return 0


def test_nothing_grows():
    engine = kakeya.Engine(threads=1, pin_threads=False, prompt_cache_bytes=0)
    session = engine.session()
    session.append([2, 110, 117, 124, 131])
    # Allocators and pools have their size after the first ones.
    for index in range(200):
        one_round(engine, session, index)
    ledger, resident = engine.footprint(), resident_kib()
    ended = sum(one_round(engine, session, index) for index in range(ROUNDS))
    assert ended > ROUNDS / 8
    assert engine.footprint() == ledger
    # 1 KiB a generation would be 10 MiB; what allocators keep from the threads of asyncio's pool is not a leak.
    assert resident_kib() < resident + 6 * 1024
    session = None
    del engine
