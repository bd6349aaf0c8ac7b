// No number of a profile is fitted to these kernels, but for the softmax over pages: they are priced by class, bytes
// and operations alone, so their errors show how accurate a policy's time is if its kernel was not measured.
#include "validate/policy_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "calibrate/machine.hpp"
#include "config/find.hpp"
#include "engine/engine.hpp"
#include "hardware/cost_model.hpp"
#include "simulate/timed.hpp"

namespace kvcast::validate {
namespace {

using calibrate::Row;
using graph::Kernel;
using graph::KernelClass;

constexpr double kHalf = 2, kId = 4, kSingle = 4;  // bytes of a number
constexpr double kDim = 128;                       // head dimension of benchmarks without such an axis
constexpr double kKernelMedian = 10, kKernelP90 = 30;

graph::DecodeAttention attention(double rows, double group, double tokens, double dim, double unit) {
  graph::DecodeAttention work;
  work.rows = rows, work.group = group, work.head_dim = dim;
  work.tokens = rows * tokens, work.longest = tokens, work.unit_bytes = unit;
  return work;
}

std::vector<graph::Work> sparse_attention(const Row& row) {
  const double dim = row.number("dim");
  graph::DecodeAttention work = attention(row.number("batch") * row.number("kv_heads"), row.number("group"),
                                          row.number("tokens"), dim, row.number("page") * dim * kHalf);
  if (row.numbers.at("consistent") == 0) work.kv_reads = work.group;
  return {work};
}

// Codes of 2 bits, plus a scale and a minimum in half precision for every 32 numbers.
std::vector<graph::Work> kivi_attention(const Row& row) {
  constexpr double kBytes = 2.0 / 8 + 2 * kHalf / 32, kUnpack = 4;
  graph::DecodeAttention work =
      attention(row.number("batch") * row.number("kv_heads"), row.number("group"), row.number("context"), kDim, 0);
  work.element_bytes = kBytes, work.unpack_flops = kUnpack * 2 * work.tokens * kDim;
  return {work};
}

// Scores over a few dimensions, for each query head.
std::vector<graph::Work> dim_score(const Row& row) {
  const double columns = row.number("n") * row.number("kv_heads"), r = row.number("r"), group = row.number("group");
  return {Kernel{KernelClass::kScore, columns * r * kHalf, columns * group * kSingle, 2 * columns * group * r}};
}

std::vector<graph::Work> keydiff(const Row& row) {
  const double keys = row.number("tokens") * row.number("kv_heads"), bytes = keys * kDim * kHalf;
  return {Kernel{KernelClass::kReduce, bytes, 0, 3 * keys * kDim},
          Kernel{KernelClass::kScore, bytes, keys * kSingle, 4 * keys * kDim}};
}

// Logits of the window's queries are written, normalised, and summed over window, group and pooling kernel.
std::vector<graph::Work> snapkv_score(const Row& row) {
  const double keys = row.number("tokens") * row.number("kv_heads");
  const double rows = row.number("window") * row.number("group"), logits = keys * rows;
  return {graph::PrefillAttention{2 * logits * kDim, keys * kDim * kHalf, logits * kSingle},
          Kernel{KernelClass::kReduce, logits * kSingle, keys * kSingle, 5 * logits}};
}

std::vector<graph::Work> page_summary(const Row& row) {
  const double read = row.number("tokens") * row.number("kv_heads") * row.number("dim") * kHalf;
  return {Kernel{KernelClass::kReduce, read, 2 * read / row.number("page"), read}};
}

std::vector<graph::Work> query_similarity(const Row& row) {
  const double rows = row.number("batch") * row.number("kv_heads");
  const double numbers = 2 * rows * row.number("group") * row.number("dim");
  return {Kernel{KernelClass::kReduce, numbers * kHalf, 2 * rows * kSingle, 3 * numbers}};
}

std::vector<graph::Work> lse_merge(const Row& row) {
  const double rows = row.number("rows"), dim = row.number("dim"), parts = rows * row.number("parts");
  return {Kernel{KernelClass::kReduce, parts * (dim + 1) * kSingle, rows * dim * kHalf, 3 * parts * dim}};
}

// Scores of pages, then for each query head the softmax over them, then the mean over the group: three passes.
std::vector<graph::Work> page_softmax(const Row& row) {
  constexpr double kPasses = 3;
  const double pages = row.number("pages") * row.number("kv_heads"), scores = pages * row.number("group");
  return {Kernel{KernelClass::kScore, pages * 2 * row.number("dim") * kHalf, scores * kSingle, row.of_work("flops")},
          Kernel{KernelClass::kReduce, kPasses * scores * kSingle, pages * kSingle, kPasses * scores, 0,
                 row.number("kv_heads")}};
}

// Projections onto random directions, computed as a product on tensor cores.
std::vector<graph::Work> lsh_hash(const Row& row) {
  const double codes = row.number("vectors") * row.number("tables");
  return {graph::Gemm{row.number("vectors"), row.number("tables") * row.number("bits"), kDim},
          Kernel{KernelClass::kReduce, codes * row.number("bits") * kHalf, codes * kSingle}};
}

std::vector<graph::Work> centroid_recall(const Row& row) {
  const double heads = row.number("kv_heads"), scored = heads * row.number("group") * row.number("centroids");
  return {Kernel{KernelClass::kScore, scored * kDim * kHalf, scored * kSingle, 2 * scored * kDim},
          graph::TopK{heads, row.number("centroids"), row.number("probes"), kSingle},
          Kernel{KernelClass::kGather, row.of_work("ids") * kId, row.of_work("ids") * kId}};
}

// Gathers rows of the low-rank factor, multiplies them by the other factor, and applies the rotation.
std::vector<graph::Work> key_rebuild(const Row& row) {
  constexpr double kChunk = 8;
  const double heads = row.number("kv_heads"), tokens = row.number("selected") * kChunk, rank = row.number("rank");
  const double rows = heads * tokens * rank * kHalf, keys = heads * tokens * kDim * kHalf;
  return {Kernel{KernelClass::kGather, rows, rows, 0, kChunk * rank * kHalf}, graph::Gemm{heads * tokens, kDim, rank},
          Kernel{KernelClass::kElementwise, keys, keys, 3 * heads * tokens * kDim}};
}

struct Known {
  const char* bench;
  std::vector<graph::Work> (*works)(const Row&);
  const char* used_by;
};
constexpr Known kKnown[] = {{"sparse_attention", sparse_attention, "every policy that attends to a selection"},
                            {"kivi_attention", kivi_attention, "KIVI"},
                            {"dim_score", dim_score, "SparQ, Loki, RocketKV"},
                            {"keydiff", keydiff, "KeyDiff"},
                            {"snapkv_score", snapkv_score, "SnapKV and its relatives"},
                            {"page_summary", page_summary, "Quest, ArkVale, FreeKV"},
                            {"query_similarity", query_similarity, "FreeKV"},
                            {"lse_merge", lse_merge, "MagicPIG, CTkvr, RetrievalAttention"},
                            {"lsh_hash", lsh_hash, "MagicPIG"},
                            {"page_score", page_softmax, "FreeKV, ShadowKV"},
                            {"centroid_recall", centroid_recall, "CTkvr"},
                            {"key_rebuild", key_rebuild, "ShadowKV"}};

// A machine whose kernels are launched one by one, as in the measuring program.
hardware::CostModel model_of(const config::Hardware& machine) {
  config::Framework framework;
  framework.launch = config::Framework::Launch::kCompiled;
  return {machine, framework};
}

Case measured(const Row& row, const std::string& quantity, double seconds) {
  Case c;
  c.id = row.id(), c.group = row.bench;
  c.quantity = quantity, c.unit = "us";
  c.expected = 1e6 * seconds;
  c.tolerance = kKernelP90 / 100;
  c.size = c.expected;
  return c;
}

Case case_of(const Row& row, const Known& known, const hardware::CostModel& model, double between_events) {
  Case c = measured(row, "kernel time", std::max(0.1 * row.seconds, row.seconds - between_events));
  c.rests_on = fmt::format("the class, bytes and operations of the work that {} states", known.used_by);
  double seconds = 0, spread = 0;
  for (const graph::Work& work : known.works(row)) {
    const hardware::Cost cost = model.cost(work, graph::Lane::kCompute);
    seconds += cost.alone, spread += cost.alone * static_cast<double>(cost.uncertainty);
    c.origin = std::max(c.origin.value_or(cost.origin), cost.origin);
  }
  c.predicted = 1e6 * seconds;
  c.low = 1e6 * std::max(0.0, seconds - spread), c.high = 1e6 * (seconds + spread);
  return c;
}

void add_op(engine::Block& block, const hardware::Cost& cost, graph::Lane lane) {
  const double issued = cost.issue ? cost.issue->first * kPicosPerSecond : 0;  // ps before the copy starts
  block.add_work(static_cast<double>(cost.latency) + issued, cost.pace);
  for (const hardware::Demand& demand : cost.demands) {
    block.add_demand(static_cast<std::uint16_t>(demand.resource), demand.amount);
  }
  block.add_op(static_cast<std::uint16_t>(lane), static_cast<engine::WorkId>(block.works.size() - 1));
}

// A copy that runs during kernels that stream through device memory, which the engine shares between them.
Case copy_beside_stream(const Row& row, const hardware::CostModel& model) {
  Case c = measured(row, "time of a copy and kernels together", row.seconds);
  graph::Copy copy;
  copy.runs = 1, copy.run_bytes = row.number("copied");
  if (row.word("direction") == "d2h") copy.direction = graph::Direction::kDeviceToHost;
  const hardware::Cost copied = model.cost(copy, graph::Lane::kCopyA);
  const hardware::Cost read = model.cost(Kernel{KernelClass::kElementwise, row.number("bytes")}, graph::Lane::kCompute);
  engine::Block block;
  add_op(block, copied, graph::Lane::kCopyA);
  for (int i = 0; i < static_cast<int>(row.number("kernels")); ++i) add_op(block, read, graph::Lane::kCompute);
  engine::OneBlock source(std::move(block));
  const double seconds = to_seconds(engine::run(simulate::make_system(model, {}), source, nullptr).makespan);
  c.predicted = 1e6 * seconds;
  const double spread = static_cast<double>(std::max(copied.uncertainty, read.uncertainty));
  c.low = *c.predicted * std::max(0.0, 1 - spread), c.high = *c.predicted * (1 + spread);
  c.origin = std::max(copied.origin, read.origin);
  c.rests_on = "the link, the memory's streaming rate, and their fair sharing";
  c.verdict = verdict_of(c, false);
  return c;
}

void add(const Measured& from, Suite& suite) {
  const calibrate::Results results = calibrate::read_results(from.results);
  const hardware::CostModel model = model_of(config::read_hardware(config::find_config("hardware", from.profile, {})));
  const double between_events = calibrate::time_between_events(results);
  const auto device = results.texts.find("device");
  const std::string source =
      fmt::format("kvcast-kernels on {}", device == results.texts.end() ? "an unnamed device" : device->second);
  const std::size_t before = suite.cases.size();
  for (const Row& row : results.rows) {
    if (row.bench == "copy_beside_stream") {
      suite.cases.push_back(copy_beside_stream(row, model));
      suite.cases.back().source = source;
      continue;
    }
    const bool fitted = row.bench == "page_score" && row.word("reduce") == "group_max";
    const auto known =
        std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& one) { return row.bench == one.bench; });
    // Small kernels are only measured back to back.
    if (fitted || known == std::end(kKnown) || (row.mode != "cold" && row.bench != "query_similarity")) continue;
    Case& c = suite.cases.emplace_back(case_of(row, *known, model, between_events));
    c.source = source;
    // gpu.block_bandwidth was chosen from the project's own rows of the softmax over pages.
    judge(c, from.own && row.bench == "page_score");
  }
  if (suite.cases.size() == before) throw UserError({from.results, 0, 0}, "no row of a policy's kernel");
}

}  // namespace

Suite policy_kernels(const Measured& input) {
  Suite suite;
  suite.name = "policy_kernels";
  suite.question = "How accurately are kernels that only policies run predicted by numbers fitted to other kernels?";
  suite.size_unit = "us";
  for (const Measured& source : given_or_committed(suite.name, input, "kernels.json")) add(source, suite);
  if (suite.cases.empty()) {
    suite.status =
        "unmeasured: no GPU has run these kernels, and they are in no average. kernels/measure.sh measures them; then "
        "kvcast validate policy_kernels --from gpu.json --profile PROFILE.yaml";
    return suite;
  }
  std::vector<double> errors;
  for (const Case& c : suite.cases) errors.push_back(*relative_error(c));
  const metrics::ErrorSummary s = metrics::summarise_errors(errors);
  suite.budgets = {{"kernel time, median error of all cases", "%", kKernelMedian, 100 * s.median},
                   {"kernel time, p90 error of all cases", "%", kKernelP90, 100 * s.p90}};
  return suite;
}

}  // namespace kvcast::validate
