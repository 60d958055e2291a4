// The functions that device code may use, and nothing else: indices, barriers, exchanges between
// the 32 lanes of a warp, memory, and arithmetic that gives the same bits wherever it runs. Two
// implementations: by nvcc for cards, and by the host's compiler for the emulator.
//
//   KAKEYA_DEVICE            before each function that runs on the device
//   KAKEYA_UNROLL            before each loop over an array that is to be in registers
//   KAKEYA_NO_UNROLL         before a loop whose body is long
//   KAKEYA_UNROLL_SOME       before a loop of which four rounds are to overlap
//   lane(), warp(), ...      who is running
//   wait_for_previous()      until all launches before this one have ended, and their writes are
//                            seen; before it a kernel copies weights, calls load_fresh(), and
//                            writes nothing
//   let_next_start()         the next launch may start, which waits likewise: called behind the
//                            wait, but where nothing that can follow reads early what launches
//                            before have written
//   sync_block()             all threads of the block; what they wrote is seen behind it
//   last_of(counter, count)  by all threads of `count` blocks of the launch: true in the block that
//                            comes last, which sees what the others wrote before they came, and
//                            nobody else does. The counter is zero before the launch, and again
//                            behind it
//   sync_warp()              all lanes of the warp; the same
//   warp_sums(values), ...   all lanes of the warp take part
//   of_lanes(own, i, all)    each lane gets what lane i, which it names, and those behind it have
//   lanes_with(value)        a bit for each lane of the warp that has the same value
//   warp_swap(values, apart) each lane gets what lane number (its own xor apart) has
//   mma(sums, a, b)          the warp's 16 x 8 sums, each with 16 products of bf16 added, as tensor
//                            cores do: fragments of mma.m16n8k16
//   integer_mma(sums, a, b, first)   several times the warp's 16 x 8 sums of `first` and 32
//   products
//                            of bytes of a, unsigned, and of b, signed: fragments of mma.m16n8k32
//   bf16_pairs(values, out)  numbers rounded to bf16, two a word, the first one lowest
//   Global<T>                the device's memory from an address on; prefetch() brings it near.
//                            load_fresh() may come before wait_for_previous(), of what the launch
//                            before the previous one has written, or an earlier one: the previous
//                            one let this one start when it had waited for them itself
//   Shared<T>                the block's own memory, in words of 4 bytes; load_as(), store_as():
//                            several of them at once, at a multiple of their size
//   begin_copy(word, from, index, policy)  begins a copy of 16 bytes of the device's memory to
//   shared
//                            memory, to a multiple of them. Nobody reads or writes there until the
//                            thread has awaited it, nor others before a barrier behind that
//   publish_writes()         what the thread has written is seen by launches that start when this
//                            one, which does not let them before, has ended
//   load_of_host(address)    what the host has written to memory that both reach
//   tell_host(address, number)  writes for a host that looks: when it sees the number it sees what
//                            the launch and all before it have written
//   end_copies()             closes the thread's group of copies, perhaps without any
//   await_copies<kLater>()   the thread's closed groups are there, but for the last kLater
//   CopyPolicy(once)         copies of what is read once leave the cache to others
//   load_matrices(row, out)  four matrices of 8 x 8 numbers of 16 bits in shared memory, of which
//                            lane 8 i + j names the word where row j of matrix i begins, a multiple
//                            of four: as fragments, or of the transposed ones (..._turned)
//   fma(), sqrt(), ...       rounded once, ties to even
//   floats_of_halves(pair, out)  two numbers of 16 bits, the first one lowest: exact
//   round_to_bf16(values)    each to the nearest bf16, ties to even; any NaN for NaN
#pragma once

#if defined(__CUDACC__)
#include "backend/cuda/device/dev_ptx.h"
#else
#include "backend/cuda/device/dev_emulated.h"
#endif
