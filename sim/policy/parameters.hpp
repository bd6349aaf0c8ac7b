// Parameters of a policy: declared once with type, default, unit, range and meaning; read strictly; printed by `kvcast
// policies`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "config/yaml.hpp"

namespace kvcast::policy {

using ParameterValue = std::variant<std::int64_t, double, bool, std::string>;

struct Parameter {
  std::string key;
  ParameterValue fallback;
  std::string unit;  // tokens, pages, queries, "" ...
  std::string meaning;
  double low = 0, high = 1e12;  // for numbers
  // For texts: the accepted values. A text that may also be a number lists "<number>" or "<integer>". With "<path>" any
  // text is accepted; with "<policy>", a policy: a name, a file, or a map of one of them and parameters.
  std::vector<std::string> names = {};

  bool accepts(std::string_view name) const;  // whether `names` contains it
};

// A policy has no parameter of this name.
struct UnknownParameter : UserError {
  using UserError::UserError;
};

struct Profile;     // policy/profile.hpp
struct Descriptor;  // policy/policy.hpp

class ParameterValues {
 public:
  // Defaults, overridden by a map. Throws UserError (location, known keys, range) for anything undeclared.
  // `policy` is its name, for messages.
  ParameterValues(const std::vector<Parameter>& declared, const config::Node& given, const std::string& policy = "");
  // The parameters of a policy, and the common ones (common_parameters.hpp) that it does not declare. The latter accept
  // a single value and are not part of the values.
  ParameterValues(const Descriptor& policy, const config::Node& given);

  std::int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;  // accepts integers
  bool flag(const std::string& key) const;
  const std::string& text(const std::string& key) const;
  bool is_text(const std::string& key) const;  // for parameters that may also be a number
  // A parameter as written, or its default; for "<policy>".
  config::Node node(const std::string& key) const;
  bool given(const std::string& key) const;            // written by the user, not a default
  SourceLocation where(const std::string& key) const;  // of the value as written, otherwise of the whole map
  const std::map<std::string, ParameterValue>& all() const { return values_; }
  const std::string& policy() const { return policy_; }  // its name, for messages
  // The same with another value of a declared integer.
  ParameterValues with(const std::string& key, std::int64_t value) const;

  // Head profile to use instead of the file that the parameter `profile` names; null: read the file.
  void set_profile(std::shared_ptr<const Profile> profile) { profile_ = std::move(profile); }
  const std::shared_ptr<const Profile>& profile() const { return profile_; }

 private:
  const ParameterValue& at(const std::string& key) const;
  std::map<std::string, ParameterValue> values_;
  std::map<std::string, config::Node> given_;
  SourceLocation where_;
  std::string policy_;
  std::shared_ptr<const Profile> profile_;
};

}  // namespace kvcast::policy
