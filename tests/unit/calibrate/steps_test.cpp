// Fits of one's own measured steps: synthetic times of known scales, the stated shrinkage, and rejected files.
#include <catch2/catch.hpp>

#include <cmath>
#include <fstream>

#include "base/random.hpp"
#include "calibrate/steps.hpp"
#include "support/error_of.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using namespace calibrate;

namespace {

// A dozen settings of a machine whose memory reads 2e12 bytes/s and whose products are 4e14 FLOP/s: steps read 16 GB
// and 130 kB a token, prompts need 16e9 FLOP a token, and a pass waits 1 ms for the host.
std::vector<MeasuredTime> settings(const StepScales& truth, double noise) {
  std::vector<MeasuredTime> times;
  const Stream random(7);
  std::size_t row = 0;
  for (const double batch : {1.0, 4.0, 16.0}) {
    for (const double context : {1e3, 4e3, 16e3, 32e3}) {
      MeasuredTime step, prompt;
      step.row = prompt.row = row++, prompt.prefill = true;
      step.memory = (16e9 + 130e3 * batch * context) / 2e12, step.products = 1e-4 * batch, step.passes = 1;
      prompt.memory = 16e9 / 2e12, prompt.products = 16e9 * batch * context / 4e14, prompt.passes = 1;
      for (MeasuredTime* t : {&step, &prompt}) {
        t->predicted = t->memory + t->products + 1e-3;
        t->measured = scaled_time(*t, truth) * std::exp(noise * (2 * random.uniform(times.size()) - 1));
        times.push_back(*t);
      }
    }
  }
  return times;
}

double worst(const std::vector<double>& errors) {
  double most = 0;
  for (const double e : errors) most = std::max(most, std::abs(e));
  return most;
}

std::vector<StepRow> rows_of(const std::string& text, const std::string& name = "mine.csv") {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/" + name;
  std::ofstream(path) << text;
  return read_step_rows(path);
}

}  // namespace

TEST_CASE("known scales are recovered from synthetic rows", "[steps]") {
  const StepScales truth{0.8, 0.7, 2e-3};
  const StepFit fit = fit_steps(settings(truth, 0), {.rates = 0.2, .host_s = 1e-3});
  CHECK(fit.scales.memory == Approx(0.8).epsilon(0.02));
  CHECK(fit.scales.products == Approx(0.7).epsilon(0.01));
  CHECK(fit.scales.host_s == Approx(2e-3).margin(3e-4));
  CHECK(worst(fit.before) > 0.2);
  CHECK(worst(fit.after) < 0.01);
  CHECK(worst(fit.left_out) < 0.02);
  CHECK(fit.interval == Approx(0.03));  // the least
  CHECK(fit.better());
  CHECK(fit.kept.empty());
}

TEST_CASE("the interval holds as many left-out rows as it says, and noise widens it", "[steps]") {
  const StepFit fit = fit_steps(settings({0.8, 0.7, 2e-3}, 0.2), {.rates = 0.2, .host_s = 1e-3});
  // 24 times: the 20th of their sizes in order.
  const auto within = std::ranges::count_if(fit.left_out, [&](double e) { return std::abs(e) <= fit.interval; });
  CHECK(within == 20);
  CHECK(fit.interval > 0.03);
  CHECK(fit.interval < 0.2 * 1.5);
  const StepFit exact = fit_steps(settings({0.8, 0.7, 2e-3}, 0), {.rates = 0.2, .host_s = 1e-3});
  CHECK(fit.half_widths.memory > exact.half_widths.memory);
  CHECK(exact.half_widths.memory < 0.2 * 1.2816);  // narrower than the belief
}

TEST_CASE("beliefs shrink what few times say", "[steps]") {
  // Two equal times of memory alone, 0.1 % above the prediction. With v the logarithm of the rate and the loss near e²:
  // minimise 2 (0.001 + v)² + (0.03 v / w)², so v = -0.001 · 2 / (2 + (0.03 / w)²).
  std::vector<MeasuredTime> times(2);
  for (std::size_t i = 0; i < 2; ++i) {
    times[i].row = i, times[i].measured = 0.01 * std::exp(0.001), times[i].predicted = times[i].memory = 0.01;
  }
  const auto rate = [&](double width) { return std::log(fit_steps(times, {.rates = width}).scales.memory); };
  CHECK(rate(0.2) == Approx(-0.001 * 2 / (2 + 0.15 * 0.15)).epsilon(0.01));
  CHECK(rate(0.01) == Approx(-0.001 * 2 / (2 + 9)).epsilon(0.01));
  const StepFit fit = fit_steps(times, {.rates = 0.2});
  CHECK(fit.kept == std::vector<std::string>{"rate of products", "time between steps"});
  CHECK(fit.interval == 0.2);  // two times decide no interval
  CHECK_THROWS_AS(fit_steps(std::span(times).first(1), {}), UserError);
}

