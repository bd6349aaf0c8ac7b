// Rows of a service: requests that arrive, wait, are read, decode and leave.
#include <fmt/format.h>

#include <iterator>
#include <string>

#include "result/metric_rows.hpp"

namespace kvcast::result {
namespace {

using enum Unit;
using enum Better;

constexpr Display kSeconds3{"s", 1, ",.3r"}, kTokenMillis{"ms", 1e3, ",.3r"}, kRequests{"requests/s", 1, ",.3r"};
constexpr Display kTokensEach{"tokens/s", 1, ",.4r"}, kNumber{"", 1, ",.4r"}, kOfAll{"%", 100, ".1f"};
constexpr Display kBytesSent{"MB", 1e-6, ",.3r"};

template <auto Of, auto Member>
double* times_field(Result& r, int) {
  return r.service && r.service->served ? &(r.service->summary.*Of.*Member) : nullptr;
}
template <auto Of, auto Member>
double* apart_times_field(Result& r, int) {
  return r.service && r.service->summary.apart ? times_field<Of, Member>(r, 0) : nullptr;
}
template <auto Member>
double* apart_field(Result& r, int) {
  return r.service && r.service->summary.apart ? &(r.service->summary.*Member) : nullptr;
}
template <auto Member>
double* summary_field(Result& r, int) {
  return r.service ? &(r.service->summary.*Member) : nullptr;
}
template <auto Member>
double* slo_field(Result& r, int) {
  return r.service && r.service->summary.*Member ? &*(r.service->summary.*Member) : nullptr;
}
template <auto Member>
double* service_field(Result& r, int) {
  return r.service ? &(r.service.value().*Member) : nullptr;
}

Metric serving_row(const std::string& path, const char* alias, Unit unit, Better better, std::string label,
                   const char* brief, std::string definition, const Display& display, double* (*field)(Result&, int)) {
  return {"serving." + path,     alias,   unit, better, Basis::kServing, std::move(label), brief,
          std::move(definition), display, field};
}

// Mean and percentiles of a time. `brief`: "TTFT", for times whose median and tail have short names.
template <auto Of>
void add_times_of(std::vector<Metric>& rows, const std::string& name, const char* brief, const std::string& title,
                  const std::string& definition, const Display& display) {
  using T = serving::Times;
  const auto add = [&](const char* part, const std::string& words, double* (*field)(Result&, int)) {
    const bool tail = part == std::string_view("p99"), named = tail || part == std::string_view("p50");
    const std::string alias = named && *brief != 0 ? "served_" + name.substr(0, name.size() - 1) + part : "";
    const std::string heading = tail && *brief != 0 ? std::string(brief) + " p99" : "";
    rows.push_back(serving_row(
        name + "." + part, alias.c_str(), kSeconds, kLower, title + ", " + words, heading.c_str(),
        definition.substr(0, definition.size() - 1) + (words == "mean" ? ", mean." : ", the " + words + "."), display,
        field));
  };
  add("mean", "mean", times_field<Of, &T::mean>);
  add("p50", "median", times_field<Of, &T::p50>);
  add("p90", "90th percentile", times_field<Of, &T::p90>);
  add("p99", "99th percentile", times_field<Of, &T::p99>);
}

template <auto Of, auto Member>
double* ttft_part_field(Result& r, int) {
  return r.service && r.service->served ? &(r.service->summary.*Of.*Member) : nullptr;
}

// The parts of a time to first token in the order in which they pass.
void add_ttft_parts(std::vector<Metric>& rows) {
  using S = serving::Summary;
  using P = serving::TtftParts<double>;
  struct Fields {
    double* (*mean)(Result&, int);
    double* (*p99)(Result&, int);
    const char* definition;
  };
#define KVCAST_FIELDS(part) ttft_part_field<&S::ttft_mean, &P::part>, ttft_part_field<&S::ttft_p99, &P::part>
  constexpr Fields kFields[] = {
      {KVCAST_FIELDS(front_end), "in the front end: HTTP, tokenising"},
      {KVCAST_FIELDS(queue), "between the arrival at the engine and the first pass that reads the prompt"},
      {KVCAST_FIELDS(prefill), "that the passes that read the prompt would take with its chunks alone"},
      {KVCAST_FIELDS(beside), "that decodes and chunks of others add to the passes that read the prompt"},
      {KVCAST_FIELDS(between),
       "in passes of others between those that read the prompt, after a preemption, and until a cache has come that "
       "was read elsewhere"}};
#undef KVCAST_FIELDS
  static_assert(std::size(kFields) == std::size(serving::kTtftParts));
  for (std::size_t i = 0; i < std::size(kFields); ++i) {
    const serving::TtftPart& part = serving::kTtftParts[i];
    const std::string path = fmt::format("ttft_parts.{}_s.", part.name), title = fmt::format("TTFT: {}", part.label);
    const std::string definition = fmt::format("Part of the time to first token {}", kFields[i].definition);
    const std::string alias = fmt::format("ttft_{}", part.name), of_tail = alias + "_p99";
    rows.push_back(serving_row(path + "mean", alias.c_str(), kSeconds, kLower, title + ", mean", "",
                               definition + ", mean.", kSeconds3, kFields[i].mean));
    rows.push_back(serving_row(path + "p99", of_tail.c_str(), kSeconds, kLower,
                               fmt::format("TTFT at its 99th percentile: {}", part.label), "",
                               definition + ", of requests that take the 99th percentile.", kSeconds3, kFields[i].p99));
  }
}

// Prefill and decode apart.
void add_transfers(std::vector<Metric>& rows) {
  using S = serving::Summary;
  using T = serving::Times;
  const std::string apart = "; prefill and decode apart.";
  const auto times = [&](const std::string& path, const std::string& title, const std::string& definition,
                         double* (*mean)(Result&, int), double* (*tail)(Result&, int)) {
    rows.push_back(serving_row(path + ".mean", "", kSeconds, kLower, title + ", mean", "",
                               definition + ", mean" + apart, kSeconds3, mean));
    rows.push_back(serving_row(path + ".p99", "", kSeconds, kLower, title + ", 99th percentile", "",
                               definition + ", the 99th percentile" + apart, kSeconds3, tail));
  };
  times("transfer_s", "Served: transfer of a prompt's cache",
        "Time from the end of a prompt until its cache has come to the replica that decodes, waiting for memory there "
        "included",
        apart_times_field<&S::transfer, &T::mean>, apart_times_field<&S::transfer, &T::p99>);
  times("transfer_wait_s", "Served: wait for memory to decode",
        "Time from the end of a prompt until there is memory for its cache where it is decoded",
        apart_times_field<&S::admission, &T::mean>, apart_times_field<&S::admission, &T::p99>);
  rows.push_back(serving_row("transfer_bytes", "", kBytes, kLower, "Bytes of a prompt's cache that are sent", "",
                             "Bytes that each GPU sends for a request, mean" + apart, kBytesSent,
                             apart_field<&S::sent_bytes>));
  rows.push_back(
      serving_row("prefill_busy_share", "", kShare, kNeither, "Time in passes that read prompts", "",
                  "Share of the duration in which a replica that reads prompts runs a pass, mean over them" + apart,
                  kOfAll, apart_field<&S::prefill_busy_share>));
}

void add_rates(std::vector<Metric>& rows) {
  using S = serving::Summary;
  rows.push_back(serving_row("requests_per_s", "served_rps", kRequestsPerSecond, kHigher, "Requests served per second",
                             "served/s", "Requests that were completed, over the duration.", kRequests,
                             summary_field<&S::requests_per_s>));
  rows.push_back(serving_row("output_tokens_per_s", "served_tps", kTokensPerSecond, kHigher,
                             "Output tokens served per second", "", "Tokens that were generated, over the duration.",
                             kTokensEach, summary_field<&S::output_tokens_per_s>));
  rows.push_back(serving_row(
      "total_tokens_per_s", "", kTokensPerSecond, kHigher, "Input and output tokens served per second", "",
      "Tokens of prompts and answers, over the duration.", kTokensEach, summary_field<&S::total_tokens_per_s>));
  rows.push_back(serving_row("slo_share", "slo_share", kShare, kHigher, "Requests within the SLO", "within SLO",
                             "Share of all requests, rejected ones included, whose times keep `traffic.slo`; only if "
                             "the run states one.",
                             kOfAll, slo_field<&S::slo_share>));
  rows.push_back(serving_row(
      "goodput_per_s", "goodput", kRequestsPerSecond, kHigher, "Requests within the SLO per second", "goodput",
      "Requests whose times keep `traffic.slo`, over the duration.", kRequests, slo_field<&S::goodput_per_s>));
  rows.push_back(serving_row("good_tokens_per_s", "", kTokensPerSecond, kHigher,
                             "Output tokens within the SLO per second", "",
                             "Generated tokens of requests whose times keep `traffic.slo`, over the duration.",
                             kTokensEach, slo_field<&S::good_tokens_per_s>));
}

void add_queue(std::vector<Metric>& rows) {
  using S = serving::Summary;
  const auto count = [&](const char* path, const char* label, const char* definition, double* (*field)(Result&, int),
                         Better better = kLower) {
    rows.push_back(serving_row(path, "", kCount, better, label, "", definition, kNumber, field));
  };
  rows.push_back(serving_row("duration_s", "", kSeconds, kNeither, "Duration", "",
                             "From the first arrival to the last token.", kSeconds3, summary_field<&S::duration_s>));
  count("completed", "Requests completed", "Requests that have their last token.", summary_field<&S::completed>,
        kHigher);
  count("rejected", "Requests rejected",
        "Requests that can never fit in the model's context, in memory or in a pass of an engine that reads a prompt "
        "whole.",
        summary_field<&S::rejected>);
  count("preemptions", "Preemptions", "Times that a request lost its memory and had to be read again.",
        summary_field<&S::preemptions>);
  rows.push_back(serving_row("recomputed_tokens", "", kTokens, kLower, "Tokens computed again", "",
                             "Tokens that were computed before a preemption and again after it.", kNumber,
                             summary_field<&S::recomputed_tokens>));
  rows.push_back(serving_row("prefix_hit_share", "", kShare, kHigher, "Prompt tokens found in the prefix cache", "",
                             "Share of the prompts' tokens that were not computed, because their blocks were there.",
                             kOfAll, summary_field<&S::prefix_hit_share>));
  rows.push_back(
      serving_row("loaded_share", "", kShare, kHigher, "Prompt tokens loaded from behind the GPU", "",
                  "Share of all prompt tokens that were found in host memory, storage or other machines, and "
                  "copied to the GPU instead of being computed.",
                  kOfAll, summary_field<&S::loaded_share>));
  count("running.mean", "Requests running, mean", "Requests that an engine has admitted, mean over time and replicas.",
        summary_field<&S::running_mean>, kNeither);
  count("running.max", "Requests running, largest number", "Requests that an engine has admitted, at most.",
        summary_field<&S::running_max>, kNeither);
  count("waiting.mean", "Requests waiting, mean",
        "Requests that wait for admission by an engine, mean over time and replicas.", summary_field<&S::waiting_mean>);
  count("waiting.max", "Requests waiting, largest number", "Requests that wait for admission by an engine, at most.",
        summary_field<&S::waiting_max>);
}

void add_memory_of_service(std::vector<Metric>& rows) {
  using S = serving::Summary;
  rows.push_back(serving_row("kv_capacity_tokens", "", kTokens, kHigher, "Tokens that the cache holds", "",
                             "Tokens of the uncompressed cache that fit into the memory that an engine gives it.",
                             kNumber, service_field<&Service::kv_capacity_tokens>));
  const auto share = [&](const char* path, const char* label, const char* definition, double* (*field)(Result&, int)) {
    rows.push_back(serving_row(path, "", kShare, kNeither, label, "", definition, kOfAll, field));
  };
  share("kv_used_share.mean", "Cache in use, mean",
        "Share of the cache's blocks that requests hold, mean over time and replicas.",
        summary_field<&S::kv_used_mean>);
  share("kv_used_share.max", "Cache in use, largest share", "Share of the cache's blocks that requests hold, at most.",
        summary_field<&S::kv_used_max>);
  share("busy_share", "Time in passes", "Share of the duration in which an engine runs a pass, mean over replicas.",
        summary_field<&S::busy_share>);
  share("link_busy_share", "Link to the host in use",
        "Share of the duration that copies over the link to the host take at its rate, in the busier direction.",
        service_field<&Service::link_busy_share>);
  share("sampling_error", "Sampling error of the requests",
        "Standard deviation of the mean end-to-end time over other draws of as many requests, as a share of it; 0 for "
        "a trace.",
        service_field<&Service::sampling_error>);
  rows.push_back(serving_row("enough_requests", "", kCount, kNeither, "Requests that would be enough", "",
                             "Number of requests with which the sampling error would be 2 %.", kNumber,
                             service_field<&Service::enough_requests>));
}

// Member: output tokens per second.
template <auto Member>
std::optional<double> cost_of_served(const Result& r, int) {
  if (!r.service) return {};
  const std::optional<double> rate = r.service->summary.*Member;
  constexpr double kMillion = 1e6;
  const double replicas =
      r.subject.number("deployment.replicas").value_or(1) + r.subject.number("deployment.prefill_replicas").value_or(0);
  return rate && *rate > 0 ? price_of(r, replicas * kMillion / *rate) : std::nullopt;
}

void add_costs(std::vector<Metric>& rows) {
  const std::string priced = ", in the currency of price_per_hour; only if the run states a price.";
  const auto cost = [&](const char* path, const char* alias, const char* label, const std::string& definition,
                        std::optional<double> (*derived)(const Result&, int)) {
    Metric row = serving_row(path, alias, kMoney, kLower, label, "", definition + priced, {"", 1, ",.3r"}, nullptr);
    row.derived = derived;
    rows.push_back(std::move(row));
  };
  cost("cost_per_million_output_tokens", "served_cost", "Cost per million output tokens served",
       "Price of the duration, of all replicas, over the tokens that were generated in it",
       cost_of_served<&serving::Summary::output_tokens_per_s>);
  cost("cost_per_million_good_tokens", "good_cost", "Cost per million output tokens within the SLO",
       "Price of the duration, of all replicas, over the generated tokens of requests that keep `traffic.slo`",
       cost_of_served<&serving::Summary::good_tokens_per_s>);
}

}  // namespace

void add_service_rows(std::vector<Metric>& rows) {
  using S = serving::Summary;
  add_rates(rows);
  add_times_of<&S::ttft>(rows, "ttft_s", "TTFT", "Served: time to first token",
                         "Time from a request's arrival to its first token, waiting included.", kSeconds3);
  add_times_of<&S::tpot>(rows, "tpot_s", "TPOT", "Served: time per output token",
                         "Time from a request's first token to its last, over the tokens after the first.",
                         kTokenMillis);
  add_times_of<&S::itl>(rows, "itl_s", "", "Served: time between tokens",
                        "Time between two consecutive tokens of a request.", kTokenMillis);
  add_times_of<&S::e2e>(rows, "e2e_s", "latency", "Served: latency", "Time from a request's arrival to its last token.",
                        kSeconds3);
  add_times_of<&S::queue>(rows, "queue_s", "", "Served: time in the queue",
                          "Time from a request's arrival at the engine to the first pass that reads its prompt.",
                          kSeconds3);
  add_ttft_parts(rows);
  add_transfers(rows);
  add_costs(rows);
  add_queue(rows);
  add_memory_of_service(rows);
}

}  // namespace kvcast::result
