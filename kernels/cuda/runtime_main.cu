#include "cuda/all.hpp"
#include "device/main.hpp"

int main(int argc, char** argv) {
  using namespace kvcast::kernels;
  return device_main(argc, argv, "kvcast-kernels", [](const Machine& machine) {
    // The costs that affect predictions most, those of copies and launches, come first: a session may be cut off.
    std::vector<Bench> all = runtime_benches(machine);
    for (Bench& bench : kernel_benches(machine)) all.push_back(std::move(bench));
    return all;
  });
}
