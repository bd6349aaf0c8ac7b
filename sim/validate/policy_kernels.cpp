// No number of a profile is fitted to these kernels, but for the softmax over pages: they are priced by class, bytes,
// operations and the blocks that they are launched with, so their errors show how accurate a policy's time is if its
// kernel was not measured. Blocks that an SM holds follow from registers per thread, as nvcc 13.0 reports for sm_90a.
#include "validate/policy_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "calibrate/fit_stages.hpp"
#include "calibrate/machine.hpp"
#include "calibrate/stage.hpp"
#include "config/find.hpp"
#include "engine/engine.hpp"
#include "hardware/cost_model.hpp"
#include "policy/costs.hpp"
#include "simulate/timed.hpp"
#include "validate/transfer.hpp"

namespace kvcast::validate {
namespace {

using calibrate::Row;
using graph::Kernel;
using graph::KernelClass;

constexpr double kHalf = 2, kId = 4, kSingle = 4;  // bytes of a number
constexpr double kDim = 128;                       // head dimension of benchmarks without such an axis
constexpr const char* kKernelsProgram = "kvcast-kernels";
constexpr double kKernelMedian = 10, kKernelP90 = 30;

// A kernel whose blocks and their threads are those that its benchmark launches.
Kernel with_blocks(Kernel kernel, double blocks, double threads, double per_sm = 0, double passes = 1) {
  kernel.blocks = blocks, kernel.threads = threads, kernel.per_sm = per_sm, kernel.passes = passes;
  return kernel;
}

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
  if (!row.flag("consistent")) work.kv_reads = work.group;
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
  const double n = row.number("n"), heads = row.number("kv_heads"), columns = n * heads;
  const double r = row.number("r"), group = row.number("group");
  Kernel score{KernelClass::kScore, columns * r * kHalf, columns * group * kSingle, 2 * columns * group * r};
  policy::score_by_dimension(score, heads, n);
  return {score};
}

std::vector<graph::Work> keydiff(const Row& row) {
  const double keys = row.number("tokens") * row.number("kv_heads"), bytes = keys * kDim * kHalf;
  return {Kernel{KernelClass::kReduce, bytes, 0, 3 * keys * kDim},
          Kernel{KernelClass::kScore, bytes, keys * kSingle, 4 * keys * kDim}};
}

// Logits of the window's queries are written with their maximum and sum in each block of 64 tokens; these are joined
// for each row; weights are summed over window, group and the pooling kernel's columns.
std::vector<graph::Work> snapkv_score(const Row& row) {
  constexpr double kTile = 64, kColumns = 256;
  const double heads = row.number("kv_heads"), tokens = row.number("tokens"), keys = heads * tokens;
  const double rows = row.number("window") * row.number("group"), logits = keys * rows;
  const double inner = kColumns - 2 * std::floor(row.number("pool") / 2), tiles = std::ceil(tokens / kTile);
  return {with_blocks({KernelClass::kScore, keys * kDim * kHalf, logits * kSingle}, heads * tiles, 128, 7),
          with_blocks({KernelClass::kReduce, heads * rows * tiles * 2 * kSingle, heads * rows * 2 * kSingle},
                      heads * rows, 32, 32),
          with_blocks({KernelClass::kReduce, logits * kSingle, keys * kSingle, 5 * logits},
                      heads * std::ceil(tokens / inner), 256)};
}

std::vector<graph::Work> page_summary(const Row& row) {
  constexpr double kWarps = 8;  // of a block, one for a page of a KV head
  const double heads = row.number("kv_heads"), page = row.number("page"), tokens = row.number("tokens");
  const double read = tokens * heads * row.number("dim") * kHalf;
  return {with_blocks({KernelClass::kReduce, read, 2 * read / page, read},
                      std::ceil(std::floor(tokens / page) * heads / kWarps), 32 * kWarps, 6)};
}

std::vector<graph::Work> query_similarity(const Row& row) {
  const double rows = row.number("batch") * row.number("kv_heads");
  const double numbers = 2 * rows * row.number("group") * row.number("dim");
  return {Kernel{KernelClass::kReduce, numbers * kHalf, 2 * rows * kSingle, 3 * numbers}};
}

std::vector<graph::Work> lse_merge(const Row& row) {
  const double rows = row.number("rows"), dim = row.number("dim"), parts = rows * row.number("parts");
  return {with_blocks({KernelClass::kReduce, parts * (dim + 1) * kSingle, rows * dim * kHalf, 3 * parts * dim}, rows,
                      dim, 12)};
}

// Scores of pages, then for each query head the softmax over them, then the mean over the group: three passes.
std::vector<graph::Work> page_softmax(const Row& row) {
  constexpr double kPasses = 3;
  const double pages = row.number("pages") * row.number("kv_heads"), scores = pages * row.number("group");
  return {Kernel{KernelClass::kScore, pages * 2 * row.number("dim") * kHalf, scores * kSingle, row.of_work("flops")},
          with_blocks({KernelClass::kReduce, scores * kSingle, pages * kSingle, kPasses * scores},
                      row.number("kv_heads"), row.number("pages") <= 512 ? 256 : 512, 0, kPasses)};
}

// Projections onto random directions on tensor cores, whose signs become codes in the same kernel: a block has 64
// vectors and 8 tables, and reads the directions of these again from the L2.
std::vector<graph::Work> lsh_hash(const Row& row) {
  constexpr double kVectors = 64, kTables = 8;
  const double vectors = row.number("vectors"), tables = row.number("tables"), bits = row.number("bits");
  const double blocks = std::ceil(vectors / kVectors) * std::ceil(tables / kTables);
  const double rows = std::min(vectors, kVectors) + kTables * bits;
  return {
      with_blocks({KernelClass::kReduce, blocks * rows * kDim * kHalf, vectors * tables * kSingle}, blocks, 128, 7)};
}

std::vector<graph::Work> centroid_recall(const Row& row) {
  const double heads = row.number("kv_heads"), scored = heads * row.number("group") * row.number("centroids");
  return {Kernel{KernelClass::kScore, scored * kDim * kHalf, scored * kSingle, 2 * scored * kDim},
          graph::TopK{heads, row.number("centroids"), row.number("probes"), kSingle},
          with_blocks({KernelClass::kGather, row.of_work("ids") * kId, row.of_work("ids") * kId}, heads, 256)};
}

// A block rebuilds 64 tokens: it gathers their rows of one factor, multiplies them by a head's other factor, which each
// block reads, and applies the rotation.
std::vector<graph::Work> key_rebuild(const Row& row) {
  constexpr double kTokens = 64;
  const double heads = row.number("kv_heads"), selected = row.number("selected"), rank = row.number("rank");
  const double blocks = heads * std::ceil(selected / kTokens), tokens = heads * selected;
  const double factors = (tokens + blocks * kDim) * rank * kHalf, angles = tokens * kDim * kSingle;
  return {
      with_blocks({KernelClass::kReduce, factors + angles, tokens * kDim * kHalf, 3 * tokens * kDim}, blocks, 128, 4)};
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
  c.rests_on = fmt::format("the class, bytes, operations and blocks of the work that {} states", known.used_by);
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
  // The program holds the streams until all calls are queued, so that no copy waits for its own.
  block.add_work(static_cast<double>(cost.latency), cost.weight);
  for (const hardware::Demand& demand : cost.demands) {
    block.add_demand(static_cast<std::uint16_t>(demand.resource), demand.amount);
  }
  block.add_op(static_cast<std::uint16_t>(lane), static_cast<engine::WorkId>(block.works.size() - 1));
}

// Predicts the row by running the ops of the block together.
Case run_together(const Row& row, const char* quantity, engine::Block block, const hardware::CostModel& model,
                  std::initializer_list<const hardware::Cost*> costs) {
  Case c = measured(row, quantity, row.seconds);
  engine::OneBlock source(std::move(block));
  const double seconds = to_seconds(engine::run(simulate::make_system(model), source, nullptr).makespan);
  c.predicted = 1e6 * seconds;
  double spread = 0;
  for (const hardware::Cost* cost : costs) {
    spread = std::max(spread, static_cast<double>(cost->uncertainty));
    c.origin = c.origin ? std::max(*c.origin, cost->origin) : cost->origin;
  }
  set_interval(c, spread, 0);
  return c;
}

// A copy that runs during kernels that stream through device memory, which the engine shares between them.
Case copy_beside_stream(const Row& row, const hardware::CostModel& model) {
  graph::Copy copy;
  copy.runs = 1, copy.run_bytes = row.number("copied");
  if (row.word("direction") == "d2h") copy.direction = graph::Direction::kDeviceToHost;
  const hardware::Cost copied = model.cost(copy, graph::Lane::kCopyA);
  const hardware::Cost read = model.cost(Kernel{KernelClass::kElementwise, row.number("bytes")}, graph::Lane::kCompute);
  engine::Block block;
  add_op(block, copied, graph::Lane::kCopyA);
  for (int i = 0; i < static_cast<int>(row.number("kernels")); ++i) add_op(block, read, graph::Lane::kCompute);
  Case c = run_together(row, "time of a copy and kernels together", std::move(block), model, {&copied, &read});
  c.rests_on = "the link, the memory's streaming rate, and their fair sharing";
  c.verdict = verdict_of(c, false);
  return c;
}

// Groups of copies that alternate between streams; a kernel of the same stream may read each group.
Case copy_turns(const Row& row, const hardware::CostModel& model) {
  const double groups = row.number("groups"), streams = row.number("streams"), bytes = row.number("bytes");
  const bool reads = row.flag("kernel");
  graph::Copy copy;
  copy.runs = row.number("pieces"), copy.run_bytes = bytes;
  if (!reads) copy.runs *= groups / streams;  // nothing separates the groups of a stream
  copy.in_turn = reads && streams > 1;
  Kernel read{KernelClass::kElementwise, copy.runs * bytes};
  read.blocks = std::min(16.0, std::ceil(read.read_bytes / 4096)), read.threads = 256;
  const std::array<graph::Lane, 2> lanes = {graph::Lane::kCopyA, graph::Lane::kCopyB};
  const hardware::Cost copied = model.cost(copy, lanes[0]), kernel = model.cost(read, lanes[0]);
  engine::Block block;
  for (int g = 0; g < static_cast<int>(reads ? groups : streams); ++g) {
    const graph::Lane lane = lanes.at(static_cast<std::size_t>(g) % static_cast<std::size_t>(streams));
    add_op(block, copied, lane);
    if (reads) add_op(block, kernel, lane);
  }
  Case c = run_together(row, "time of groups of copies", std::move(block), model, {&copied, &kernel});
  c.rests_on = "the copy engine, and the latency of a copy and of a kernel for each group";
  c.verdict = verdict_of(c, false);
  return c;
}

void add(const Measured& from, Suite& suite) {
  const calibrate::Results results = calibrate::read_results(from.results);
  const hardware::CostModel model =
      calibrate::stream_model(config::read_hardware(config::find_config("hardware", from.profile, {})));
  const double between_events = calibrate::time_between_events(results);
  const std::string source =
      fmt::format("{} on {}", kKernelsProgram, calibrate::text_of(results, "device", "an unnamed device"));
  const std::size_t before = suite.cases.size();
  for (const Row& row : results.rows) {
    if (row.bench == "copy_beside_stream" || row.bench == "copy_turns") {
      suite.cases.push_back(row.bench == "copy_turns" ? copy_turns(row, model) : copy_beside_stream(row, model));
      suite.cases.back().source = source;
      continue;
    }
    const bool fitted = row.bench == "page_score" && row.word("reduce") == "group_max";
    const auto known = std::ranges::find_if(kKnown, [&](const Known& one) { return row.bench == one.bench; });
    // Small kernels are only measured back to back.
    if (fitted || known == std::end(kKnown) || (row.mode != "cold" && row.bench != "query_similarity")) continue;
    Case& c = suite.cases.emplace_back(case_of(row, *known, model, between_events));
    c.source = source;
    // gpu.block_bandwidth was chosen from the H200's rows of the softmax over pages.
    judge(c, from.in_view && row.bench == "page_score");
  }
  if (suite.cases.size() > before) return;
  const std::string program = calibrate::text_of(results, "program", kKernelsProgram);
  throw UserError({from.results, 0, 0},
                  program == kKernelsProgram
                      ? "no row of a policy's kernel"
                      : fmt::format("results of {}; this suite compares those of {}", program, kKernelsProgram));
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
