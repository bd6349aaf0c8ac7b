// The colours and symbols of the policies, in the palette that the pages use.
#include "report/palette.hpp"

#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <set>

#include "graph/owner.hpp"
#include "policies/all.hpp"
#include "policy/policy.hpp"

namespace kvcast::tests {

namespace {

using nlohmann::json;
using Color = std::array<double, 3>;

json definition() { return json::parse(std::ifstream(std::string(KVCAST_SOURCE_DIR) + "/reports/palette.json")); }

// Linear light, from "#rrggbb" (IEC 61966-2-1).
Color light_of(const std::string& text) {
  Color light{};
  for (std::size_t i = 0; i < 3; ++i) {
    const double c = std::stoi(text.substr(1 + 2 * i, 2), nullptr, 16) / 255.0;
    light[i] = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
  }
  return light;
}

Color times(const std::array<Color, 3>& matrix, const Color& v) {
  Color out{};
  for (std::size_t i = 0; i < 3; ++i) out[i] = matrix[i][0] * v[0] + matrix[i][1] * v[1] + matrix[i][2] * v[2];
  return out;
}

// Distance in Oklab (Ottosson 2020), where about 0.02 is the smallest visible difference.
double distance(const Color& a, const Color& b) {
  const auto lab = [](const Color& light) {
    Color cones = times({{{.4122214708, .5363325363, .0514459929},
                          {.2119034982, .6806995451, .1073969566},
                          {.0883024619, .2817188376, .6299787005}}},
                        light);
    for (double& c : cones) c = std::cbrt(std::max(c, 0.0));
    return times({{{.2104542553, .7936177850, -.0040720468},
                   {1.9779984951, -2.4285922050, .4505937099},
                   {.0259040371, .7827717662, -.8086757660}}},
                 cones);
  };
  const Color x = lab(a), y = lab(b);
  return std::hypot(x[0] - y[0], x[1] - y[1], x[2] - y[2]);
}

// The smallest distance for normal vision and for the two common deficiencies (Machado et al. 2009, severity 1).
double seen_distance(const std::string& a, const std::string& b) {
  static const std::array<Color, 3> protan = {
      {{.152286, 1.052583, -.204868}, {.114503, .786281, .099216}, {-.003882, -.048116, 1.051998}}};
  static const std::array<Color, 3> deutan = {
      {{.367322, .860646, -.227968}, {.280085, .672501, .047413}, {-.011820, .042940, .968881}}};
  const Color x = light_of(a), y = light_of(b);
  return std::min(
      {distance(x, y), distance(times(protan, x), times(protan, y)), distance(times(deutan, x), times(deutan, y))});
}

}  // namespace

TEST_CASE("every policy, and nothing else, has a colour and a symbol of its own") {
  std::set<std::string> known, given;
  for (const auto& policy : kvcast::policy::all_policies()) known.insert(policy.name);
  const json policies = definition().at("policies");
  for (const auto& [name, look] : policies.items()) given.insert(name);
  CHECK(given == known);
}

TEST_CASE("policies differ by colour, or by symbol where colours look similar with a colour-vision deficiency") {
  const json policies = definition().at("policies");
  for (const auto& [a, own] : policies.items()) {
    const Color light = light_of(own.at("color"));
    const double luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
    INFO(a);
    // Contrast of at least 3 (WCAG 1.4.11) with the backgrounds of both themes, #ffffff and #181b20 (luminance 0.0106).
    CHECK(1.05 / (luminance + 0.05) >= 3);
    CHECK((luminance + 0.05) / (0.0106 + 0.05) >= 2.95);
    for (const auto& [b, other] : policies.items()) {
      if (a >= b) continue;
      INFO(b);
      const double seen = seen_distance(own.at("color"), other.at("color"));
      CHECK(seen >= (own.at("symbol") == other.at("symbol") ? 0.05 : 0.03));
    }
  }
}

TEST_CASE("memory has a colour for each use, and no policy has it") {
  std::multiset<std::string> owners;
  const json palette = definition();
  const json& uses = palette.at("memory");
  for (const json& use : uses) {
    INFO(use.at("name"));
    for (const json& owner : use.at("owners")) owners.insert(owner.get<std::string>());
    const Color own = light_of(use.at("color"));
    for (const auto& [name, look] : palette.at("policies").items()) {
      INFO(name);
      // The last one is drawn as an outline.
      if (use != uses.back()) CHECK(distance(own, light_of(look.at("color"))) > 0.14);
    }
    for (const json& other : uses) {
      if (other != use) CHECK(distance(own, light_of(other.at("color"))) > 0.05);
    }
  }
  std::multiset<std::string> known = {"does not fit"};
  for (const std::string& owner : kvcast::graph::owner_names()) known.insert(owner);
  CHECK(owners == known);
}

TEST_CASE("a policy looks the same whatever was requested before it") {
  kvcast::report::Palette first(definition()), second(definition());
  for (const char* name : {"snapkv", "unknown", "full", "another"}) second.color("policies", name), second.symbol(name);
  CHECK(first.color("policies", "quest") == second.color("policies", "quest"));
  CHECK(first.symbol("quest") == second.symbol("quest"));
  CHECK(second.color("policies", "unknown") != second.color("policies", "another"));
}

}  // namespace kvcast::tests
