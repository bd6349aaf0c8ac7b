// Public traces of requests, row by row. Memory does not grow with the file, except for vllm-bench, whose lists of
// lengths are kept, and for 65,536 sessions that may go on.
//
//   azure          CSV: TIMESTAMP (UTC), ContextTokens, GeneratedTokens (Azure LLM inference traces 2023 to 2025)
//   burstgpt       CSV: Timestamp (s), Request tokens, Response tokens, with or without Session ID and Elapsed time,
//                  which are not used: the trace does not say if prompts contain the turns before
//   mooncake       JSON lines: timestamp (ms), input_length, output_length, hash_ids of 512 tokens each
//   bailian        JSON lines: timestamp (s), input_length, output_length, chat_id, parent_chat_id, turn, hash_ids of
//   16
//                  tokens each (Qwen-Bailian usage traces)
//   vllm-bench     JSON of `vllm bench serve --save-detailed`: input_lens, output_lens; arrivals are start_times, or
//                  else drawn with the file's request_rate and burstiness as the benchmark does (all at 0 if there is
//                  no finite rate), of at most max_concurrency requests at a time
//   llmservingsim  JSON lines: input_toks, output_toks, queued_ts (s), at which the engine takes a request up:
//   published
//                  TTFTs count from there. Rows are in the order of an earlier time stamp and so are sorted again, over
//                  64 rows
//   kvcast         CSV: arrival_s, prompt_tokens, output_tokens and, if wanted, session, turn (from 0), prefix_group,
//                  prefix_tokens. Prompts of a prefix_group start with the same prefix_tokens tokens. A later turn's
//                  prompt starts with the prompt and the answer before, unless it has fewer tokens. The columns of
//                  `kvcast run --requests` are accepted
//
// Rows of public traces without a prompt or without an answer are requests that failed, and are passed over.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/traffic.hpp"
#include "traffic/request.hpp"

namespace kvcast::traffic {

struct TraceRow {
  double seconds = 0;  // of the arrival, from any origin
  std::int64_t prompt_tokens = 0, output_tokens = 0;
  std::vector<Segment> content;
  std::uint64_t answer_key = 0;
  std::int64_t session = -1;
  std::int32_t turn = 0;
  SourceLocation where;
};

class TraceRows {
 public:
  virtual ~TraceRows() = default;
  // Reads the next row; returns whether there is one. Throws UserError for a malformed one.
  virtual bool read(TraceRow& row) = 0;
  virtual std::int64_t concurrency() const { return 0; }  // most requests at a time; 0: no limit
  virtual std::size_t window() const { return 1; }        // rows over which they are to be sorted by arrival
  virtual bool from_zero() const { return false; }        // times are the run's own, not from any origin
};

// Opens the trace of the traffic. Throws UserError if it cannot be read, or if its format is not known.
std::unique_ptr<TraceRows> open_trace(const config::Traffic& traffic);

std::unique_ptr<TraceRows> open_csv_trace(const std::string& path, config::Traffic::Format format);
std::unique_ptr<TraceRows> open_json_trace(const config::Traffic& traffic, config::Traffic::Format format);

}  // namespace kvcast::traffic
