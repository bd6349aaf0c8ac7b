// The estimator on few rows, compared with numbers worked out by hand.
#include "evidence/estimator.hpp"

#include <catch2/catch.hpp>

#include <cmath>
#include <set>

#include "evidence/covariance.hpp"
#include "evidence/leave_out.hpp"
#include "evidence/predictor.hpp"

namespace kvcast::tests {

namespace {

using namespace evidence;

// A single level, so that the covariance of equal rows is its variance.
Components only(Level level, double variance, double noise) {
  Components c;
  c.variance[static_cast<std::size_t>(level)] = variance;
  c.scale.fill(1), c.noise.fill(noise);
  return c;
}

ScoreRecord row(const char* model, const char* method, double budget, double simulated, double published) {
  return {{"P", "1", model, "ruler", "single1", method, 16384, budget, 100, simulated}, published};
}

double angle(double points) { return std::asin(std::sqrt(points / 100 / 1.1)); }

TEST_CASE("conversions between shares and angles are inverse, and a score never exceeds 100 points") {
  CHECK(to_angle(55, 100) == Approx(std::asin(std::sqrt(.5))));
  for (const double points : {0.0, 12.5, 60.0, 100.0}) CHECK(to_points(to_angle(points, 100), 100) == Approx(points));
  CHECK(to_points(to_angle(30, 50), 50) == Approx(30));
  CHECK(to_points(2, 100) == 100);  // angles above 90° count as 90°
  CHECK(to_points(-1, 100) == 0);
}

TEST_CASE("a row of the same group shifts a prediction as far as its noise allows") {
  // One row whose residual is e: the mean is s + v / (v + n) · e, with n = .008 · (1 + (10 / 100)²). Errors of a budget
  // of 1/16 of the prompt have 1 − 1/16² of the component's deviation.
  const double loss = 1 - 1 / 256.0, v = .04 * loss * loss, n = .008 * 1.01;
  std::vector<ScoreRecord> rows{row("a", "quest", 1024, 50, 70)};
  rows[0].noise = n;
  const Estimator estimator(rows, only(Level::kMethod, .04, .008));
  const double e = angle(70) - angle(50);
  const Estimate same = estimator.estimate(row("b", "quest", 1024, 50, 0));
  CHECK(same.mean == Approx(to_points(angle(50) + v / (v + n) * e, 100)));
  CHECK(same.deviation == Approx(std::sqrt(v - v * v / (v + n) + n)));
  // Half of the budget in tokens and as a share: the covariance is multiplied by exp(−½ (1/2)²) · exp(−½ (1/4)²), and
  // errors have 1 − 1/32² of the deviation.
  const double similarity = std::exp(-.5 / 4 - .5 / 16) * (1 - 1 / 1024.0) / loss;
  const Estimate half = estimator.estimate(row("b", "quest", 512, 50, 0));
  CHECK(half.mean == Approx(to_points(angle(50) + v * similarity / (v + n) * e, 100)));
  // A model whose query heads do not share KV heads has 0.8 of the covariance.
  ScoreRecord alone = row("b", "quest", 1024, 50, 0);
  alone.group = 1;
  CHECK(estimator.estimate(alone).mean == Approx(to_points(angle(50) + .8 * v / (v + n) * e, 100)));
  CHECK(estimator.estimate(alone).deviation == Approx(std::sqrt(v - .64 * v * v / (v + n) + n)));
  ScoreRecord shared = row("b", "quest", 1024, 50, 0);
  shared.group = 8;
  CHECK(estimator.estimate(shared).mean == same.mean);
  // Another method, another benchmark: the simulation, with the whole variance.
  const Estimate other = estimator.estimate(row("b", "tova", 1024, 50, 0));
  CHECK(other.mean == Approx(50));
  CHECK(other.deviation == Approx(std::sqrt(v + n)));
  ScoreRecord elsewhere = row("b", "quest", 1024, 50, 0);
  elsewhere.benchmark = std::string("niah");
  CHECK(estimator.estimate(elsewhere).mean == Approx(50));
}

TEST_CASE("settings without paper or table do not take part in those levels") {
  std::vector<ScoreRecord> rows{row("a", "quest", 1024, 50, 70)};
  const Estimator estimator(rows, only(Level::kPaperMethod, .04, .008));
  ScoreRecord mine = row("a", "quest", 1024, 50, 0);
  CHECK(estimator.estimate(mine).mean > 55);
  mine.paper.clear();
  CHECK(estimator.estimate(mine).mean == Approx(50));
}

TEST_CASE("left-out rows are estimated as by a fit without them") {
  const Components components = only(Level::kMethod, .04, .008);
  std::vector<ScoreRecord> rows{row("a", "quest", 256, 30, 35), row("a", "quest", 512, 40, 50),
                                row("a", "quest", 1024, 60, 70), row("b", "quest", 1024, 55, 80),
                                row("b", "tova", 512, 20, 10)};
  for (ScoreRecord& r : rows) r.simulated = 50;  // equal for all models, so that no mean over them changes
  const JointFit fit(rows, components);
  const std::size_t places[] = {2, 3};
  const std::vector<Estimate> left_out = fit.leave_out(places);
  std::vector<ScoreRecord> others = fit.records();
  others.erase(others.begin() + 2, others.begin() + 4);
  const Estimator without(others, components);
  for (std::size_t i = 0; i < 2; ++i) {
    const Estimate direct = without.estimate(rows[places[i]]);
    CHECK(left_out[i].mean == Approx(direct.mean).epsilon(1e-6));
    CHECK(left_out[i].deviation == Approx(direct.deviation).epsilon(1e-6));
  }
}

TEST_CASE("an outlier gets more noise than its neighbours and has less influence") {
  std::vector<ScoreRecord> rows;
  for (int i = 0; i < 8; ++i) rows.push_back(row("a", "quest", 1024, 50, 52));
  rows.push_back(row("a", "quest", 1024, 50, 5));
  const JointFit fit(rows, only(Level::kMethod, .04, .001));
  CHECK(fit.records().back().noise > 5 * fit.records().front().noise);
  const Estimator estimator(fit.records(), only(Level::kMethod, .04, .001));
  CHECK(estimator.estimate(rows[0]).mean == Approx(51.9).margin(.5));
}

TEST_CASE("a prediction from the most similar rows agrees with that from all rows") {
  // There are more rows than an estimate uses.
  std::vector<ScoreRecord> rows;
  for (int i = 0; i < 480; ++i) {
    ScoreRecord r = row("a", i % 3 == 0 ? "quest" : "tova", 128 * (1 + i % 30), 20 + i % 60, 25 + (7 * i) % 55);
    r.task = std::string(i % 2 == 0 ? "single1" : "multikey2");
    rows.push_back(r);
  }
  Components c;
  c.variance.fill(.01), c.scale.fill(1), c.noise.fill(.008);
  const JointFit fit(rows, c);
  const Estimator estimator(fit.records(), c);
  for (const std::size_t i : {3u, 200u, 479u}) {
    // Predicts from all other rows, once with the whole matrix and once with only the most similar rows.
    const std::size_t place[] = {i};
    std::vector<ScoreRecord> others = fit.records();
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const Estimate direct = Estimator(others, c).estimate(rows[i]);
    CHECK(direct.mean == Approx(fit.leave_out(place)[0].mean).margin(.5));
  }
}

TEST_CASE("a lookup takes the nearest budget, preferably of the same model") {
  const std::vector<ScoreRecord> rows{row("a", "quest", 256, 0, 40), row("a", "quest", 1024, 0, 80),
                                      row("b", "quest", 512, 0, 60), row("b", "tova", 512, 0, 10)};
  const auto nothing = [](const ScoreRecord&) { return false; };
  ScoredTask s = row("a", "quest", 600, 0, 0);
  CHECK(look_up(rows, s, nothing) == Approx(80));  // 600 is nearer to 1024 than to 256 in ratio
  s.full = 50;
  CHECK(look_up(rows, s, nothing) == Approx(40));  // the share, of another full score
  s.model = std::string("c");
  CHECK(look_up(rows, s, nothing) == Approx(30));  // any model: 512
  s.method = std::string("h2o");
  CHECK(look_up(rows, s, nothing) == Approx(17.5));  // any method: the mean of 60 and 10 at 512
  s.task = std::string("qa1");
  CHECK(look_up(rows, s, nothing) == 50);  // the full score
  s = row("a", "quest", 600, 0, 0);
  CHECK(look_up(rows, s, [](const ScoreRecord& r) { return r.model == "a"; }) == Approx(60));
}

TEST_CASE("simulations of other models for the same method and task have the weight of the setting's own") {
  // Model a's row at half of the budget is e⁻¹ᐟ² · e⁻²: below the least weight of 0.3; at nine tenths it counts.
  const auto pooled = [](double budget, const char* method, const char* paper = "") {
    ScoreRecord other = row("a", method, budget, 80, 0);
    if (*paper != '\0') other.paper = paper;
    const ScoredTask s = row("b", "quest", 1024, 20, 0);
    Covariance kernel(only(Level::kMethod, .04, .008), "ruler");
    const ScoreRecord* const records[] = {&other};
    const SettingPoint points[] = {kernel.point(other)};
    return pooled_angle(s, kernel.point(s), records, points, [](std::size_t) { return true; });
  };
  CHECK(pooled(922, "quest") == Approx((angle(80) + angle(20)) / 2));
  CHECK(pooled(512, "quest") == Approx(angle(20)));
  CHECK(pooled(1024, "tova") == Approx(angle(20)));
  CHECK(pooled(922, "quest", "another paper's settings") == Approx(angle(20)));
}

TEST_CASE("pooling ignores rows of the setting's own model and counts each other model once") {
  const ScoreRecord rows[] = {row("a", "quest", 1024, 80, 0), row("a", "quest", 1024, 60, 0),
                              row("b", "quest", 1024, 90, 0), row("c", "quest", 1024, 70, 0)};
  const ScoredTask s = row("b", "quest", 1024, 20, 0);
  Covariance kernel(only(Level::kMethod, .04, .008), "ruler");
  std::vector<const ScoreRecord*> records;
  std::vector<SettingPoint> points;
  for (const ScoreRecord& r : rows) records.push_back(&r), points.push_back(kernel.point(r));
  const auto seen = [](std::size_t place) { return place != 3; };
  CHECK(pooled_angle(s, kernel.point(s), records, points, seen) ==
        Approx(((angle(80) + angle(60)) / 2 + angle(20)) / 2));
}

TEST_CASE("errors vanish for budgets that cover the prompt") {
  // The row's residual is e. A budget of half of the prompt has 3/4 of the deviation, one of the whole prompt none.
  std::vector<ScoreRecord> rows{row("a", "quest", 8192, 50, 70)};
  rows[0].noise = .01;
  const Estimator estimator(rows, only(Level::kMethod, .04, .008));
  const double v = .04 * 9 / 16;
  CHECK(estimator.estimate(row("b", "quest", 8192, 50, 0)).mean ==
        Approx(to_points(angle(50) + v / (v + .01) * (angle(70) - angle(50)), 100)));
  CHECK(estimator.estimate(row("b", "quest", 16384, 50, 0)).mean == Approx(50));
  CHECK(estimator.estimate(row("b", "quest", 30000, 50, 0)).mean == Approx(50));
}

TEST_CASE("the objective of components is the mean error in points") {
  const ScoreRecord a = row("a", "quest", 1024, 30, 60), b = row("b", "quest", 1024, 60, 60);
  const LeftOutScore near{&a, {50, .1}, 90, "a"}, far{&b, {20, .1}, 30, "b"};
  CHECK(log_error({near, far}) == Approx(std::log((10 + 40) / 2.)));
}

TEST_CASE("longer prompts of a model are left out together, the shortest never") {
  std::vector<ScoreRecord> rows;
  for (const double tokens : {8192., 9000., 16384., 32768.}) {
    rows.push_back(row("a", "quest", 1024, 50, 60));
    rows.back().context = tokens;
  }
  rows.push_back(row("b", "quest", 1024, 50, 60));
  const JointFit fit(rows, only(Level::kMethod, .04, .008));
  const std::vector<LeftOutScore> left_out = leave_out(fit, Novelty::kLength);
  REQUIRE(left_out.size() == 2);
  // The prediction for 32768 leaves out only 32768; that for 16384 leaves out both. 9000 is less than a quarter longer
  // than the shortest.
  for (const std::size_t i : {0u, 1u}) {
    CHECK(left_out[i].record->context == (i == 0 ? 16384 : 32768));
    std::vector<std::size_t> places{2, 3};
    if (i == 1) places.erase(places.begin());
    CHECK(left_out[i].estimate.mean == Approx(fit.leave_out(places)[0].mean));
  }
}

TEST_CASE("a fit with known noise reproduces the fit that estimated it") {
  std::vector<ScoreRecord> rows;
  for (int i = 0; i < 300; ++i) rows.push_back(row("a", i % 2 == 0 ? "quest" : "tova", 256 * (1 + i % 7), 50, i % 90));
  const Components c = only(Level::kMethod, .04, .008);
  const JointFit fit(rows, c), again(fit.records(), c, JointFit::Noise::kOfRecords);
  const std::size_t places[] = {0, 130, 299};
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(again.leave_out(places)[i].mean == Approx(fit.leave_out(places)[i].mean));
    CHECK(again.leave_out(places)[i].deviation == Approx(fit.leave_out(places)[i].deviation));
  }
}

TEST_CASE("a prediction states its basis and its novelty") {
  const std::vector<ScoreRecord> rows{row("a", "quest", 256, 30, 40), row("a", "quest", 1024, 70, 80),
                                      row("b", "tova", 512, 20, 10)};
  Parameters parameters;
  parameters.components = only(Level::kMethod, .04, .008);
  for (auto& of_novelty : parameters.spread) {
    for (auto& of_family : of_novelty) of_family = {2, 1.28};
  }
  parameters.common[static_cast<std::size_t>(Novelty::kMethod)].fill(.5);
  const Predictor predictor(rows, parameters);
  ScoredTask s = row("a", "quest", 512, 50, 0);
  const auto own = [](const std::string& paper) { return paper == "P"; };
  CHECK(predictor.novelty(s) == Novelty::kTable);
  CHECK(predictor.origin(s, own) ==
        "published scores in P 1 (a, budgets of 256 to 1024 tokens, prompts of 16384 tokens); the difference is "
        "simulated");
  CHECK(predictor.origin(s, [](const std::string&) { return false; }) ==
        "published scores at other settings of the policy, which count less, in P 1 (a, budgets of 256 to 1024 tokens, "
        "prompts "
        "of 16384 tokens); the difference is simulated");
  CHECK(predictor.predict(s).points == Approx(Estimator(rows, parameters.components).estimate(s).mean));
  s.context = 20480;
  CHECK(predictor.novelty(s) == Novelty::kLength);  // a quarter longer
  s.context = 16384, s.model = std::string("c");
  CHECK(predictor.novelty(s) == Novelty::kModel);
  CHECK(predictor.origin(s, own).starts_with("published scores of other models in P 1 (a, "));
  s.method = std::string("h2o");
  CHECK(predictor.novelty(s) == Novelty::kMethod);
  CHECK(predictor.origin(s, own).starts_with("the simulation alone: "));
  const Prediction p = predictor.predict(s);
  // 1.28 deviations of √(.04 · (1 − 1/32²)² + n) about 50 points.
  const double loss = 1 - 1 / 1024.0, half = 1.28 * std::sqrt(.04 * loss * loss + .008 * 1.01);
  CHECK(p.low == Approx(to_points(angle(50) - half, 100)));
  CHECK(p.high == Approx(to_points(angle(50) + half, 100)));
  CHECK(p.common == .5);
  s.benchmark = std::string("niah");
  CHECK_FALSE(predictor.novelty(s).has_value());
  CHECK(predictor.predict(s).points == Approx(50));
  CHECK(predictor.predict(s).common == .5);  // a new benchmark has the intervals of a new method
  s.simulated = 95;                          // of 100: 2 deviations instead of 1.28
  const double wide = 2 * Estimator(rows, parameters.components).estimate(s).deviation;
  CHECK(predictor.predict(s).low == Approx(to_points(angle(95) - wide, 100)));
}

TEST_CASE("a run is treated like the paper whose row is nearest") {
  std::vector<ScoreRecord> rows{row("a", "quest", 256, 30, 40), row("a", "quest", 1024, 70, 80),
                                row("b", "quest", 512, 20, 10), row("a", "quest", 1024, 70, 60)};
  rows[1].paper = std::string("Mine"), rows[2].paper = std::string("Other"), rows[3].paper = std::string("Settings");
  const Predictor predictor(rows, {});
  const std::set<std::string> all{"P", "Mine", "Other"};
  ScoredTask s = row("a", "quest", 1024, 50, 0);
  CHECK(predictor.nearest_paper(s, all) == "Mine");
  s.budget = 300;
  CHECK(predictor.nearest_paper(s, all) == "P");
  s.budget = 512;  // equally far from 256 and 1024: the row of a paper other than the setting's own
  CHECK(predictor.nearest_paper(s, all) == "Mine");
  s.model = std::string("b");
  CHECK(predictor.nearest_paper(s, all) == "Other");
  CHECK(predictor.nearest_paper(s, {"none"}) == "P");
  s.method = std::string("tova");
  CHECK(predictor.nearest_paper(s, all) == "P");
  // Rows without a paper are listed by their table only.
  rows[0].paper.clear();
  CHECK_THAT(Predictor({rows[0]}, {}).origin(rows[0], [](const std::string&) { return true; }),
             Catch::Contains("published scores in 1 (a, "));
}

}  // namespace

}  // namespace kvcast::tests
