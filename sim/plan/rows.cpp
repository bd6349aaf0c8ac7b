#include "plan/rows.hpp"

#include "plan/replicas.hpp"
#include "plan/setting_text.hpp"
#include "plan/sweep_view.hpp"
#include "result/metric.hpp"

namespace kvcast::plan {

int Texts::number(const std::string& text) {
  const auto found = numbers_.find(text);
  if (found != numbers_.end()) return found->second;
  texts_.push_back(text);
  const int number = static_cast<int>(texts_.size()) - 1;
  numbers_.emplace(texts_.back(), number);
  return number;
}

ResultRow row_of(const result::Result& r, std::size_t index, Texts& texts) {
  const result::Subject& s = r.subject;
  ResultRow row;
  row.index = index;
  row.model = texts.number(s.model), row.hardware = texts.number(s.hardware), row.trace = texts.number(s.trace);
  row.policy = texts.number(s.policy), row.benchmark = texts.number(benchmark_of(r));
  row.setting = texts.number(describe_setting(r)), row.refused = texts.number(r.benchmark_refused);
  if (const std::string replica = replica_text(r); !replica.empty()) row.replica = texts.number(replica);
  row.prompt_tokens = s.prompt_tokens, row.decode_tokens = s.decode_tokens, row.batch = s.batch;
  row.compared = r.status != result::Status::kFailed && !r.build;
  row.has_times = r.has_times();
  if (row.has_times) row.tokens_per_s = r.experiment.tokens_per_s, row.requests_per_s = requests_rate_of(r);
  if (r.benchmark) row.score = r.benchmark->share_of_full, row.least_score = r.benchmark->interval.low;
  row.uncompressed = s.uncompressed(), row.oracle = is_oracle(r), row.borderline = r.borderline;
  return row;
}

}  // namespace kvcast::plan
