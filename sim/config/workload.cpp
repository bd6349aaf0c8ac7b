#include "config/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "config/keys.hpp"

namespace kvcast::config {
namespace {

// A number, or a list of the prompts of the sequences in turn.
void read_prompts(Section& section, const Key<Workload>& key, Workload& workload) {
  constexpr std::size_t kMostListed = 1024;
  const std::optional<Node> list = section.optional_node(key.name);
  if (!list || list->kind() != Node::Kind::kList) return read_key(section, key, workload.prompt_tokens);
  if (list->items().empty() || list->items().size() > kMostListed) {
    throw UserError(list->where(), fmt::format("workload: prompt_tokens: a list of 1 to {} prompts, found {}",
                                               kMostListed, list->items().size()));
  }
  for (const Node& item : list->items()) workload.prompts.push_back(read_integer(item, "prompt_tokens", 1, kMaxTokens));
  workload.set_batch(static_cast<int>(workload.prompts.size()));
  if (workload.by_length().size() == 1) workload.prompts.clear();
}

void read_batch(Section& section, const Key<Workload>& key, Workload& workload) {
  int batch = workload.batch;
  read_key(section, key, batch);
  workload.set_batch(batch);
}

constexpr const char* kPrefillModes[] = {"chunked", "whole"};

// What `prefill` says is completed with the framework (complete_prefill).
void read_prefill(Section& section, const Key<Workload>& key, Workload&) {
  section.choice(key.name, key.slot.names(), "");
}

constexpr Key<Workload> kWorkloadKeys[] = {
    {"prompt_tokens", within(1, kMaxTokens, by(read_prompts, into<&Workload::prompt_tokens>)),
     "tokens of each prompt; a list: of the sequences of the batch in turn, which is as large as the list unless "
     "`batch` says otherwise"},
    {"decode_tokens", within(1, kMaxTokens, into<&Workload::decode_tokens>), "tokens generated after it"},
    {"batch", within(1, 65536, by(read_batch, into<&Workload::batch>)), "sequences of the batch"},
    {"prefill", among<kPrefillModes>(by(read_prefill, own<Workload>(KeyShape::Type::kText, ""))),
     "`chunked`: as many tokens in a pass as `framework.prefill_chunk` allows; `whole`: all prompts of the batch at "
     "once. The framework decides if neither is given"},
    {"prefill_chunk", within(0, kMaxTokens, into<&Workload::prefill_chunk>),
     "tokens of a prompt that pass through the model at a time; 0: all. The default is the framework's"},
    {"prefill_batch", within(0, 65536, into<&Workload::prefill_batch>),
     "prompts prefilled together, one group after the other; 0: the whole batch. The default is as many as a chunk has "
     "tokens for, at least one"}};

}  // namespace

std::vector<Workload::Prompts> Workload::by_length() const {
  if (prompts.empty()) return {{prompt_tokens, batch}};
  std::map<std::int64_t, int> sequences;
  for (std::size_t i = 0; i < static_cast<std::size_t>(batch); ++i) ++sequences[prompts[i % prompts.size()]];
  std::vector<Prompts> all;
  for (const auto& [tokens, number] : sequences) all.push_back({tokens, number});
  return all;
}

double Workload::mean_prompt() const {
  double sum = 0;
  for (const Prompts& p : by_length()) sum += static_cast<double>(p.tokens) * p.sequences;
  return sum / batch;
}

void Workload::set_batch(int sequences) {
  batch = sequences;
  prompt_tokens = by_length().back().tokens;
}

Workload read_workload(Section section) {
  Workload workload;
  read_keys(section, kWorkloadKeys, workload);
  section.finish();
  return workload;
}

Shapes workload_shapes() { return {{"workload", shapes_in(kWorkloadKeys)}}; }

void complete_prefill(const Framework& framework, const Node* written, Workload& workload) {
  const auto given = [&](const char* key) { return written == nullptr ? nullptr : written->find(key); };
  const Node* const mode = given("prefill");
  const bool whole = mode != nullptr && mode->text() == "whole";
  if (whole && given("prefill_chunk") != nullptr) {
    throw UserError(given("prefill_chunk")->where(),
                    "workload: `prefill: whole` reads prompts without chunks; give one of the two keys");
  }
  PassTokens pass = whole ? PassTokens{} : pass_tokens(framework, workload.prompt_tokens + workload.decode_tokens);
  if (mode != nullptr && !whole && pass.all == 0) pass = {kPassTokens, kPassTokens};
  if (given("prefill_chunk") != nullptr) pass = {workload.prefill_chunk, workload.prefill_chunk};
  workload.prefill_chunk = pass.of_prompt;
  if (given("prefill_batch") != nullptr) return;
  const std::int64_t prompts = pass.all == 0 ? 0 : std::max<std::int64_t>(1, pass.all / workload.prompt_tokens);
  workload.prefill_batch = static_cast<int>(std::min<std::int64_t>(prompts, 65536));
}

}  // namespace kvcast::config
