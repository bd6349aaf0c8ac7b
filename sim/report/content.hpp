// The contents of a report: the results of the store as tables, and the texts around them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report/palette.hpp"
#include "report/part.hpp"
#include "report/table.hpp"
#include "store/store.hpp"

namespace kvcast::report {

struct Content {
  // name, description, config; counts of the shown experiments by status; part (if some are left out): where and values
  // of report/part.hpp, of (experiments in the store); code_versions; created [first, last]; kvcast (version of this
  // program); timelines [embedded, in the store]; planned (experiments of the whole sweep) if the store says it; swept:
  // false if all experiments are a plan's, which the charts of a sweep could not compare; compared: the names of
  // several stores.
  nlohmann::json sweep;
  nlohmann::json findings;  // [{"title", "text", "detail", "places"}], see store/finding.hpp
  nlohmann::json answers;   // answers of a plan, see answers_json()
  // [{what, origin, uncertainty, source, experiments}]: every number of the machines, worst origin first.
  nlohmann::json origins;

  // One row per experiment, `id` counting from 0 in reading order. Texts: key, status, fit, model, hardware, policy,
  // variant, series, replica (the seed, if seeds are swept), store (if there are several), split, bottleneck, oom_pool,
  // oom_moment, oom_requested_for, error, and origin_F for each metric field F. Numbers: context (prompt tokens),
  // decode_tokens, batch, depth (`trace.depth`), budget (or the cost that `match:` requested, see defaults["cost"]),
  // solved_budget (of `match:`), split_value, the fields of page_metrics() with F_low and F_high if there is an
  // interval, share_ORIGIN (of a decode step's time), oom_requested, oom_in_use, oom_capacity (bytes), timeline = 1 if
  // the table `timeline` has the experiment, oracle = 1 if no system could run the policy.
  Table experiments;
  Table breakdown;  // id, kind, color, exposed_s, hidden_s
  Table owners;  // id, pool, owner, color, bytes, owner_order; an allocation that did not fit has the owner kDoesNotFit
  // id, place (index in its timeline), lane, kind, color, label, layer, start_s, dur_s, bytes (of copies), waited_for
  // (index of the operation on another lane whose end let this one start); start 0 is the step's first operation.
  Table timeline;
  Table heads;   // id, layer, head, attended, resident (tokens), recall (share of the mass): see result::LayerMap
  Table series;  // see SeriesNames::table
  Table moments, curves, capacities;  // see ServiceTables; without rows if no experiment has traffic
  // comparison of several stores: from, to, metric, setting, before, after, times, low, high, beyond, better
  Table changes;

  // The page's initial selection, by the names of the shared specification's signals; see choose_defaults. cost: "bytes
  // read" and the like if the column `budget` states the cost that `match:` requested, otherwise null.
  nlohmann::json defaults;
};

inline constexpr const char* kDoesNotFit = "does not fit";

// A store of a report; the name distinguishes it from the others and is empty if there is only one.
struct ReportSource {
  std::string name;
  const store::Store* store = nullptr;
  ReportPart part = {};

  // Visits the shown experiments in reading order.
  void for_each(const std::function<void(const store::Stored&)>& visit) const;
};

// Parts that a result lacks are missing cells. Several stores, at least one, are compared: each is a value of the key
// `store`, which distinguishes series, and the answers describe the changes from the first to each of the others.
// Throws UserError if a store cannot be read.
Content collect(const std::vector<ReportSource>& sources, Palette palette);

}  // namespace kvcast::report
