// An operation graph as `kvcast simulate` reads it.
#include "engine/graph_input.hpp"

#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvcast;
  return fuzz::run(data, size, [](std::string_view text) { static_cast<void>(engine::read_graph(text, "fuzz.json")); });
}
