#include "report/methods.hpp"

#include <fmt/format.h>

#include "base/build.hpp"
#include "policies/all.hpp"
#include "policy/policy.hpp"
#include "report/page.hpp"

namespace kvcast::report {
namespace {

using nlohmann::json;

std::string text_at(const json& map, const char* key) { return escape_html(map.at(key).get<std::string>()); }

std::string topic_html(const json& topic) {
  std::string rows;
  for (const json& a : topic.at("assumptions")) {
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n", text_at(a, "statement"),
                        text_at(a, "basis"), text_at(a, "source"), text_at(a, "moves"));
  }
  return fmt::format(
      "<section><h2>{}</h2>\n<div class=\"table-frame\"><table>\n<thead><tr><th scope=\"col\">Assumption</th><th "
      "scope=\"col\">Basis</th><th scope=\"col\">Source</th><th scope=\"col\">Affects</th></tr></thead>\n"
      "<tbody>\n{}</tbody></table></div></section>\n",
      text_at(topic, "title"), rows);
}

std::string list_html(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string items;
  for (const std::string& line : lines) items += fmt::format("<li>{}</li>", escape_html(line));
  return fmt::format("<h4>{}</h4><ul>{}</ul>\n", title, items);
}

std::string policy_html(const policy::Descriptor& d) {
  return fmt::format(
      "<details id=\"policy-{0}\"><summary>{0}: {1}</summary>\n<p>Source: {2}</p>\n<p>Budget: "
      "{3}</p>\n{4}{5}</details>\n",
      escape_html(d.name), escape_html(d.sentence), escape_html(d.paper), escape_html(d.budget_text()),
      list_html("Formulas", d.formulas), list_html("Differences from the paper", d.differences));
}

}  // namespace

void write_methods(const std::filesystem::path& folder, const Assets& assets, const std::set<std::string>& policies) {
  std::string body;
  for (const json& topic : assets.methods) body += topic_html(topic);
  std::string used;
  for (const policy::Descriptor& d : policy::all_policies()) {
    if (policies.contains(d.name)) used += policy_html(d);
  }
  if (!used.empty()) body += "<section><h2>The policies of this report</h2>\n" + used + "</section>\n";
  const std::string page = fill(
      assets.methods_page, {{"{{style}}", assets.style}, {"{{version}}", escape_html(version())}, {"{{body}}", body}});
  write_file(folder / "methods.html", [&page](std::ostream& file) { file << page; });
}

}  // namespace kvcast::report
