// The program's schemes are the policies of the same name: a policy's parameters follow from the axes, and the work of
// its heads from the counts that the program states. Everything else (kernels, launches, copies, threads and their
// order) is the policies' own lowering. Kernels are launched one by one by compiled code, or as one CUDA graph per
// step.
#include "validate/gpu_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "config/find.hpp"
#include "engine/engine.hpp"
#include "lower/decode.hpp"
#include "policies/all.hpp"
#include "policies/hsa.hpp"
#include "policies/rocketkv.hpp"
#include "result/metric.hpp"
#include "simulate/timed.hpp"

namespace kvcast::validate {
namespace {

using calibrate::MeasuredRow;

constexpr double kMostCount = 1e9;

[[noreturn]] void refuse_row(const MeasuredRow& row, const std::string& what) {
  throw UserError({row.file}, fmt::format("{}: {}", row.id(), what));
}

std::int64_t whole(const MeasuredRow& row, const std::string& name, double value, double least) {
  if (!(value >= least) || value > kMostCount || value != std::floor(value)) {
    refuse_row(row, fmt::format("{} is {}, not a whole number from {} up", name, value, least));
  }
  return static_cast<std::int64_t>(value);
}
std::int64_t axis(const MeasuredRow& row, const std::string& name, double least = 1) {
  const auto at = row.numbers.find(name);
  if (at == row.numbers.end()) refuse_row(row, fmt::format("no number \"{}\" among the axes", name));
  return whole(row, name, at->second, least);
}
std::int64_t count(const MeasuredRow& row, const std::string& name) { return whole(row, name, row.of_work(name), 0); }
bool flag(const MeasuredRow& row, const std::string& name) { return axis(row, name, 0) != 0; }

config::Model model_of(const MeasuredRow& row) {
  config::Model model = config::read_model(config::find_config("models", "llama-3.1-8b", {}));
  const auto set = [&](int& field, const char* name) { field = static_cast<int>(axis(row, name)); };
  set(model.layers, "layers"), set(model.hidden, "hidden"), set(model.n_q_heads, "q_heads");
  set(model.n_kv_heads, "kv_heads"), set(model.head_dim, "dim"), set(model.ffn, "ffn"), set(model.vocab, "vocab");
  if (model.n_q_heads % model.n_kv_heads != 0) {
    refuse_row(row, fmt::format("{} query heads do not divide among {} KV heads", model.n_q_heads, model.n_kv_heads));
  }
  return model;
}

// The way of a recall; rows from before the axis made a call for each page.
std::string recall_of(const MeasuredRow& row) {
  const auto at = row.words.find("recall");
  return at == row.words.end() ? "calls" : at->second;
}

// The policy's parameters as a user would write them.
using Written = std::string (*)(const MeasuredRow&);

std::string write_full(const MeasuredRow&) { return "{}"; }

std::string write_quest(const MeasuredRow& row) {
  return fmt::format("{{budget: {}, page: {}, group: max_scores}}", axis(row, "budget"), axis(row, "page"));
}

std::string write_rocketkv(const MeasuredRow& row) {
  // The program splits the budget by the same formulas; with a difference the comparison would be invalid.
  const policy::RocketSplit split = policy::split_rocket(axis(row, "context"), axis(row, "budget"), 0, -1);
  policy::HsaSetting second;
  second.ratio = split.second_ratio;
  const auto page = count(row, "page"), dims = count(row, "dims");
  if (page != second.page() || dims != second.dims(static_cast<int>(axis(row, "dim")))) {
    refuse_row(row, fmt::format("pages of {} and {} dimensions, the policy has {} and {}", page, dims, second.page(),
                                second.dims(static_cast<int>(axis(row, "dim")))));
  }
  return fmt::format("{{budget: {}, max_new_tokens: 0}}", axis(row, "budget"));
}

std::string write_arkvale(const MeasuredRow& row) {
  const auto budget = axis(row, "budget"), page = axis(row, "page"), fixed = axis(row, "fixed");
  // topk includes sink and window but not the current page; every slot between them is chosen.
  return fmt::format("{{budget: {}, page: {}, sink: {}, recent: {}, topk: {}, recall: {}}}", budget, page, fixed, fixed,
                     budget / page - 1, recall_of(row));
}

std::string write_freekv(const MeasuredRow& row) {
  const auto fixed = axis(row, "fixed");
  return fmt::format(
      "{{budget: {}, page: {}, sink: {}, recent: {}, speculation: {}, correction: {}, layout: {}, double_buffering: "
      "{}, recall: {}}}",
      axis(row, "budget"), axis(row, "page"), fixed, fixed, flag(row, "speculation"), flag(row, "correction"),
      row.word("layout"), axis(row, "buffers") == 2, recall_of(row));
}

std::string write_shadowkv(const MeasuredRow& row) {
  constexpr std::int64_t kChunk = 8, kLast = 32;  // the program's values: tokens of a chunk, last tokens that stay
  const auto fixed = axis(row, "fixed"), last = std::min(kLast, fixed - kChunk);
  return fmt::format("{{budget: {}, page: {}, recent: {}, outliers: {}, rank: {}}}", axis(row, "budget"), kChunk, last,
                     (fixed - last) / kChunk, axis(row, "rank"));
}

std::string write_ctkvr(const MeasuredRow& row) {
  const auto fixed = axis(row, "fixed"), sink = fixed / 5;  // 128 of 640; the split does not change the work
  return fmt::format("{{budget: {}, sink: {}, recent: {}, retrieved_centroids: {}, update: false}}",
                     axis(row, "budget"), sink, fixed - sink, axis(row, "probes"));
}

const std::map<std::string, Written>& schemes() {
  static const std::map<std::string, Written> all = {
      {"full", write_full},     {"quest", write_quest},       {"rocketkv", write_rocketkv}, {"arkvale", write_arkvale},
      {"freekv", write_freekv}, {"shadowkv", write_shadowkv}, {"ctkvr", write_ctkvr}};
  return all;
}

policy::HeadCounts counts_of(const MeasuredRow& row) {
  policy::HeadCounts head;
  head.attended = count(row, "attended"), head.cpu_attended = count(row, "cpu_attended");
  head.scored = count(row, "scored"), head.candidates = count(row, "candidates");
  head.fetched = count(row, "fetched"), head.fetched_runs = count(row, "fetched_runs");
  // Attended tokens lie in whole pages; tokens that are chosen one by one are attended to on the CPU.
  const auto page = row.work.find("page");
  const double unit = page != row.work.end() ? page->second : static_cast<double>(head.attended);
  head.attended_runs = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::ceil(static_cast<double>(head.attended) / std::max(1.0, unit))));
  return head;
}

}  // namespace

