#include "cuda/all.hpp"
#include "device/main.hpp"

int main(int argc, char** argv) {
  using namespace kvcast::kernels;
  return device_main(argc, argv, "kvcast-kernels", [](const Machine& machine) {
    std::vector<Bench> all = kernel_benches(machine);
    for (Bench& bench : runtime_benches(machine)) all.push_back(std::move(bench));
    return all;
  });
}
