// The JSON header of a safetensors file, as written and not yet compared with the data.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace kvcast::trace {

struct HeaderTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // data_offsets: bytes from the end of the header
};

struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<HeaderTensor> tensors;  // as in the header
};

// Throws UserError (with the file's name) for anything that is not the format's header: other JSON, duplicate, missing
// or unknown keys, wrong types, more than 8 dimensions, __metadata__ that does not map strings to strings.
Header parse_header(std::string_view json, const std::string& file);

}  // namespace kvcast::trace
