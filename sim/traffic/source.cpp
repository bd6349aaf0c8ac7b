#include "traffic/source.hpp"

#include <algorithm>
#include <fstream>

#include "base/whole_file.hpp"
#include "traffic/generated.hpp"
#include "traffic/trace_source.hpp"

namespace kvcast::traffic {
namespace {

using config::Traffic;
using Format = Traffic::Format;

// Knows the format of a trace by names at its start: columns of a table, or keys.
Format format_of(const std::string& path) {
  std::string start(64u << 10, '\0');
  std::ifstream in;
  if (is_regular(path)) in.open(path, std::ios::binary);
  if (!in.is_open()) throw UserError({path, 0, 0}, "cannot read the trace");
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<std::size_t>(in.gcount()));
  const auto has = [&](std::string_view text) { return start.find(text) != std::string::npos; };
  const std::size_t first = start.find_first_not_of("\xef\xbb\xbf \t\r\n");
  if (first == std::string::npos) throw UserError({path, 0, 0}, "the trace has no requests");
  if (start[first] == '{') {
    if (has("\"input_toks\"")) return Format::kLlmServingSim;
    if (has("\"input_length\"")) return has("\"chat_id\"") ? Format::kBailian : Format::kMooncake;
    if (has("\"input_lens\"") || has("\"request_throughput\"") || has("\"num_prompts\"")) return Format::kVllmBench;
  } else {
    start.resize(std::min(start.find('\n', first), start.size()));
    if (has("ContextTokens")) return Format::kAzure;
    if (has("Request tokens")) return Format::kBurstGpt;
    if (has("arrival_s")) return Format::kKvcast;
  }
  throw UserError({path, 1, 1}, "the trace has no format that its start tells; set `format`",
                  {"azure", "burstgpt", "mooncake", "bailian", "vllm-bench", "llmservingsim", "kvcast"});
}

MeanLengths mean_of_trace(const Traffic& traffic) {
  const std::unique_ptr<Rows> rows = open_trace(traffic);
  MeanLengths lengths;
  double prompts = 0, outputs = 0, count = 0;
  for (Row row; count < static_cast<double>(traffic.requests) && read_request(*rows, row); ++count) {
    prompts += static_cast<double>(row.prompt_tokens), outputs += static_cast<double>(row.output_tokens);
    lengths.largest_context = std::max(lengths.largest_context, row.prompt_tokens + row.output_tokens);
  }
  if (count == 0) throw UserError({traffic.file, 0, 0}, "the trace has no requests");
  lengths.prompt_tokens = prompts / count, lengths.output_tokens = outputs / count;
  return lengths;
}

// Largest first prompt with its answer. Both lengths of one file are of one row.
std::int64_t largest_pair(const Traffic& traffic, const TokenCounts& prompts, const TokenCounts& outputs) {
  const std::int64_t apart = prompts.largest(traffic.requests) + outputs.largest(traffic.requests);
  const auto &p = prompts.column(), &o = outputs.column();
  if (p.empty() || o.empty() || traffic.prompt_tokens.file != traffic.output_tokens.file) return apart;
  std::int64_t largest = 0;
  for (std::size_t i = 0; i < p.size(); ++i) largest = std::max(largest, p[i] + o[i]);
  return largest;
}

}  // namespace

std::unique_ptr<Rows> open_trace(const Traffic& traffic) {
  const Format format = traffic.format == Format::kKnownFromContent ? format_of(traffic.file) : traffic.format;
  const bool table = format == Format::kAzure || format == Format::kBurstGpt || format == Format::kKvcast;
  return table ? open_csv_trace(traffic.file, format) : open_json_trace(traffic, format);
}

std::unique_ptr<Source> make_source(const Traffic& traffic) {
  if (traffic.arrivals == Traffic::Arrivals::kTrace) return std::make_unique<TraceSource>(traffic);
  return std::make_unique<Generated>(traffic);
}

MeanLengths mean_lengths(const Traffic& traffic) {
  if (traffic.arrivals == Traffic::Arrivals::kTrace) return mean_of_trace(traffic);
  const TokenCounts prompts(traffic, Purpose::kPrompt), outputs(traffic, Purpose::kOutput);
  MeanLengths lengths{prompts.mean(), outputs.mean(), largest_pair(traffic, prompts, outputs)};
  if (!traffic.sessions) return lengths;
  // Turn t has t answers and additions in its prompt. The last session may have fewer turns.
  const std::int64_t turns = traffic.sessions->turns, rest = traffic.requests % turns;
  const auto sum = [](std::int64_t n) { return static_cast<double>(n) * static_cast<double>(n - 1) / 2; };
  const double before = static_cast<double>(traffic.requests / turns) * sum(turns) + sum(rest);
  const auto added = static_cast<double>(traffic.sessions->turn_tokens);
  lengths.prompt_tokens += before / static_cast<double>(traffic.requests) * (outputs.mean() + added);
  const std::int64_t last = std::min(turns, traffic.requests) - 1;
  lengths.largest_context += last * (outputs.largest(traffic.requests) + traffic.sessions->turn_tokens);
  return lengths;
}

}  // namespace kvcast::traffic
