#include "device/main.hpp"
#include "pipeline/all.hpp"

int main(int argc, char** argv) {
  using namespace kvcast::kernels;
  return device_main(argc, argv, "kvcast-pipeline", pipeline_benches);
}
