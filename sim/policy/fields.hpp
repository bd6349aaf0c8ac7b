// Parameters bound to members of a struct of settings: each is declared, documented and read in one statement.
#pragma once

#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "policy/group.hpp"
#include "policy/parameters.hpp"

namespace kvcast::policy {

// A whole number, a real one, and a text of several; the default of a choice is its first name.
inline Parameter whole(std::string key, std::int64_t fallback, std::string unit, std::string meaning, double low = 0,
                       double high = 1e9) {
  return {.key = std::move(key),
          .fallback = fallback,
          .unit = std::move(unit),
          .meaning = std::move(meaning),
          .low = low,
          .high = high};
}
inline Parameter real(std::string key, double fallback, std::string meaning, double low = 0, double high = 1) {
  return {
      .key = std::move(key), .fallback = fallback, .unit = "", .meaning = std::move(meaning), .low = low, .high = high};
}
inline Parameter flag(std::string key, bool fallback, std::string meaning) {
  return {.key = std::move(key), .fallback = fallback, .unit = "", .meaning = std::move(meaning)};
}
inline Parameter choice(std::string key, std::vector<std::string> names, std::string meaning) {
  return {.key = std::move(key),
          .fallback = names.front(),
          .unit = "",
          .meaning = std::move(meaning),
          .names = std::move(names)};
}

template <typename S>
class Fields {
 public:
  // A choice is read as whether it is not its first name (bool), as the Group of that name, or as text; a text in place
  // of a whole number ("prompt") as 0.
  template <typename T, typename Base>
  Fields& add(Parameter p, T Base::*member) {
    readers_.push_back([key = p.key, first = p.names, member](const ParameterValues& values, S& s) {
      T& to = s.*member;
      if constexpr (std::is_same_v<T, bool>) {
        to = first.empty() ? values.flag(key) : values.text(key) != first.front();
      } else if constexpr (std::is_same_v<T, Group>) {
        to = parse_group(values.text(key));
      } else if constexpr (std::is_integral_v<T>) {
        to = values.is_text(key) ? 0 : static_cast<T>(values.integer(key));
      } else if constexpr (std::is_floating_point_v<T>) {
        to = values.number(key);
      } else {
        to = values.text(key);
      }
    });
    parameters_.push_back(std::move(p));
    return *this;
  }

  // One that is read elsewhere.
  Fields& add(Parameter p) {
    parameters_.push_back(std::move(p));
    return *this;
  }

  const std::vector<Parameter>& parameters() const { return parameters_; }
  S read(const ParameterValues& values) const {
    S s;
    for (const auto& reader : readers_) reader(values, s);
    return s;
  }

 private:
  std::vector<Parameter> parameters_;
  std::vector<std::function<void(const ParameterValues&, S&)>> readers_;
};

}  // namespace kvcast::policy
