// Parameters bound to members of a struct of settings: one statement declares, documents and reads a parameter.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "policy/group.hpp"
#include "policy/parameters.hpp"

namespace kvcast::policy {

// An integer, a real number, and a choice among texts, whose default is the first one.
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
// An integer whose default is a word.
inline Parameter whole_or(std::string key, std::string word, std::string unit, std::string meaning, double low,
                          double high) {
  return {.key = std::move(key),
          .fallback = word,
          .unit = std::move(unit),
          .meaning = std::move(meaning),
          .low = low,
          .high = high,
          .names = {word, "<integer>"}};
}
inline Parameter real_or(std::string key, std::string word, std::string meaning, double low, double high) {
  return {.key = std::move(key),
          .fallback = word,
          .unit = "",
          .meaning = std::move(meaning),
          .low = low,
          .high = high,
          .names = {word, "<number>"}};
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
  // Binds a parameter to a member by the member's type. A choice becomes false for its first name and true otherwise
  // (bool), the Group of that name, the enumerator at the same index as the name, or a text. A text in place of an
  // integer ("prompt") becomes 0, and in place of an optional number nothing.
  template <typename T, typename Base>
  Fields& add(Parameter p, T Base::*member) {
    return bind(std::move(p), [member](S& s) -> T& { return s.*member; });
  }
  // Binds a parameter to a member of a struct inside the settings.
  template <typename T, typename Inner, typename Base>
  Fields& add(Parameter p, Inner Base::*inner, T Inner::*member) {
    return bind(std::move(p), [inner, member](S& s) -> T& { return s.*inner.*member; });
  }

  // Binds a choice whose names represent these values, in order.
  template <typename T, typename Base>
  Fields& add(Parameter p, T Base::*member, std::vector<T> meanings) {
    readers_.push_back([key = p.key, names = p.names, member, meanings](const ParameterValues& values, S& s) {
      const auto found = std::find(names.begin(), names.end(), values.text(key));
      s.*member = meanings.at(static_cast<std::size_t>(found - names.begin()));
    });
    return add(std::move(p));
  }

  // Adds all parameters of another list.
  Fields& add(const Fields& other) {
    readers_.insert(readers_.end(), other.readers_.begin(), other.readers_.end());
    return add(other.parameters_);
  }
  // Adds the parameters of a struct that is a member of these settings.
  template <typename Inner, typename Base>
  Fields& add(const Fields<Inner>& part, Inner Base::*inner) {
    readers_.push_back(
        [part, inner](const ParameterValues& values, S& s) { s.*inner = part.read(values, std::move(s.*inner)); });
    return add(part.parameters());
  }

  // Declares parameters that are read elsewhere.
  Fields& add(Parameter p) {
    parameters_.push_back(std::move(p));
    return *this;
  }
  Fields& add(const std::vector<Parameter>& list) {
    parameters_.insert(parameters_.end(), list.begin(), list.end());
    return *this;
  }

  const std::vector<Parameter>& parameters() const { return parameters_; }
  S read(const ParameterValues& values) const { return read(values, S()); }
  // Reads the parameters into settings that may already have other values.
  S read(const ParameterValues& values, S s) const {
    for (const auto& reader : readers_) reader(values, s);
    return s;
  }

 private:
  template <typename Access>
  Fields& bind(Parameter p, Access access) {
    readers_.push_back([key = p.key, names = p.names, access](const ParameterValues& values, S& s) {
      auto& to = access(s);
      using T = std::remove_reference_t<decltype(to)>;
      if constexpr (std::is_same_v<T, bool>) {
        to = names.empty() ? values.flag(key) : values.text(key) != names.front();
      } else if constexpr (std::is_same_v<T, Group>) {
        to = parse_group(values.text(key));
      } else if constexpr (std::is_enum_v<T>) {
        to = static_cast<T>(std::find(names.begin(), names.end(), values.text(key)) - names.begin());
      } else if constexpr (std::is_integral_v<T>) {
        to = values.is_text(key) ? 0 : static_cast<T>(values.integer(key));
      } else if constexpr (std::is_floating_point_v<T>) {
        to = values.number(key);
      } else if constexpr (std::is_same_v<T, std::optional<std::int64_t>>) {
        to = values.is_text(key) ? std::nullopt : T(values.integer(key));
      } else if constexpr (std::is_same_v<T, std::optional<double>>) {
        to = values.is_text(key) ? std::nullopt : T(values.number(key));
      } else {
        to = values.text(key);
      }
    });
    return add(std::move(p));
  }

  std::vector<Parameter> parameters_;
  std::vector<std::function<void(const ParameterValues&, S&)>> readers_;
};

}  // namespace kvcast::policy
