// Facts about a Hopper card that the plan of the backend for NVIDIA rests on: JSON lines, F1 to
// F11. usage: facts [memory] [matrix] [exchange] [launch]; without a word all of them.
#include <cstring>

#include "facts.h"

int main(int argc, char** argv) {
  struct {
    const char* name;
    void (*measure)(cudaStream_t);
  } const groups[] = {{"memory", memory_facts},
                      {"matrix", matrix_facts},
                      {"exchange", exchange_facts},
                      {"launch", launch_facts}};
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (const auto& group : groups) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], group.name) == 0;
    if (wanted) group.measure(stream);
  }
  CHECK(cudaStreamSynchronize(stream));
  return 0;
}
