// The stores of a report, open and named.
#pragma once

#include <string>
#include <vector>

#include "report/content.hpp"
#include "store/store.hpp"

namespace kvcast::report {

class Stores {
 public:
  // Opens DIR/results.sqlite of each folder, at least one. Several are named by the last parts of their paths, or by
  // the whole paths if these are equal. Throws UserError if one cannot be read, or a folder is given twice.
  // `where`: settings of the experiments that are shown (report/part.hpp); the settings that a large first store is
  // shown by are those of the others too.
  explicit Stores(const std::vector<std::string>& dirs, const std::vector<std::string>& where = {});

  // Valid as long as this object is.
  std::vector<ReportSource> sources() const;

 private:
  std::vector<std::string> names_;
  std::vector<store::Store> stores_;
  std::vector<ReportPart> parts_;
};

}  // namespace kvcast::report
