// Limits that a server of many connections sets itself.
#pragma once

namespace kakeya::cli {

// Makes the allocator give memory back that sessions had. glibc would raise its bound for large
// blocks up to 32 MiB as sessions come and go, keep their memory among that of small blocks, and
// the program would grow for hours. Fixed at where it begins, what a session had goes back to the
// system; so it does with few heaps for many threads.
void give_memory_back();

// Raises the limit of descriptors: a connection takes four, and many systems begin with 1,024 for a
// process.
void raise_descriptor_limit();

}  // namespace kakeya::cli
