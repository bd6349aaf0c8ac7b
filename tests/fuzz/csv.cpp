// A table, through a file as every reader of one does.
#include "base/csv.hpp"

#include <fstream>

#include "fuzz.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvcast;
  static const std::string path = "fuzz-" + std::to_string(std::rand()) + ".csv";
  return fuzz::run(data, size, [](std::string_view text) {
    std::ofstream(path, std::ios::binary) << text;
    static_cast<void>(read_csv(path, "the table"));
  });
}
