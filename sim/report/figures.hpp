// The figures of a report as separate documents.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/assets.hpp"
#include "report/content.hpp"

namespace kvcast::report {

// Returns a table of the content by the name of its data set; null if there is none.
const Table* table_named(const Content& content, const std::string& name);

// Names of the tables that a page of the content has.
std::vector<std::string> table_names(const Content& content);
// The charts of a sweep, those of services first if it has any, without those of which the sweep has nothing to draw.
std::vector<ChartFile> charts_of(const Assets& assets, const Content& content);

// Returns the answers with their charts as complete specifications, under `spec`.
nlohmann::json drawn_answers(const Assets& assets, const nlohmann::json& answers);

// Returns specifications with their data, the light theme and the page's initial selection: those of the answers, then
// those of a sweep. They open in any Vega 5.
// rows_of: the rows of the table of this name, as a specification has them; by default Table::objects().
using RowsOf = std::function<nlohmann::json(const std::string& table)>;
std::vector<ChartFile> standalone_figures(const Assets& assets, const Content& content, const nlohmann::json& answers,
                                          const RowsOf& rows_of = {});

}  // namespace kvcast::report
