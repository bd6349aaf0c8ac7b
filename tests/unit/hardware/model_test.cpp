// Properties of every cost: numbers and their origins, the bottleneck, memory, rates, explanations.
#include <cmath>

#include "hardware/number.hpp"
#include "hardware/terms.hpp"
#include "unit/hardware/support.hpp"

namespace kvcast::tests {

using hardware::at;
using hardware::Cost;
using hardware::Number;
using hardware::Resource;

TEST_CASE("curves are linear between their points and flat outside, where the uncertainty grows") {
  const config::Curve c = curve({10, 20, 40}, {1, 2, 6});
  CHECK(at(c, 10).value == 1);
  CHECK(at(c, 15).value == Approx(1.5));
  CHECK(at(c, 20).value == 2);
  CHECK(at(c, 35).value == Approx(5));
  CHECK(at(c, 40).value == 6);
  for (const double x : {10.0, 15.0, 40.0}) {
    CHECK_FALSE(at(c, x).extrapolated);
    CHECK(at(c, x).uncertainty == Approx(0.1));
    CHECK(at(c, x).origin == Origin::kLiterature);
  }
  CHECK(at(c, 80).value == 6);
  CHECK(at(c, 5).value == 1);
  CHECK(at(c, 80).extrapolated);
  CHECK(at(c, 80).origin == Origin::kExtrapolated);
  // From 20 to 40 the value grew by two thirds of the last one, so the error after another doubling may be as large.
  CHECK(at(c, 80).uncertainty == Approx(0.1 + 2.0 / 3));
  CHECK(at(c, 40 * std::sqrt(2.0)).uncertainty == Approx(0.1 + 1.0 / 3));  // half a doubling
  CHECK(at(c, 160).uncertainty == Approx(0.1 + 1));                        // two: at most 1 more
  CHECK(at(c, 5).uncertainty == Approx(0.1 + 1));  // from 20 to 10 the value halves, by all of 1
  CHECK(at(c, 0).uncertainty == Approx(0.1 + 1));
  // Points two doublings apart that differ by a fifth of the last one: a tenth a doubling.
  CHECK(at(curve({10, 40}, {4, 5}), 320).uncertainty == Approx(0.1 + 0.3));
  CHECK(at(curve({10, 40}, {5, 5}), 160).uncertainty == Approx(0.1 + 0.1));  // flat: still 0.05 a doubling
  CHECK(at(curve({5}, {3}), 10).uncertainty == Approx(0.1 + 0.25));          // unknown
  CHECK(at(curve({0, 5}, {3, 3}), 20).uncertainty == Approx(0.1 + 0.5));
  CHECK(at(curve({5}, {3}), 5).value == 3);
}

TEST_CASE("errors of factors add in quadrature, and the worse origin is kept") {
  const Value a{2, Origin::kDatasheet, 0.03, "the sheet"}, b{5, Origin::kAssumed, 0.04, "a guess"};
  const Number product = hardware::number(a) * hardware::number(b);
  CHECK(product.value == 10);
  CHECK(product.uncertainty == Approx(0.05));  // 3-4-5
  CHECK(product.origin == Origin::kAssumed);
  CHECK(*product.source == "a guess");
  const Number quotient = hardware::number(a) / hardware::number(b);
  CHECK(quotient.value == Approx(0.4));
  CHECK(quotient.uncertainty == Approx(0.05));
}

TEST_CASE("errors of numbers from one fit are correlated") {
  const Value a{2, Origin::kFitted, 0.03, "the fit"}, b{5, Origin::kFitted, 0.04, "the fit"};
  const Value other{5, Origin::kFitted, 0.04, "another fit"};
  CHECK((hardware::number(a) * hardware::number(b)).uncertainty == Approx(0.04));
  CHECK((hardware::number(a) * hardware::number(other)).uncertainty == Approx(0.05));

  // Waits of 10, 20 and 30 us, each ± 10 %. If the first two are from one fit, their error is 3 us together, and √(3² +
  // 3²) is 4.243 us of 60. Three separate fits give √(1² + 2² + 3²) = 3.742 us.
  const std::array<double, hardware::kResourceCount> rates{};
  const auto uncertainty = [&](const std::string& second, Origin origin) {
    const std::string first = "a fit", third = "a third one";
    hardware::Terms terms;
    terms.wait("first", {10e-6, origin, 0.1, false, &first});
    terms.wait("third", {30e-6, origin, 0.1, false, &third});
    terms.wait("second", {20e-6, origin, 0.1, false, &second});
    return terms.cost(rates.data()).uncertainty;
  };
  CHECK(uncertainty("a fit", Origin::kFitted) == Approx(4.243 / 60).epsilon(1e-3));
  CHECK(uncertainty("a second one", Origin::kFitted) == Approx(3.742 / 60).epsilon(1e-3));
  CHECK(uncertainty("a fit", Origin::kDatasheet) ==
        Approx(3.742 / 60).epsilon(1e-3));  // one data sheet, independent errors

  // Works of one fit on one resource: 10 and 20 us are 30 us ± 3.
  const std::string fit = "a fit";
  hardware::Terms terms;
  terms.work("first", hardware::Resource::kHbm, {10e-6, Origin::kFitted, 0.1, false, &fit});
  terms.work("second", hardware::Resource::kHbm, {20e-6, Origin::kFitted, 0.1, false, &fit});
  CHECK(terms.cost(rates.data()).uncertainty == Approx(0.1));
}

TEST_CASE("the interval of a cost weighs its parts") {
  // Gap 1 us, floor 2 us, weights 66.93 us, 10 % each (the bandwidth cancels, the clock is the floors' own):
  // √(0.1² + 0.2² + 6.693²) = 6.697 us of 69.93 us: 9.577 %.
  config::Hardware machine = round_machine();
  const graph::Op gemm = op_of(graph::Gemm{10, 5000, 5000, 2});
  const Cost cost = hardware::CostModel(machine, {}).cost(gemm);
  CHECK(cost.uncertainty == Approx(0.09577).epsilon(1e-3));
  CHECK(cost.origin == Origin::kLiterature);
  CHECK_FALSE(cost.extrapolated);
  // Floors converted to another clock depend on both clocks: the floor of 1 us at 2 GHz is off by √3 · 10 %.
  machine.gpu.clock.value = 2e9;
  const Cost launch = hardware::CostModel(machine, {}).cost(op_of(graph::Kernel{graph::KernelClass::kScore}));
  // Gap 1 us ± 0.1, floor 1.5 us ± 0.2598: 0.2784 of 2.5 us.
  CHECK(launch.uncertainty == Approx(0.11136).epsilon(1e-3));
}

TEST_CASE("short parts do not degrade the origin of long ones") {
  config::Hardware machine = round_machine();
  machine.gpu.gap_graph.origin = Origin::kAssumed;
  const hardware::CostModel model(machine, {});
  // 1 us of 69.93 us is below 5 %.
  CHECK(model.cost(op_of(graph::Gemm{10, 5000, 5000, 2})).origin == Origin::kLiterature);
  // 1 us of gap + 1 us of floor.
  CHECK(model.cost(op_of(graph::Kernel{})).origin == Origin::kAssumed);
  // A part that is not the bottleneck does not count either: products, compared with weights.
  machine.gpu.gemm_compute_efficiency.origin = Origin::kAssumed;
  CHECK(hardware::CostModel(machine, {}).cost(op_of(graph::Gemm{10, 5000, 5000, 2})).origin == Origin::kLiterature);
}

TEST_CASE("a cost beyond a curve's end is marked as extrapolated") {
  // 200 MB of weights; the curve ends at 100 MB. One doubling: 0.35 of the weights' time.
  const Cost cost = round_model().cost(op_of(graph::Gemm{10, 10000, 10000, 2}));
  CHECK(cost.extrapolated);
  CHECK(cost.origin == Origin::kExtrapolated);
  CHECK(cost.uncertainty > 0.3f);
}

TEST_CASE("a marker costs nothing") {
  const Cost cost = round_model().cost(op_of(graph::Marker{}));
  CHECK(cost.latency == 0);
  CHECK(cost.demands.empty());
  CHECK(cost.alone == 0);
  CHECK(cost.origin == Origin::kExact);
}

TEST_CASE("rates and capacities are the machine's") {
  const hardware::CostModel model = round_model();
  CHECK(model.rate(Resource::kHbm) == 1e12);
  CHECK(model.rate(Resource::kTensor) == 100e12);
  CHECK(model.rate(Resource::kVector) == 10e12);
  CHECK(model.rate(Resource::kH2d) == 1);
  CHECK(model.rate(Resource::kLinkIn) == 10e9);
  CHECK(model.rate(Resource::kLinkOut) == 8e9);
  CHECK(model.rate(Resource::kLink) == 16e9);
  CHECK(model.rate(Resource::kDram) == 100e9);
  CHECK(model.rate(Resource::kCores) == 8);
  CHECK(model.rate(Resource::kRecallThread) == 1);
  CHECK(model.capacity(graph::Pool::kHbm) == Approx(39e9));
  CHECK(model.capacity(graph::Pool::kDram) == Approx(90e9));
}

TEST_CASE("the uncertainties of the parts of a memory capacity are independent") {
  const auto capacity = [](const char* source, double sign, graph::Pool pool) {
    return hardware::CostModel(round_machine(), {}, {source, sign}).capacity(pool);
  };
  // 40 GB and 1 GB, each with an uncertainty of a tenth.
  const double device = std::hypot(4e9, 0.1e9);
  CHECK(capacity(hardware::kDeviceMemory, 1, graph::Pool::kHbm) == Approx(39e9 - device));
  CHECK(capacity(hardware::kDeviceMemory, -1, graph::Pool::kHbm) == Approx(39e9 + device));
  CHECK(capacity(hardware::kDeviceMemory, 1, graph::Pool::kDram) == Approx(90e9));
  CHECK(capacity(hardware::kHostMemory, 1, graph::Pool::kDram) == Approx(90e9 * (1 - std::sqrt(0.02))));
  CHECK(capacity(hardware::kHostMemory, 1, graph::Pool::kHbm) == Approx(39e9));
  CHECK(capacity("made up", 1, graph::Pool::kHbm) == Approx(39e9));  // this source has no effect on memory
}

TEST_CASE("engines and host threads serve one op at a time, all other resources are shared") {
  int fifos = 0;
  for (int r = 0; r < hardware::kResourceCount; ++r) {
    const auto resource = static_cast<Resource>(r);
    CHECK(!hardware::resource_name(resource).empty());
    fifos += hardware::is_fifo(resource) ? 1 : 0;
  }
  CHECK(fifos == 5);
  for (const Resource r :
       {Resource::kH2d, Resource::kD2h, Resource::kHostThread, Resource::kRecallThread, Resource::kBackupThread}) {
    CHECK(hardware::is_fifo(r));
  }
}

TEST_CASE("an explanation lists the parts, longest first, and names the bottleneck") {
  const std::string text = round_model().explain(op_of(graph::Gemm{10, 5000, 5000, 2}));
  CAPTURE(text);
  CHECK(text.starts_with("69.9 \u00b5s alone, literature \u00b110 %; bound by HBM\n"));
  const auto weights =
      text.find("66.9 \u00b5s  weights and activations (HBM), the bottleneck; literature \u00b110 %: made up");
  const auto products = text.find("26.7 \u00b5s  matrix products (tensor cores); literature");
  const auto floor = text.find("2 \u00b5s  GEMM floor");
  CHECK(weights != std::string::npos);
  CHECK(products != std::string::npos);
  CHECK(floor != std::string::npos);
  CHECK(weights < products);
  CHECK(products < floor);
}

TEST_CASE("a rate that is wrong by half makes a time twice as long, or a third shorter") {
  const Value rate{4, Origin::kAssumed, 0.5, "a rate"}, time{3, Origin::kAssumed, 0.25, "a time"};
  const Number alone = hardware::exact(8) / hardware::number(rate);  // 2 s; rates 2 and 6: 4 s and 1.333
  CHECK(hardware::factor_at_uncertainty(alone, 1) == Approx(2));
  CHECK(hardware::factor_at_uncertainty(alone, -1) == Approx(1 / 1.5));
  CHECK(hardware::factor_at_uncertainty(hardware::number(time), 1) == Approx(1.25));
  CHECK(hardware::factor_at_uncertainty(hardware::number(time), -1) == Approx(0.75));
  // The least certain of several factors counts: the rate, in the denominator or the numerator.
  CHECK(hardware::factor_at_uncertainty(alone * hardware::number(time), 1) ==
        Approx(1 / (1 - alone.uncertainty * std::sqrt(1.25))));
  CHECK_FALSE((hardware::number(rate) * hardware::number(time)).over_rate);
  CHECK_FALSE((hardware::exact(1) / alone).over_rate);
  // An uncertainty above 100 % is limited to a factor of ten.
  const Value wild{4, Origin::kAssumed, 3, "a guess"};
  CHECK(hardware::factor_at_uncertainty(hardware::exact(8) / hardware::number(wild), 1) == Approx(10));
  CHECK(hardware::factor_at_uncertainty(hardware::number(wild), -1) == Approx(0.1));
}

TEST_CASE("costs of the shifted source change by their own uncertainty, all others do not change") {
  const std::string first = "a sheet", second = "a guess";
  const auto terms = [&] {
    hardware::Terms made;
    made.wait("wait", {10e-6, Origin::kAssumed, 0.5, false, &second});
    made.work("bytes", Resource::kHbm, {20e-6, Origin::kDatasheet, 0.1, false, &first});
    made.issue("calls", Resource::kHostThread, {4e-6, Origin::kAssumed, 2, false, &second}, 8e-6);
    return made;
  };
  const auto alone = [&](const std::string& source, double sign) {
    hardware::Terms made = terms();
    made.shift({source, sign});
    return made.alone();
  };
  CHECK(terms().alone() == Approx(34e-6));
  CHECK(alone(first, 1) == Approx(36e-6));   // 22 us of bytes
  CHECK(alone(first, -1) == Approx(32e-6));  // 18
  CHECK(alone(second, 1) == Approx(15e-6 + 20e-6 + 12e-6));
  CHECK(alone(second, -1) == Approx(5e-6 + 20e-6 + 0.4e-6));  // limited to a tenth
  CHECK(alone("neither", 1) == Approx(34e-6));
  hardware::Terms made = terms();
  made.shift({second, 1});
  const std::array<double, hardware::kResourceCount> rates{};
  CHECK(made.cost(rates.data()).issue->first == Approx(12e-6));
  CHECK(made.cost(rates.data()).issue->rest == Approx(24e-6));
}

TEST_CASE("sorting tokens by their experts takes the framework's time whatever their number") {
  config::Framework framework;
  framework.expert_sort = {10e-6, Origin::kLiterature, 0.5, "a table"};
  const hardware::CostModel model(round_machine(), framework);
  const graph::Kernel sorted{graph::KernelClass::kSort, 0, 0};
  // Gap and floor are 2 us.
  CHECK(model.cost(op_of(sorted, graph::Lane::kCompute)).alone == us(12));
  CHECK(model.shifted({"a table", 1}).cost(op_of(sorted, graph::Lane::kCompute)).alone == us(2 + 15));
}

}  // namespace kvcast::tests
