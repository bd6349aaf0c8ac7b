#include "policy/parameters.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "config/find.hpp"
#include "config/section.hpp"
#include "config/text.hpp"
#include "policy/profile.hpp"

namespace kvcast::policy {
namespace {

// Reads a text or a number: a number if the text can be read as one, otherwise one of the names.
ParameterValue read_text_or_number(const Parameter& p, const config::Node& node) {
  if (p.accepts("<policy>") && node.kind() == config::Node::Kind::kMap) return node.canonical();
  const std::string text = config::read_text(node, p.key);
  if (p.accepts(text) && text.front() != '<') return text;
  const bool is_file = p.accepts("<path>") && p.key != kProfileKey;  // profiles have names, which are looked up
  if (is_file && node.where().from_request) config::refuse_request_for_file(node.where());
  if (p.accepts("<path>") || p.accepts("<policy>")) return text;
  const bool numeric = !node.quoted() && text.find_first_of("0123456789") != std::string::npos;
  if (numeric && p.accepts("<integer>")) {
    return config::read_integer(node, p.key, static_cast<std::int64_t>(p.low), static_cast<std::int64_t>(p.high));
  }
  if (numeric && p.accepts("<number>")) return config::read_number(node, p.key, p.low, p.high);
  throw UserError(node.where(), fmt::format("{}: unknown value \"{}\"", p.key, text), p.names);
}

ParameterValue read(const Parameter& p, const config::Node& node) {
  if (std::holds_alternative<std::int64_t>(p.fallback)) {
    return config::read_integer(node, p.key, static_cast<std::int64_t>(p.low), static_cast<std::int64_t>(p.high));
  }
  if (std::holds_alternative<double>(p.fallback)) return config::read_number(node, p.key, p.low, p.high);
  if (std::holds_alternative<bool>(p.fallback)) return config::read_flag(node, p.key);
  return read_text_or_number(p, node);
}

}  // namespace

bool Parameter::accepts(std::string_view name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

ParameterValues::ParameterValues(const std::vector<Parameter>& declared, const config::Node& given,
                                 const std::string& policy)
    : where_(given.where()), policy_(policy) {
  for (const Parameter& p : declared) values_[p.key] = p.fallback;
  if (given.kind() == config::Node::Kind::kNull) return;
  if (given.kind() != config::Node::Kind::kMap) {
    throw UserError(given.where(), "the parameters of a policy: expected a map of keys to values");
  }
  for (const auto& [key, node] : given.entries()) {
    const auto found = std::find_if(declared.begin(), declared.end(), [&](const Parameter& p) { return p.key == key; });
    if (found == declared.end()) {
      std::vector<std::string> known;
      for (const Parameter& p : declared) known.push_back(p.key);
      throw UnknownParameter(node.where(),
                             fmt::format("{}{}unknown policy parameter \"{}\"{}", policy, policy.empty() ? "" : ": ",
                                         key, config::did_you_mean(key, known)),
                             known);
    }
    values_[key] = read(*found, node);
    given_[key] = node;
  }
}

const ParameterValue& ParameterValues::at(const std::string& key) const {
  const auto found = values_.find(key);
  KVCAST_CHECK(found != values_.end());
  return found->second;
}

std::int64_t ParameterValues::integer(const std::string& key) const { return std::get<std::int64_t>(at(key)); }

double ParameterValues::number(const std::string& key) const {
  const ParameterValue& value = at(key);
  if (const auto* n = std::get_if<std::int64_t>(&value)) return static_cast<double>(*n);
  return std::get<double>(value);
}

bool ParameterValues::flag(const std::string& key) const { return std::get<bool>(at(key)); }

const std::string& ParameterValues::text(const std::string& key) const { return std::get<std::string>(at(key)); }

bool ParameterValues::is_text(const std::string& key) const { return std::holds_alternative<std::string>(at(key)); }

bool ParameterValues::given(const std::string& key) const { return given_.contains(key); }

config::Node ParameterValues::node(const std::string& key) const {
  const auto found = given_.find(key);
  return found == given_.end() ? config::Node::scalar(text(key), {}) : found->second;
}

ParameterValues ParameterValues::with(const std::string& key, std::int64_t value) const {
  ParameterValues changed = *this;
  KVCAST_CHECK(std::holds_alternative<std::int64_t>(at(key)));
  changed.values_[key] = value;
  return changed;
}

SourceLocation ParameterValues::where(const std::string& key) const {
  const auto found = given_.find(key);
  return found == given_.end() ? where_ : found->second.where();
}

}  // namespace kvcast::policy
