// Backends for tests, which users of the library do not link: the reference on memory that nobody
// else can touch, and the CUDA backend on a card that the host plays.
#pragma once

namespace kakeya {

// Makes "guarded" and "cuda-emulated" names of backends. Call it once, before any is created.
void add_emulated_backends();

}  // namespace kakeya
