// The experiments that a page of a large sweep shows.
#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "base/error.hpp"
#include "report/content.hpp"
#include "report/stores.hpp"
#include "support/small_result.hpp"
#include "support/temporary_directory.hpp"

namespace kvcast::tests {

using Catch::Matchers::Contains;
using report::part_of;
using report::ReportPart;
using store::Store;
using Where = std::vector<std::pair<std::string, std::string>>;

namespace {

// Two policies × `batches` × `links` × `machines`; the first link is the machine's own, which is no setting.
std::string grid(const TemporaryDirectory& dir, int batches, int links, int machines) {
  Store store = Store::open(dir.path(), Store::Open::kCreate);
  int number = 0;
  for (int m = 0; m < machines; ++m) {
    for (int l = 0; l < links; ++l) {
      for (int b = 0; b < batches; ++b) {
        for (const char* policy : {"full", "quest"}) {
          result::Result r = small_result();
          r.key = fmt::format("{:05}", number);
          r.subject.policy = policy, r.subject.hardware = fmt::format("m{}", m);
          r.subject.settings = {{"hardware", r.subject.hardware},
                                {"policy.name", r.subject.policy},
                                {"workload.batch", std::int64_t{b + 1}}};
          if (l > 0) {
            r.subject.settings.insert(r.subject.settings.begin() + 1,
                                      {"hardware.link.pcie.lanes", std::int64_t{1 << l}});
          }
          r.status = number == 3 ? result::Status::kFailed : result::Status::kOk;
          store.put(number++, r, "v1");
        }
      }
    }
  }
  return dir.path();
}

}  // namespace

TEST_CASE("settings of all rows are read in order, and the keys that any row sets") {
  const TemporaryDirectory dir;
  const Store store = Store::open(grid(dir, 2, 2, 1), Store::Open::kExisting);
  const store::Settings settings = store.settings();
  CHECK(settings.keys() ==
        std::vector<std::string>{"hardware", "hardware.link.pcie.lanes", "policy.name", "workload.batch"});
  CHECK(settings.rows ==
        std::vector<std::string>{"00000", "00001", "00002", "00003", "00004", "00005", "00006", "00007"});
  // Two links, the first of which is not set, of two batches of two policies each.
  const store::Settings::Column &links = settings.columns[1], &batches = settings.columns[3];
  CHECK(links.values == std::vector<std::string>{"", "2"});
  CHECK(links.cells == std::vector<std::uint32_t>{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(batches.values == std::vector<std::string>{"1", "2"});
  CHECK(batches.cells == std::vector<std::uint32_t>{0, 0, 1, 1, 0, 0, 1, 1});
  CHECK(settings.columns[0].values == std::vector<std::string>{"m0"});
}

TEST_CASE("a page shows a sweep whole up to the limit, then one value of the settings that distinguish series first") {
  const TemporaryDirectory dir;
  // 2 policies · 3 batches · 4 links · 5 machines = 120 experiments.
  const Store store = Store::open(grid(dir, 3, 4, 5), Store::Open::kExisting);
  CHECK(part_of(store, {}, 120).is_all());
  // One of the 4 links leaves 30. The page has a filter for machines and batches, but not for links.
  const ReportPart links = part_of(store, {}, 119);
  CHECK(links.where == Where{{"hardware.link.pcie.lanes", ""}});
  CHECK(links.keys.size() == 30);
  CHECK(links.of == 120);
  CHECK(links.values.at("hardware.link.pcie.lanes") == std::vector<std::string>{"", "2", "4", "8"});
  CHECK(links.shows("00005"));        // the first machine and link, batch 3
  CHECK_FALSE(links.shows("00006"));  // the second link
  // At most 10: of the filters, either batch (3 values: 10 left) or machine (5 values: 6 left) does; fewer pages are
  // better.
  CHECK(part_of(store, {}, 10).where == Where{{"hardware.link.pcie.lanes", ""}, {"workload.batch", "1"}});
  // Policies are what a page compares: 2 experiments are left however low the limit.
  CHECK(part_of(store, {}, 1).keys.size() == 2);
}

TEST_CASE("a page shows the experiments that the user names") {
  const TemporaryDirectory dir;
  const Store store = Store::open(grid(dir, 3, 4, 5), Store::Open::kExisting);
  const ReportPart part = part_of(store, {{"hardware", "m4"}, {"workload.batch", "2"}}, 5);
  CHECK(part.keys.size() == 8);  // 2 policies · 4 links, over the limit as asked for
  // `policy: quest` of a run is short for `policy: {name: quest}`.
  CHECK(part_of(store, {{"policy", "quest"}}).where == Where{{"policy.name", "quest"}});
  CHECK(part_of(store, {{"policy", "quest"}}).keys == part_of(store, {{"policy.name", "quest"}}).keys);
  CHECK_THROWS_WITH(part_of(store, {{"hardware", "m7"}}), Contains("--where hardware=m7") && Contains("m0, m1"));
  CHECK_THROWS_WITH(part_of(store, {{"hardwar", "m1"}}), Contains("--where hardwar=m1") && Contains("workload.batch"));
  CHECK_THROWS_WITH(part_of(store, {{"hardware", "m1"}, {"hardware", "m2"}}), Contains("no experiment"));
  CHECK(report::parse_where({"a.b=c=d", "e="}) == Where{{"a.b", "c=d"}, {"e", ""}});
  CHECK_THROWS_AS(report::parse_where({"hardware"}), UserError);
  CHECK_THROWS_AS(report::parse_where({"=1"}), UserError);
}

TEST_CASE("a page in part has its own counts and says of what it is a part") {
  const TemporaryDirectory dir;
  const report::Stores stores({grid(dir, 3, 4, 5)}, {"hardware=m0"});
  const report::Content content = report::collect(stores.sources(), report::Palette(nlohmann::json::object()));
  CHECK(content.experiments.rows() == 24);
  CHECK(content.sweep.at("counts").at("ok") == 23);
  CHECK(content.sweep.at("counts").at("failed") == 1);
  CHECK(content.sweep.at("part").at("of") == 120);
  CHECK(content.sweep.at("part").at("values").at("hardware").size() == 5);
}

}  // namespace kvcast::tests