TEST_CASE("times that no scale explains are not better than before", "[steps]") {
  // Half of the rows are 30 % longer and half 30 % shorter: rows left out are predicted from the other half's side.
  std::vector<MeasuredTime> times = settings({}, 0);
  for (MeasuredTime& t : times) t.measured = t.predicted * (t.row % 2 == 0 ? 1.3 : 1 / 1.3);
  CHECK_FALSE(fit_steps(times, {.rates = 0.2}).better());
}

TEST_CASE("measured steps are read from CSV and from vLLM's JSON", "[steps]") {
  const std::vector<StepRow> rows =
      rows_of("batch,context,tpot_ms,ttft_ms,output_tokens\n1,4096,9.5,210,\n8,32768,,9000,256\n");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].tpot_s == Approx(9.5e-3));
  CHECK(rows[0].ttft_s == Approx(0.21));
  CHECK(rows[0].output_tokens == 128);
  CHECK(rows[1].batch == 8);
  CHECK(rows[1].tpot_s == 0);
  CHECK(rows[1].output_tokens == 256);
  const StepRow served =
      rows_of(
          R"({"max_concurrency": 16, "completed": 100, "total_input_tokens": 409600, "total_output_tokens": 12800,
          "mean_tpot_ms": 22.5, "median_itl_ms": 20.5, "mean_ttft_ms": 300})",
          "bench.json")
          .at(0);
  CHECK(served.batch == 16);
  CHECK(served.prompt_tokens == 4096);
  CHECK(served.output_tokens == 128);
  CHECK(served.tpot_s == Approx(20.5e-3));
  CHECK(served.ttft_s == 0);  // requests wait for others
}

TEST_CASE("files that are no measured steps are rejected", "[steps]") {
  const auto refused = [](const std::string& text, const std::string& name = "mine.csv") {
    return error_of([&] { rows_of(text, name); });
  };
  CHECK_THAT(refused("batch,tpot_ms\n1,2\n"), Catch::Contains("expected the columns batch, context"));
  CHECK_THAT(refused("batch,context,tpot_ms\n1,4096,0\n"), Catch::Contains(":2:8: tpot_ms: expected a number above 0"));
  CHECK_THAT(refused("batch,context,tpot_ms\n1.5,4096,3\n"), Catch::Contains("batch: expected a whole number"));
  CHECK_THAT(refused("batch,context,tpot_ms\n1,4096,\n"), Catch::Contains("neither tpot_ms nor ttft_ms"));
  CHECK_THAT(refused("batch,context,tpot_ms\n"), Catch::Contains("no measured steps"));
  CHECK_THAT(refused("{\"completed\": 3}", "a.json"), Catch::Contains("vLLM's serving benchmark"));
  CHECK_THAT(refused("[", "a.json"), Catch::Contains("not JSON"));
}

TEST_CASE("mutated measured steps are read or rejected", "[steps][mutation]") {
  const std::string csv = "batch,context,tpot_ms,ttft_ms\n1,4096,9.5,210\n8,32768,41,9000\n";
  const std::string result = R"({"max_concurrency": 16, "completed": 100, "total_input_tokens": 409600,
                               "total_output_tokens": 12800, "median_itl_ms": 20.5})";
  const Stream random(11);
  int read = 0, refused = 0;
  for (std::uint64_t i = 0; i < 600; ++i) {
    std::string text = i % 2 == 0 ? csv : result;
    const auto at = static_cast<std::size_t>(random.uniform(2 * i) * static_cast<double>(text.size()));
    const auto byte = static_cast<char>(random.uniform(2 * i + 1) * 256);
    if (i % 3 == 0)
      text.erase(at, 1 + at % 5);
    else
      text[at] = byte;
    try {
      for (const StepRow& row : rows_of(text, i % 2 == 0 ? "m.csv" : "m.json")) REQUIRE(row.batch >= 1);
      ++read;
    } catch (const UserError&) {
      ++refused;
    }
  }
  CHECK(read > 100);
  CHECK(refused > 100);
}

}  // namespace kvcast::tests
