// `kvcast explain` lists the operations of the step, the sequences and the GPU that its text names.
#include <catch2/catch.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "app/process.hpp"

namespace kvcast::tests {

using Catch::Contains;

namespace {

constexpr const char* kRecalls =
    "model: llama-3.2-1b\nhardware: a100-40gb-pcie4\n"
    "policy: {name: freekv, budget: 128, sink: 16, recent: 16, page: 16, tau: 0.8}\n"
    "workload: {prompt_tokens: 1000, decode_tokens: 16}\n"
    "trace: {recipe: needle, seed: 3, layers: 2, steps: 5}\n";

std::string explained(const std::string& config, const std::string& step, std::vector<std::string> settings = {}) {
  std::vector<std::string> arguments = {"explain", config, "--step", step, "--layer", "1"};
  for (const std::string& s : settings) arguments.insert(arguments.end(), {"--set", s});
  const Output o = kvcast(arguments);
  INFO(o.err);
  REQUIRE(o.code == 0);
  return o.out;
}

// Sums a number over all matches; the second group, if there is one, is a unit of time.
double sum_of(const std::string& text, const std::regex& pattern) {
  double sum = 0;
  for (std::sregex_iterator m(text.begin(), text.end(), pattern), end; m != end; ++m) {
    const std::string unit = m->size() > 2 ? (*m)[2].str() : "";
    sum += std::stod((*m)[1]) * (unit == "ns" ? 1e-9 : unit == "\u00b5s" ? 1e-6 : unit == "ms" ? 1e-3 : 1);
  }
  return sum;
}

double pieces_in(const std::string& text) { return sum_of(text, std::regex("in (\\d+) pieces?")); }
double copy_starts_in(const std::string& text) {
  return sum_of(text, std::regex("([0-9.]+) (ns|\u00b5s|ms)  starts of the copy engine \\(copy engine H2D\\)"));
}

}  // namespace

TEST_CASE("explain lists as many copied pieces as the selection of the step fetches in all sequences") {
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml", kRecalls);
  const std::string first = explained(config, "0");
  REQUIRE(pieces_in(first) > 0);
  const double of_piece = copy_starts_in(first) / pieces_in(first);
  REQUIRE(of_piece > 0);
  std::set<double> pieces;
  for (const char* step : {"0", "1", "2", "4"}) {
    INFO("step " << step);
    const std::string text = explained(config, step);
    CHECK_THAT(text,
               Contains("Operations of layer 1 in step " + std::string(step) + " for 1 sequence with the counts"));
    CHECK(copy_starts_in(text) == Approx(of_piece * pieces_in(text)).epsilon(0.01));
    pieces.insert(pieces_in(text));
  }
  CHECK(pieces.size() > 1);  // so that steps cannot be mistaken for each other
  const std::string both = explained(config, "2", {"workload.batch=2"});
  CHECK(copy_starts_in(both) == Approx(2 * of_piece * pieces_in(both)).epsilon(0.01));
}

TEST_CASE("explain names the micro-batch and the GPU of the operations that it lists") {
  const Scratch scratch;
  const std::string config = scratch.write("run.yaml", kRecalls);
  CHECK_THAT(explained(config, "1", {"workload.batch=8"}),
             Contains(" for 8 sequences, each with the counts of this selection\n"));
  CHECK_THAT(
      explained(config, "1", {"workload.batch=8", "deployment.pipeline_parallel=4", "deployment.tensor_parallel=4"}),
      Contains(" for a micro-batch of 2 of the 8 sequences, each with the counts of this selection\n"
               "on one of the 4 GPUs that share a layer: the one with the most work, for 2 of the 8 KV heads\n"));
  CHECK_THAT(explained(config, "1", {"policy.first_dense_layers=2"}),
             Contains(" for 1 sequence; the policy leaves this layer uncompressed\n"));
}

TEST_CASE("every operation that explain refers to is listed or named") {
  const Scratch scratch;
  const std::string text = explained(scratch.write("run.yaml", kRecalls), "3");
  std::istringstream lines(text);
  std::set<std::string> listed;
  int named = 0, awaited = 0;
  const std::regex reference("(#\\d+)( \\([^)]*\\))?");
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '#') continue;
    INFO(line);
    CHECK_THAT(line, !Contains("join"));
    listed.insert(line.substr(0, line.find(' ')));
    const std::size_t after = line.find(", after ");
    const std::string list = after == std::string::npos ? "" : line.substr(after);
    for (std::sregex_iterator m(list.begin(), list.end(), reference), end; m != end; ++m) {
      const bool has_name = (*m)[2].matched;
      CHECK(listed.contains((*m)[1]) == !has_name);  // operations wait for earlier ones
      named += has_name ? 1 : 0, ++awaited;
    }
  }
  CHECK(named >= 2);
  CHECK(awaited > named);
  CHECK_THAT(text, Contains("(down projection, layer 0)") && Contains("(convert layout, layer 1, step before)"));
}

}  // namespace kvcast::tests
