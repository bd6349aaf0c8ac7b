// Parameters bound to members of a struct of settings: one statement declares, documents and reads a parameter.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "policy/group.hpp"
#include "policy/parameters.hpp"

namespace kvcast::policy {

// An integer, a real number, and a choice among texts, whose default is the first one.
Parameter whole(std::string_view key, std::int64_t fallback, std::string_view unit, std::string_view meaning,
                double low = 0, double high = 1e9);
Parameter real(std::string_view key, double fallback, std::string_view meaning, double low = 0, double high = 1);
// An integer and a real number whose default is a word.
Parameter whole_or(std::string_view key, std::string_view word, std::string_view unit, std::string_view meaning,
                   double low, double high);
Parameter real_or(std::string_view key, std::string_view word, std::string_view meaning, double low, double high);
Parameter flag(std::string_view key, bool fallback, std::string_view meaning);
Parameter choice(std::string_view key, std::initializer_list<std::string_view> names, std::string_view meaning);
Parameter choice(std::string_view key, const std::vector<std::string>& names, std::string_view meaning);

// Assign a parameter's value. A choice becomes false for its first name and true otherwise (bool), the Group of that
// name, or a text. A text in place of an integer ("prompt") becomes 0, and in place of an optional number nothing.
void assign(const ParameterValues& values, const Parameter& parameter, bool& to);
void assign(const ParameterValues& values, const Parameter& parameter, Group& to);
void assign(const ParameterValues& values, const Parameter& parameter, std::int64_t& to);
void assign(const ParameterValues& values, const Parameter& parameter, double& to);
void assign(const ParameterValues& values, const Parameter& parameter, std::optional<std::int64_t>& to);
void assign(const ParameterValues& values, const Parameter& parameter, std::optional<double>& to);
void assign(const ParameterValues& values, const Parameter& parameter, std::string& to);
// Returns the index of a choice's value among its names.
std::size_t index_of_choice(const ParameterValues& values, const Parameter& parameter);

template <typename S>
class Fields {
 public:
  // Binds a parameter to a member by the member's type, as assign() does; an enumeration becomes the enumerator at the
  // index of the name.
  template <typename T, typename Base>
  Fields& add(Parameter p, T Base::*member) {
    return bind(std::move(p), [member](const ParameterValues& values, const Parameter& parameter, S& s) {
      read_into(values, parameter, s.*member);
    });
  }
  // Binds a parameter to a member of a struct inside the settings.
  template <typename T, typename Inner, typename Base>
  Fields& add(Parameter p, Inner Base::*inner, T Inner::*member) {
    return bind(std::move(p), [inner, member](const ParameterValues& values, const Parameter& parameter, S& s) {
      read_into(values, parameter, s.*inner.*member);
    });
  }

  // Binds a choice whose names represent these values, in order.
  template <typename T, typename Base>
  Fields& add(Parameter p, T Base::*member, std::vector<T> meanings) {
    return bind(std::move(p), [member, meanings](const ParameterValues& values, const Parameter& parameter, S& s) {
      s.*member = meanings.at(index_of_choice(values, parameter));
    });
  }

  // Adds all parameters of another list.
  Fields& add(const Fields& other) {
    readers_.insert(readers_.end(), other.readers_.begin(), other.readers_.end());
    return add(other.parameters_);
  }
  // Adds the parameters of a struct that is a member of these settings.
  template <typename Inner, typename Base>
  Fields& add(const Fields<Inner>& part, Inner Base::*inner) {
    readers_.push_back({{}, [part, inner](const ParameterValues& values, const Parameter&, S& s) {
                          s.*inner = part.read(values, std::move(s.*inner));
                        }});
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
    for (const auto& [parameter, read] : readers_) read(values, parameter, s);
    return s;
  }

 private:
  using Read = std::function<void(const ParameterValues&, const Parameter&, S&)>;

  template <typename T>
  static void read_into(const ParameterValues& values, const Parameter& parameter, T& to) {
    if constexpr (std::is_enum_v<T> && !std::is_same_v<T, Group>) {
      to = static_cast<T>(index_of_choice(values, parameter));
    } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      std::int64_t whole = 0;
      assign(values, parameter, whole);
      to = static_cast<T>(whole);
    } else {
      assign(values, parameter, to);
    }
  }

  Fields& bind(Parameter p, Read read) {
    readers_.emplace_back(p, std::move(read));
    return add(std::move(p));
  }

  std::vector<Parameter> parameters_;
  std::vector<std::pair<Parameter, Read>> readers_;  // the parameter is empty for those of a part
};

}  // namespace kvcast::policy
