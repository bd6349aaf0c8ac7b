// Makes a store of services for the browser tests, with invented numbers that follow a simple rule.
//
//   service_fixture DIR   full KV and snapkv at five rates. A server of 1.6 or 5 requests/s has a median time to the
//                         first token of 0.1 s / (1 − load), and a tail four times as long; beyond its rate it is
//                         saturated. Of a time to first token 0.1 s is no queue: in the mean 0.06 s own prefill,
//                         0.03 s others in its passes and 0.01 s passes of others.
#include <cmath>
#include <cstdio>
#include <string>

#include "store/store.hpp"

namespace {

using kvcast::result::Result;
using kvcast::serving::Trend;
using kvcast::store::Store;

struct Server {
  const char* policy;
  double rate;    // that it serves at most
  double budget;  // 0: none
};

constexpr double kSlo = 2;

kvcast::serving::Summary summary_of(double load, double rate) {
  kvcast::serving::Summary s;
  const bool saturated = load >= 1;
  s.state = saturated ? Trend::kSaturated : Trend::kStable;
  const double median = saturated ? 20 * load : 0.1 / (1 - load);
  s.ttft = {1.2 * median, median, 2 * median, saturated ? 60 * load : 4 * median};
  s.ttft_mean = {0, s.ttft.mean - 0.1, 0.06, 0.03, 0.01}, s.ttft_p99 = {0, s.ttft.p99 - 0.1, 0.05, 0.04, 0.01};
  s.tpot = {0.02, 0.02 + 0.01 * load, 0.025, 0.03 + 0.01 * load};
  s.e2e = {s.ttft.mean + 5, median + 5, 2 * median + 5, s.ttft.p99 + 6};
  s.slo_share = s.ttft.p99 < kSlo ? 1 : 0.5, s.goodput_per_s = *s.slo_share * rate, s.good_tokens_per_s = 256 * rate;
  s.requests_per_s = saturated ? rate / load : rate, s.output_tokens_per_s = 256 * s.requests_per_s;
  s.completed = 500, s.duration_s = 500 / s.requests_per_s;
  for (int i = 0; i <= 100; ++i) {
    s.ttft_curve.push_back(median * std::pow(s.ttft.p99 / median, (i - 50) / 49.0));
    s.tpot_curve.push_back(0.02 + 0.0001 * i * (1 + load));
    const double at = i / 100.0;
    s.moments.push_back({at * s.duration_s, std::fmin(64, 40 * load * std::fmin(1, 10 * at)),
                         saturated ? 300 * (load - 1) * at : 0, std::fmin(1, load * std::fmin(1, 10 * at)),
                         saturated ? std::floor(20 * at) : 0});
  }
  return s;
}

Result result_of(const Server& server, double rate) {
  Result r;
  r.key = std::string(server.policy) + " " + std::to_string(rate);
  r.subject.model = "llama-3.1-8b", r.subject.hardware = "h100-sxm", r.subject.policy = server.policy;
  r.subject.prompt_tokens = 8192, r.subject.decode_tokens = 256, r.subject.batch = 4;
  if (server.budget > 0) r.subject.settings.push_back({"policy.budget", static_cast<std::int64_t>(server.budget)});
  r.subject.settings.push_back({"traffic.rate", rate});
  r.subject.settings.push_back({"traffic.requests", std::int64_t{500}});
  r.subject.settings.push_back({"traffic.slo.ttft", kSlo});
  r.subject.swept = {{"policy", server.policy}, {"traffic.rate", std::to_string(rate)}};
  r.experiment.tokens_per_s = 256 * rate;
  auto& service = r.service.emplace();
  service.origin = kvcast::Origin::kFitted;
  service.summary = summary_of(rate / server.rate, rate);
  const double tail = service.summary.ttft.p99;
  r.by_text.push_back({"serving.ttft_s.p99", {0.9 * tail, 1.2 * tail}});
  return r;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: service_fixture DIR\n");
    return 2;
  }
  Store store = Store::open(argv[1], Store::Open::kCreate);
  int ordinal = 0;
  for (const Server& server : {Server{"full", 1.6, 0}, Server{"snapkv", 5, 2048}}) {
    for (const double rate : {0.5, 1.0, 2.0, 4.0, 8.0}) store.put(ordinal++, result_of(server, rate), "fixture");
  }
  store.set_metadata(kvcast::store::kMetaName, "Fixture services");
  return 0;
}