std::string not_modelled(const MeasuredRow& row) {
  if (recall_of(row) == "calls" || !schemes().contains(row.bench)) return "";
  const auto& parameters = policy::find_policy(row.bench).parameters;
  if (std::ranges::any_of(parameters, [](const policy::Parameter& p) { return p.key == "recall"; })) return "";
  return fmt::format("the policy {} has no other recall than one call for each piece", row.bench);
}

GpuStep gpu_step(const MeasuredRow& row, const config::Hardware& machine) {
  const auto scheme = schemes().find(row.bench);
  if (scheme == schemes().end()) {
    std::vector<std::string> known;
    for (const auto& [name, written] : schemes()) known.push_back(name);
    throw UserError({row.file},
                    fmt::format("{}: no scheme \"{}\"; results of kvcast-pipeline are needed", row.id(), row.bench),
                    known);
  }
  GpuStep step;
  step.run.model = model_of(row);
  step.run.hardware = machine;
  step.run.workload.prompt_tokens = axis(row, "context"), step.run.workload.decode_tokens = 1;
  step.run.workload.batch = static_cast<int>(axis(row, "batch"));
  const bool graph = row.numbers.contains("graph") && flag(row, "graph");
  step.run.framework.launch = graph ? config::Framework::Launch::kCudaGraph : config::Framework::Launch::kCompiled;
  step.steps = static_cast<int>(axis(row, "steps"));
  step.lengths = {step.run.workload.prompt_tokens, 0};
  step.policy = policy::make_policy(policy::find_policy(row.bench), config::parse_yaml(scheme->second(row), row.id()));
  const auto kv_heads = static_cast<std::size_t>(step.run.model.n_kv_heads);
  step.heads.assign(static_cast<std::size_t>(step.run.workload.batch) * kv_heads, counts_of(row));
  step.at_first = step.heads;
  const auto corrected = static_cast<std::size_t>(count(row, "corrected_heads"));
  if (corrected > kv_heads) refuse_row(row, "more heads corrected than there are");
  for (std::size_t i = 0; i < step.at_first.size(); ++i) step.at_first[i].corrected = i % kv_heads < corrected;
  if (row.numbers.contains("speculation") && !flag(row, "speculation")) {
    for (auto* heads : {&step.heads, &step.at_first}) {
      for (policy::HeadCounts& head : *heads) head.corrected = true;
    }
  }
  return step;
}

StepPrediction predict_step(const GpuStep& step) {
  constexpr int kCalls = 3;  // only the last one is timed
  lower::DecodeSetting setting;
  setting.rank = step.run.model;
  setting.run = &step.run, setting.policy = step.policy.get(), setting.lengths = step.lengths;
  setting.counts = [&step](int, std::int64_t at) {
    return std::span<const policy::HeadCounts>(at % step.steps == 0 ? step.at_first : step.heads);
  };
  setting.counted_tokens = step.lengths.prompt_tokens;
  setting.attended_mean = static_cast<double>(step.heads.front().attended);
  const hardware::CostModel costs(step.run.hardware, step.run.framework);
  lower::DecodeWindow window(setting, step.lengths.prompt_tokens, kCalls * step.steps);
  lower::Works works;
  const lower::FlatStream stream = lower::flatten(window, works);
  simulate::CostTable table(works, costs);
  simulate::TimedSource source(stream, table);
  simulate::Recorder recorder(source, static_cast<std::size_t>((kCalls - 1) * step.steps - 1));
  const engine::System system = simulate::make_system(costs);
  const engine::Outcome outcome = engine::run(system, source, &recorder);
  StepPrediction out;
  if (outcome.out_of_memory) {
    out.out_of_memory = system.pools[outcome.out_of_memory->pool].name;
    return out;
  }
  const Picoseconds begin = recorder.block_ends()[static_cast<std::size_t>((kCalls - 1) * step.steps - 1)];
  const Picoseconds end = recorder.block_ends().back();
  const metrics::Attribution part = metrics::attribute(recorder.spans(begin, end), begin, end);
  out.seconds = to_seconds(end - begin) / step.steps;
  out.uncertainty = part.total() > 0 ? part.uncertain_total() / part.total() : 0;
  out.origin = result::origin_of(part);
  return out;
}

}  // namespace kvcast::validate
