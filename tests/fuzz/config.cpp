// A configuration of a run, and the values of its sweep.
#include "config/run.hpp"

#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvcast;
  return fuzz::run(data, size, [](std::string_view text) {
    const config::Node node = config::parse_yaml(text, "fuzz.yaml");
    static_cast<void>(config::read_run(node));
  });
}
