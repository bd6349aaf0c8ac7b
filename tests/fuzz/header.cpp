// The header of a safetensors file.
#include "trace/safetensors_header.hpp"

#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvcast;
  return fuzz::run(data, size,
                   [](std::string_view text) { static_cast<void>(trace::parse_header(text, "fuzz.safetensors")); });
}
