#include "policies/composition.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/run.hpp"
#include "policies/all.hpp"

namespace kvcast::policy {
namespace {

bool declares(const Descriptor& d, const char* key) {
  return std::any_of(d.parameters.begin(), d.parameters.end(), [&](const Parameter& p) { return p.key == key; });
}

// Detects files that name themselves, which would never end.
class Inside {
 public:
  explicit Inside(const config::PolicyChoice& choice) {
    if (++depth() <= 8) return;
    --depth();
    throw UserError(choice.where, fmt::format("policies are nested more than 8 deep: {} again", choice.name));
  }
  ~Inside() { --depth(); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  static int& depth() {
    thread_local int now = 0;
    return now;
  }
};

config::Node number(std::int64_t n) { return config::Node::scalar(std::to_string(n), {}); }

}  // namespace

Parameter policy_parameter(std::string key, std::string fallback, std::string meaning, std::vector<std::string> names) {
  names.emplace_back("<policy>");
  return {.key = std::move(key),
          .fallback = std::move(fallback),
          .unit = "",
          .meaning = std::move(meaning) + "; a name, a file, or a map of one and its parameters",
          .names = std::move(names)};
}

std::unique_ptr<Policy> read_policy(const ParameterValues& values, const std::string& key) {
  const config::PolicyChoice choice = config::read_policy(values.node(key));
  const Inside inside(choice);
  return make_policy(find_policy(choice), choice.parameters, values.profile());
}

Stages read_stages(const ParameterValues& values, const std::string& key, std::optional<std::int64_t> budget,
                   bool traffic) {
  const config::PolicyChoice choice = config::read_policy(values.node(key));
  const Inside inside(choice);
  const Descriptor& d = find_policy(choice);
  const auto refuse = [&](const std::string& why) {
    return UserError(choice.where, fmt::format("{}: {} {}", key, d.name, why));
  };
  if (!d.stages) {
    std::vector<std::string> known;
    for (const Descriptor& other : all_policies()) {
      if (other.stages) known.push_back(other.name);
    }
    throw UserError(choice.where, fmt::format("{}: {} does not consist of two stages", key, d.name), known);
  }
  config::Node parameters = choice.parameters;
  for (const char* const whole : {"first_dense_layers", "budget_grows"}) {
    if (parameters.find(whole) != nullptr) throw refuse(fmt::format("must not set {}: the outer policy does", whole));
  }
  if (budget) {
    // The budget of a file is replaced; one written here is rejected, as it would be lost silently.
    const config::Node written = values.node(key);
    for (const char* own : {"budget", "budget_convention"}) {
      if (written.kind() != config::Node::Kind::kMap || written.find(own) == nullptr) continue;
      throw refuse(fmt::format("must not set {}: the outer policy does", own));
    }
    if (!declares(d, "budget")) throw refuse("has no budget");
    parameters = parameters.with("budget", number(*budget));
    if (traffic && declares(d, "budget_convention")) {
      parameters = parameters.with("budget_convention", config::Node::scalar("traffic", {}));
    }
  }
  ParameterValues inner(d, parameters);
  inner.set_profile(values.profile());
  return d.stages(inner);
}

}  // namespace kvcast::policy
