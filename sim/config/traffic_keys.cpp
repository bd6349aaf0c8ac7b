// The keys of `traffic:` with their values.
#include <fmt/format.h>

#include "config/traffic.hpp"

namespace kvcast::config {
namespace {

using Visit = std::function<void(const std::string&, const std::string&)>;

template <class T>
void visit_number(const Visit& visit, const std::string& key, const T& value) {
  visit(key, fmt::format("{}", value));
}

void visit_arrivals(const Traffic& traffic, const Visit& visit) {
  switch (traffic.arrivals) {
    case Traffic::Arrivals::kAll:
      return visit("rate", "all");
    case Traffic::Arrivals::kConcurrency:
      visit_number(visit, "concurrency", traffic.concurrency);
      return visit_number(visit, "think_time", traffic.think_time);
    case Traffic::Arrivals::kTrace:
      visit("file", traffic.file);
      if (traffic.format != Traffic::Format::kKnownFromContent) visit("format", format_name(traffic.format));
      return visit_number(visit, "speedup", traffic.speedup);
    case Traffic::Arrivals::kRate:
      break;
  }
  visit_number(visit, "rate", traffic.rate);
  visit("process", process_name(traffic.process));
  if (traffic.process == Traffic::Process::kGamma) visit_number(visit, "cv", traffic.cv);
}

void visit_lengths(const Lengths& lengths, const std::string& key, const Visit& visit) {
  switch (lengths.kind) {
    case Lengths::Kind::kFixed:
      return visit_number(visit, key, lengths.mean);
    case Lengths::Kind::kLognormal:
      visit_number(visit, key + ".mean", lengths.mean);
      return visit_number(visit, key + ".cv", lengths.cv);
    case Lengths::Kind::kUniform:
      visit_number(visit, key + ".low", lengths.low);
      return visit_number(visit, key + ".high", lengths.high);
    case Lengths::Kind::kFile:
      return visit(key + ".file", lengths.file);
  }
}

}  // namespace

void for_each_key(const Traffic& traffic, const Visit& visit) {
  visit_arrivals(traffic, visit);
  visit_number(visit, "requests", traffic.requests);
  if (traffic.arrivals != Traffic::Arrivals::kTrace) {
    visit_lengths(traffic.prompt_tokens, "prompt_tokens", visit);
    visit_lengths(traffic.output_tokens, "output_tokens", visit);
    visit_number(visit, "seed", traffic.seed);
  }
  visit_number(visit, "length_factor", traffic.length_factor);
  if (traffic.shared_prefix.tokens > 0) {
    visit_number(visit, "shared_prefix.tokens", traffic.shared_prefix.tokens);
    visit_number(visit, "shared_prefix.groups", traffic.shared_prefix.groups);
    visit_number(visit, "shared_prefix.prompts", traffic.shared_prefix.prompts);
  }
  if (traffic.sessions) {
    visit_number(visit, "sessions.turns", traffic.sessions->turns);
    visit_number(visit, "sessions.turn_tokens", traffic.sessions->turn_tokens);
    visit_number(visit, "sessions.think_time", traffic.sessions->think_time);
  }
  if (!traffic.slo) return;
  if (traffic.slo->ttft) visit_number(visit, "slo.ttft", *traffic.slo->ttft);
  if (traffic.slo->tpot) visit_number(visit, "slo.tpot", *traffic.slo->tpot);
  if (traffic.slo->e2e) visit_number(visit, "slo.e2e", *traffic.slo->e2e);
}

}  // namespace kvcast::config
