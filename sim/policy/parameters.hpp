// The parameters of a policy: declared once with type, default, unit, range and meaning; read strictly; printed by
// `kvcast policies`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "config/yaml.hpp"

namespace kvcast::policy {

using ParameterValue = std::variant<std::int64_t, double, bool, std::string>;

struct Parameter {
  std::string key;
  ParameterValue fallback;
  std::string unit;  // tokens, pages, queries, "" ...
  std::string meaning;
  double low = 0, high = 1e12;  // for numbers
  // For texts: what is known. A text that may also be a number lists "<number>" or "<integer>"; with
  // "<path>", any text is one. With "<policy>", it is a policy: a name, a file, or a map of one of them and parameters.
  std::vector<std::string> names = {};
};

struct Profile;     // policy/profile.hpp
struct Descriptor;  // policy/policy.hpp

class ParameterValues {
 public:
  // Defaults, overridden by a map. UserError (place, known keys, range) for anything that is not declared.
  ParameterValues(const std::vector<Parameter>& declared, const config::Node& given);
  // A policy's own, and the common ones (shared_parameters.hpp) that it does not declare: these take their one value
  // and are not among the values then.
  ParameterValues(const Descriptor& policy, const config::Node& given);

  std::int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;  // an integer is one, too
  bool flag(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  bool is_text(const std::string& key) const;  // of those that may be a number
  // A parameter as it was written, or its default: for "<policy>".
  config::Node node(const std::string& key) const;
  bool given(const std::string& key) const;  // written by the user, not a default
  SourceLocation where(const std::string& key) const;
  const std::map<std::string, ParameterValue>& all() const { return values_; }

  // Scores of attention heads that stand in for the file which the parameter `profile` names; null: read the file.
  void set_profile(std::shared_ptr<const Profile> profile) { profile_ = std::move(profile); }
  const std::shared_ptr<const Profile>& profile() const { return profile_; }

 private:
  const ParameterValue& at(const std::string& key) const;
  std::map<std::string, ParameterValue> values_;
  std::map<std::string, config::Node> given_;
  std::shared_ptr<const Profile> profile_;
};

}  // namespace kvcast::policy
