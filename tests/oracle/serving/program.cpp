// Serves the loads that standard input has as JSON, and prints the outcomes: for the oracle in Python.
#include <iostream>
#include <nlohmann/json.hpp>

#include "support/serving.hpp"

using namespace kvcast;
using namespace kvcast::serving;
using nlohmann::json;

namespace {

Rules rules_of(const json& from) {
  Rules rules = Rules::of(Engine::kVllmV1);
  rules.max_num_seqs = from.at("max_num_seqs");
  rules.max_num_batched_tokens = from.at("max_num_batched_tokens");
  rules.block = from.at("block");
  rules.blocks = from.at("blocks");
  rules.prefix_caching = from.at("prefix_caching");
  rules.full_prompt_gate = from.at("full_prompt_gate");
  rules.in_flight = from.at("in_flight");
  rules.long_prefill_token_threshold = from.at("long_prefill_token_threshold");
  rules.watermark = from.at("watermark");
  rules.max_context = from.at("max_context");
  rules.skip = from.at("skip");
  rules.windows.groups = from.at("groups"), rules.windows.others = from.at("others");
  rules.windows.tokens = from.at("window");
  return rules;
}

traffic::Request request_of(const json& from) {
  traffic::Request made = tests::request(from.at("arrival"), from.at("prompt_tokens"), from.at("output_tokens"));
  for (const json& segment : from.at("content")) made.content.push_back({segment.at(0), segment.at(1)});
  made.answer_key = from.at("answer_key");
  return made;
}

json outcomes(const json& load) {
  std::vector<traffic::Request> requests;
  for (const json& one : load.at("requests")) requests.push_back(request_of(one));
  tests::ListedRequests source(std::move(requests));
  tests::LinearTimes times;
  const json& time = load.at("times");
  times.base = time.at("base");
  times.read = time.at("read");
  times.sequence = time.at("sequence");
  times.context = time.at("context");
  const Rules rules = rules_of(load.at("rules"));
  tests::EventRecorder seen;
  serve(source, times, rules, tests::full_cache(rules.block), seen);
  json list = json::array();
  for (const Departure& one : seen.outcomes) {
    list.push_back({{"id", one.request.id},
                    {"rejected", one.rejected},
                    {"scheduled", one.scheduled},
                    {"first_token", one.first_token},
                    {"last_token", one.last_token},
                    {"preemptions", one.preemptions},
                    {"hit_tokens", one.hit_tokens},
                    {"recomputed_tokens", one.recomputed_tokens}});
  }
  return list;
}

}  // namespace

int main() {
  json all = json::array();
  for (const json& load : json::parse(std::cin)) all.push_back(outcomes(load));
  std::cout << all.dump() << '\n';
}
