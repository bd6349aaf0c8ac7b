#include "app/service_text.hpp"

#include <fmt/format.h>
#include <fmt/ostream.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "base/units.hpp"
#include "result/metric.hpp"

namespace kvcast::app {
namespace {

using result::Metric;
using result::Result;

std::string of(const Result& r, const char* path) {
  const Metric& metric = *result::find_metric(path);
  const auto value = result::value(r, metric);
  return value ? result::format_value(metric, *value) : "";
}

std::string range_of(const Result& r, const char* path) {
  const Metric& metric = *result::find_metric(path);
  const auto range = result::interval(r, metric);
  if (!range) return "";
  return fmt::format("{} to {}", result::format_value(metric, range->low), result::format_value(metric, range->high));
}

// A length that varies is named by its mean.
std::string length_text(const config::LengthDistribution& length, double mean, bool of_trace) {
  const bool fixed = !of_trace && length.kind == config::LengthDistribution::Kind::kFixed;
  return fmt::format("{}{:.0f}", fixed ? "" : "about ", mean);
}

// Which prompts an engine rejects that reads each in one pass; nothing for others.
std::string one_pass_text(const Result& r, const char* before) {
  const auto most = r.subject.number("scheduler.max_num_batched_tokens");
  if (!most || r.subject.text("scheduler.chunked_prefill") != "false") return "";
  return fmt::format(
      "{}it reads a prompt in one pass of at most {:.0f} tokens (`scheduler.chunked_prefill: true` reads "
      "longer ones in parts)",
      before, *most);
}

// The queue, the memory and the time of the service.
std::string limits(const Result& r) {
  const serving::Summary& s = r.service->summary;
  const double replicas = r.subject.number("deployment.replicas").value_or(1);
  std::string text = replicas > 1 ? fmt::format("in each of {} replicas ", replicas) : "";
  text += fmt::format(
      "{:.1f} requests run at a time and {:.1f} wait; the cache of {:.0f} tokens is {:.0f} % "
      "in use, {:.0f} % at most",
      s.running_mean, s.waiting_mean, r.service->kv_capacity_tokens, 100 * s.kv_used_mean, 100 * s.kv_used_max);
  text += fmt::format("; passes take {:.0f} % of the time", 100 * s.busy_share);
  if (s.prefix_hit_share > 0) {
    text += fmt::format("; {:.0f} % of prompt tokens are found", 100 * s.prefix_hit_share);
    if (s.loaded_share > 0)
      text += fmt::format(", {:.0f} % behind the GPU, whose link to the host is {:.0f} % busy", 100 * s.loaded_share,
                          100 * r.service->link_busy_share);
  }
  if (s.apart) {
    text += fmt::format(
        "; prompts are read in {:.0f} % of the time of theirs, and {} of cache a GPU come {} later, of "
        "which {} wait for memory",
        100 * s.prefill_busy_share, of(r, "serving.transfer_bytes"), of(r, "serving.transfer_s.mean"),
        of(r, "serving.transfer_wait_s.mean"));
  }
  if (s.preemptions > 0)
    text += fmt::format("; {:.0f} preemptions, {:.0f} tokens computed again", s.preemptions, s.recomputed_tokens);
  if (s.rejected > 0) {
    text += fmt::format("; {:.0f} request{} that can never fit {} rejected, and all numbers are of the others{}",
                        s.rejected, s.rejected > 1 ? "s" : "", s.rejected > 1 ? "are" : "is", one_pass_text(r, ": "));
  }
  return text;
}

// "1.2 s: queue 0.8 s, own prefill 0.4 s"; parts that round to nothing are left out.
std::string parts_text(const Result& r, const char* which) {
  const double whole = *result::value(r, *result::find_metric(fmt::format("serving.ttft_s.{}", which)));
  std::vector<std::string> parts;
  for (const serving::TtftPart& part : serving::kTtftParts) {
    const Metric& metric = *result::find_metric(fmt::format("serving.ttft_parts.{}_s.{}", part.name, which));
    const double seconds = *result::value(r, metric);
    if (seconds >= 0.001 * whole)
      parts.push_back(fmt::format("{} {}", part.label, result::format_value(metric, seconds)));
  }
  return fmt::format("{}", fmt::join(parts, " + "));
}

std::string certainty(const Result& r) {
  const result::Service& service = *r.service;
  std::string text = fmt::format("p99 of the first token {}, of a token {} with 80 % probability",
                                 range_of(r, "serving.ttft_s.p99"), range_of(r, "serving.tpot_s.p99"));
  if (service.sampling_error > 0) {
    text += fmt::format("; other draws of as many requests move the mean latency by {:.1f} %",
                        100 * service.sampling_error);
    if (service.enough_requests > service.summary.completed + service.summary.rejected)
      text += fmt::format(", of {:.0f} requests by 2 %", service.enough_requests);
  }
  return text;
}

const char* state_text(serving::Trend state) {
  switch (state) {
    case serving::Trend::kSaturated:
      return "saturated: the queue grows as long as requests arrive, and times depend on how many do";
    case serving::Trend::kUndecided:
      return "undecided whether the queue grows: more requests would tell";
    case serving::Trend::kStable:
      break;
  }
  return "stable";
}

}  // namespace

std::string traffic_text(const config::Traffic& traffic, const study::RequestLengths& lengths) {
  using Arrivals = config::Traffic::Arrivals;
  std::string arrivals;
  switch (traffic.arrivals) {
    case Arrivals::kRate:
      arrivals = fmt::format("{:g} requests/s", traffic.rate);
      break;
    case Arrivals::kAll:
      arrivals = fmt::format("{} requests at once", lengths.requests);
      break;
    case Arrivals::kConcurrency:
      arrivals = fmt::format("{} requests at a time", traffic.concurrency);
      break;
    case Arrivals::kTrace:
      arrivals = traffic.file;
      break;
  }
  const bool trace = traffic.arrivals == Arrivals::kTrace;
  std::string text = fmt::format("{}, {} prompt tokens, {} generated", arrivals,
                                 length_text(traffic.prompt_tokens, lengths.mean_prompt, trace),
                                 length_text(traffic.output_tokens, lengths.mean_outputs, trace));
  if (trace && lengths.requests == traffic.requests)
    return text + fmt::format(", the first {} requests (`traffic.requests`)", lengths.requests);
  return traffic.arrivals == Arrivals::kAll ? text : text + fmt::format(", {} requests", lengths.requests);
}

void print_service_verdict(const Result& r) {
  if (!r.service) return;
  const serving::Summary& s = r.service->summary;
  if (s.completed == 0) {
    const std::string one_pass = one_pass_text(r, ", or for the engine: ");
    fmt::print(
        "Serves     nothing: each of {:.0f} requests is too long for the cache of {:.0f} tokens{} for the model's "
        "context{}.\n\n",
        s.rejected, r.service->kv_capacity_tokens, one_pass.empty() ? " or" : ",", one_pass);
    return;
  }
  std::string serves = fmt::format("{} ({}): first token after {} (p99 {}), {} a token (p99 {}), all after {}",
                                   of(r, "serving.requests_per_s"), state_text(s.state), of(r, "serving.ttft_s.mean"),
                                   of(r, "serving.ttft_s.p99"), of(r, "serving.tpot_s.mean"),
                                   of(r, "serving.tpot_s.p99"), of(r, "serving.e2e_s.mean"));
  if (const double factor = r.subject.number("traffic.length_factor").value_or(1); factor != 1)
    serves += fmt::format("; answers are {:.3g} times as long as the traffic says", factor);
  if (s.slo_share) serves += fmt::format("; {} within the SLO", of(r, "serving.slo_share"));
  if (const std::string cost = of(r, "serving.cost_per_million_output_tokens"); !cost.empty())
    serves += fmt::format("; {} per million output tokens", cost);
  fmt::print("Serves     {}.\nFirst token in the mean {}; p99 {}.\nLimits     {}.\nHow sure   {}.\n", serves,
             parts_text(r, "mean"), parts_text(r, "p99"), limits(r), certainty(r));
  fmt::print(
      "The decode step, the prefill and the memory below are those of a batch of {} request{} of {} + {} tokens.\n\n",
      r.subject.batch, r.subject.batch == 1 ? "" : "s", r.subject.text("workload.prompt_tokens"),
      r.subject.decode_tokens);
}

void write_requests_head(std::ostream& out) {
  out << "id,arrival_s,prompt_tokens,output_tokens,hit_tokens,scheduled_s,first_token_s,last_token_s,preemptions,"
         "replica\n";
}

void write_request(std::ostream& out, const serving::Departure& o) {
  const traffic::Request& request = o.request;
  fmt::print(out, "{},{:.9f},{},{},{}", request.id, to_seconds(request.arrival), request.prompt_tokens,
             request.output_tokens, o.hit_tokens);
  const auto time = [&](Picoseconds at) {
    // A rejected request has none.
    if (o.rejected) {
      out << ',';
    } else {
      fmt::print(out, ",{:.9f}", to_seconds(at));
    }
  };
  time(o.scheduled), time(o.first_token), time(o.last_token);
  fmt::print(out, ",{},{}\n", o.preemptions, o.replica);
}

}  // namespace kvcast::app
