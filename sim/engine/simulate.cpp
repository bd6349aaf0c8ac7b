// Reads a graph, runs it and writes the result.
#include "engine/simulate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <vector>

#include "base/error.hpp"
#include "engine/engine.hpp"
#include "engine/graph_input.hpp"

namespace kvcast::engine {

namespace {

class Times final : public Observer {
 public:
  explicit Times(std::size_t rows) : start_(rows), finish_(rows) {}
  void finished(const Record& record) override {
    start_[record.tag] = record.start;
    finish_[record.tag] = record.finish;
  }
  double start(std::size_t row) const { return to_seconds(start_[row]); }
  double finish(std::size_t row) const { return to_seconds(finish_[row]); }

 private:
  std::vector<Picoseconds> start_, finish_;
};

Outcome run_graph(GraphInput& input, Times& times, const std::string& file_name) {
  OneBlock source(std::move(input.ops));
  try {
    return run(input.system, source, &times);
  } catch (const UserError& error) {
    throw UserError(SourceLocation{file_name}, error.what());
  }
}

}  // namespace

std::string simulate_json(std::string_view text, const std::string& file_name) {
  GraphInput input = read_graph(text, file_name);
  const std::size_t rows = input.ids.size();
  Times times(rows);
  const Outcome outcome = run_graph(input, times, file_name);

  std::vector<std::size_t> by_id(rows);
  std::iota(by_id.begin(), by_id.end(), std::size_t{0});
  std::sort(by_id.begin(), by_id.end(), [&](std::size_t a, std::size_t b) { return input.ids[a] < input.ids[b]; });
  std::string out;
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "{{\"makespan_s\":{},\"ops\":[", to_seconds(outcome.makespan));
  const char* separator = "\n";
  for (const std::size_t row : by_id) {
    fmt::format_to(to, "{}{{\"id\":{},\"start_s\":{},\"finish_s\":{}}}", separator, input.ids[row], times.start(row),
                   times.finish(row));
    separator = ",\n";
  }
  out += "\n]}";
  return out;
}

}  // namespace kvcast::engine
