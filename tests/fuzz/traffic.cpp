// A trace of requests in the format that its start tells, read to its end.
#include <fstream>

#include "fuzz.hpp"
#include "traffic/source.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace kvcast;
  static const std::string path = "fuzz-" + std::to_string(std::rand()) + ".trace";
  return fuzz::run(data, size, [](std::string_view text) {
    std::ofstream(path, std::ios::binary) << text;
    config::Traffic traffic;
    traffic.arrivals = config::Traffic::Arrivals::kTrace;
    traffic.file = path;
    for (const auto source = traffic::make_source(traffic); source->next() != traffic::kNever;) {
      const traffic::Request request = source->take();
      source->ended(request, request.arrival);
    }
  });
}
