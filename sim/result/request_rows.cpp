// Rows of a service of equal requests in steady state: as many as the batch at any time, and a finished one is replaced
// at once. The first token of a request comes from its prefill, each further one from a decode step of the batch. The
// GPUs spend the prefills of all requests of a batch and the decode steps of one on serving a batch of them, and by
// Little's law this is also the time that each of them stays.
#include <algorithm>
#include <string>

#include "result/metric_rows.hpp"

namespace kvcast::result {
namespace {

using enum Unit;
using enum Better;
using enum Basis;

constexpr double kMillionTokens = 1e6;
constexpr Display kMillis{"ms", 1e3, ",.3r"}, kWhole{"s", 1, ",.3r"};
constexpr Display kRequestRate{"requests/s", 1, ",.3r"}, kTokenRate{"tokens/s", 1, ",.4r"}, kPrice{"", 1, ",.3r"};

double batch_of(const Result& r) { return static_cast<double>(r.subject.batch); }
double outputs_of(const Result& r) { return static_cast<double>(r.subject.decode_tokens); }
double tokens_of(const Result& r) { return static_cast<double>(r.subject.prompt_tokens) + outputs_of(r); }
double one_request(const Result&) { return 1; }
double step_seconds(const Result& r) { return (outputs_of(r) - 1) * r.experiment.tpot_mean_s; }
double latency_of(const Result& r) { return r.experiment.ttft_s + step_seconds(r); }
double prefill_of_latency(const Result& r) { return latency_of(r) > 0 ? r.experiment.ttft_s / latency_of(r) : 0; }
// Prefills of the others that a request waits for between its tokens.
double prefills_between(const Result& r) { return std::max(0.0, r.experiment.ttft_s - r.experiment.first_ttft_s); }
double prefill_of_tpot(const Result& r) {
  return step_seconds(r) > 0 ? prefills_between(r) / (prefills_between(r) + step_seconds(r)) : 0;
}

std::optional<double> latency(const Result& r, int) {
  return r.is_batch() ? std::optional(latency_of(r)) : std::nullopt;
}
std::optional<double> tpot(const Result& r, int) {
  if (!r.is_batch() || outputs_of(r) < 2) return {};
  return (latency_of(r) - r.experiment.first_ttft_s) / (outputs_of(r) - 1);
}
double* first_ttft(Result& r, int) { return r.is_batch() ? &r.experiment.first_ttft_s : nullptr; }

// Requests, or tokens of requests, a second.
template <auto TokensOf>
std::optional<double> rate(const Result& r, int) {
  if (!r.is_batch() || latency_of(r) <= 0) return {};
  return batch_of(r) * TokensOf(r) / latency_of(r);
}

std::optional<double> cost(const Result& r, int) {
  if (!r.is_batch() || latency_of(r) <= 0) return {};
  return price_of(r, latency_of(r) / batch_of(r));
}
template <auto TokensOf>
std::optional<double> cost_of_million(const Result& r, int) {
  const auto of_request = cost(r, 0);
  return of_request ? std::optional(*of_request / TokensOf(r) * kMillionTokens) : std::nullopt;
}

Metric request_row(const char* path, const char* alias, Unit unit, Better better, const char* label, const char* brief,
                   std::string definition, const Display& display,
                   std::optional<double> (*derived)(const Result&, int)) {
  Metric row{path, alias, unit, better, kRequestTime, label, brief, std::move(definition), display, nullptr, derived};
  row.prefill_share = prefill_of_latency;
  return row;
}

void add_times_of_requests(std::vector<Metric>& rows) {
  rows.push_back(
      request_row("request.latency_s", "latency", kSeconds, kLower, "Latency of a request", "latency",
                  "Time of a request from the start of its prefill to its last token, in a service of equal requests "
                  "that keeps the "
                  "batch full: the prefills of the batch and the decode steps of one request, on the same GPUs.",
                  kWhole, latency));
  rows.push_back(
      {"request.ttft_s", "request_ttft", kSeconds, kLower, kPrefillTime, "Time to first token of a request", "TTFT",
       "Time from the start of a request's prefill until its first token is on the host, without waiting for "
       "others; prompts that are prefilled together have it together.",
       kWhole, first_ttft});
  rows.push_back(request_row("request.tpot_s", "request_tpot", kSeconds, kLower, "Time per output token of a request",
                             "",
                             "Latency less time to first token, over the further tokens: a decode step, and the "
                             "prefills of other requests between two of them.",
                             kMillis, tpot));
  rows.back().prefill_share = prefill_of_tpot;
}

void add_rates_of_requests(std::vector<Metric>& rows) {
  rows.push_back(request_row("request.requests_per_s", "rps", kRequestsPerSecond, kHigher, "Requests per second",
                             "requests/s",
                             "Requests that are served per second while the batch is kept full, prompts included.",
                             kRequestRate, rate<one_request>));
  rows.push_back(request_row(
      "request.output_tokens_per_s", "output_tps", kTokensPerSecond, kHigher,
      "Output tokens per second, prompts included", "",
      "Tokens that are generated per second while the batch is kept full, with the prompts read on the same GPUs.",
      kTokenRate, rate<outputs_of>));
  rows.push_back(request_row(
      "request.total_tokens_per_s", "total_tps", kTokensPerSecond, kHigher, "Input and output tokens per second", "",
      "Tokens that are read and generated per second while the batch is kept full.", kTokenRate, rate<tokens_of>));
}

void add_costs_of_requests(std::vector<Metric>& rows) {
  const std::string priced = ", in the currency of price_per_hour; only if the run states a price.";
  rows.push_back(request_row("request.cost", "request_cost", kMoney, kLower, "Cost per request", "",
                             "Price of the time that a request takes of the GPUs, prompt and decode steps" + priced,
                             kPrice, cost));
  rows.push_back(request_row("request.cost_per_million_output_tokens", "cost", kMoney, kLower,
                             "Cost per million output tokens", "cost/M output",
                             "Cost of as many requests as generate a million tokens, prompts included" + priced, kPrice,
                             cost_of_million<outputs_of>));
  rows.push_back(request_row("request.cost_per_million_tokens", "total_cost", kMoney, kLower,
                             "Cost per million input and output tokens", "",
                             "Cost of as many requests as have a million tokens, input and output together" + priced,
                             kPrice, cost_of_million<tokens_of>));
}

}  // namespace

std::optional<double> price_of(const Result& r, double seconds) {
  constexpr double kHour = 3600;
  const auto price = r.has_times() ? r.subject.number("price_per_hour") : std::nullopt;
  if (!price || seconds <= 0) return {};
  return *price / kHour * seconds;
}

void add_request_rows(std::vector<Metric>& rows) {
  add_times_of_requests(rows);
  add_rates_of_requests(rows);
  add_costs_of_requests(rows);
}

}  // namespace kvcast::result
