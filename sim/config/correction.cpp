#include "config/correction.hpp"

#include <fmt/format.h>

#include "config/section.hpp"
#include "config/text.hpp"

namespace kvcast::config {
namespace {

constexpr double kMostOnAxis = 1e9;              // of an axis
constexpr double kLowest = -99, kHighest = 900;  // per cent

std::vector<double> read_axis(Section& section, const char* key) {
  std::vector<double> axis = section.numbers(key, 1e-3, kMostOnAxis);
  if (axis.empty()) throw UserError(section.where(key), fmt::format("{}: at least one number is needed", key));
  for (std::size_t i = 1; i < axis.size(); ++i) {
    if (axis[i] <= axis[i - 1]) throw UserError(section.where(key), fmt::format("{}: must ascend", key));
  }
  return axis;
}

const std::vector<Node>& list_of(const Node& node, std::size_t size, const char* axis) {
  if (node.kind() != Node::Kind::kList || node.items().size() != size) {
    throw UserError(node.where(), fmt::format("percent: expected a list of {} here, one for each of `{}`", size, axis));
  }
  return node.items();
}

}  // namespace

AttentionCorrection read_attention_correction(Section& section) {
  AttentionCorrection read;
  read.rows = read_axis(section, "rows");
  read.tokens = read_axis(section, "tokens");
  read.groups = read_axis(section, "groups");
  for (const Node& group : list_of(section.node("percent"), read.groups.size(), "groups")) {
    for (const Node& row : list_of(group, read.rows.size(), "rows")) {
      for (const Node& cell : list_of(row, read.tokens.size(), "tokens")) {
        read.excess.push_back(read_number(cell, "percent", kLowest, kHighest) / 100);
      }
    }
  }
  read.repeated = section.flag("repeated");
  read.source = section.text("source");
  section.finish();
  return read;
}

std::string canonical(const AttentionCorrection& correction) {
  std::string text = fmt::format("gpu.attention_correction {} {}\n", correction.repeated, correction.source);
  for (const auto* numbers : {&correction.rows, &correction.tokens, &correction.groups, &correction.excess}) {
    for (const double number : *numbers) put_bits(text, number);
    text += '\n';
  }
  return text;
}

}  // namespace kvcast::config
