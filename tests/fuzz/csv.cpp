// A table, written to a file and read back as all tables are.
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
