// The mapped file and the checks that need its size. The JSON header is read by safetensors_header.cpp.
#include "trace/safetensors.hpp"

#include <algorithm>
#include <boost/iostreams/device/mapped_file.hpp>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/quote.hpp"
#include "trace/safetensors_header.hpp"

namespace kvcast::trace {
namespace {

constexpr std::uint64_t kMaxHeader = 100'000'000;  // the reference implementation's limit
constexpr std::size_t kLengthBytes = 8;

[[noreturn]] void refuse(const std::string& file, const std::string& what) { throw UserError({file}, what); }

// Bits of all elements; rejects products that do not fit 64 bits.
std::uint64_t shape_bits(const std::vector<std::uint64_t>& shape, unsigned bits, const std::string& file,
                         const std::string& title) {
  std::uint64_t total = bits;
  for (const std::uint64_t n : shape) {
    if (n == 0) return 0;
  }
  for (const std::uint64_t n : shape) {
    if (__builtin_mul_overflow(total, n, &total)) refuse(file, title + ": the size of its shape overflows 64 bits");
  }
  return total;
}

std::uint64_t byte_size(const HeaderTensor& t, const std::string& file, const std::string& title) {
  const DtypeName type = dtype_from_name(t.dtype);
  if (type.bits == 0)
    throw UserError({file}, fmt::format("{}: unknown dtype {}", title, quote(t.dtype)), known_dtypes());
  const std::uint64_t bits = shape_bits(t.shape, type.bits, file, title);
  if (bits % 8 != 0) refuse(file, fmt::format("{}: {} bits do not fill whole bytes", title, bits));
  return bits / 8;
}

// The tensors' data must tile the buffer: sorted by offset, each begins where the one before ends.
void check_layout(const std::vector<HeaderTensor>& tensors, std::uint64_t buffer_bytes, const std::string& file) {
  std::vector<const HeaderTensor*> ordered;
  for (const HeaderTensor& t : tensors) ordered.push_back(&t);
  std::sort(ordered.begin(), ordered.end(), [](const HeaderTensor* a, const HeaderTensor* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::uint64_t end = 0;
  for (const HeaderTensor* t : ordered) {
    const std::string title = fmt::format("tensor {}", quote(t->name));
    if (t->begin > t->end || t->end > buffer_bytes) {
      refuse(file, fmt::format("{}: data_offsets [{}, {}] outside of the {} bytes of data", title, t->begin, t->end,
                               buffer_bytes));
    }
    if (t->begin != end) {
      refuse(file, fmt::format("{}: data_offsets begin at {}, {} the end of the tensor before at {}", title, t->begin,
                               t->begin < end ? "before" : "leaving a hole after", end));
    }
    const std::uint64_t bytes = byte_size(*t, file, title);
    if (t->end - t->begin != bytes) {
      refuse(file,
             fmt::format("{}: data_offsets span {} bytes, dtype and shape need {}", title, t->end - t->begin, bytes));
    }
    end = t->end;
  }
  if (end != buffer_bytes) {
    refuse(file, fmt::format("{} bytes after the last tensor's data belong to no tensor", buffer_bytes - end));
  }
}

}  // namespace

std::uint64_t Tensor::elements() const {
  std::uint64_t n = 1;
  for (const std::uint64_t extent : shape) n *= extent;
  return n;
}

SafetensorsFile SafetensorsFile::open(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error || !std::filesystem::exists(status)) refuse(path, "no such file");
  if (!std::filesystem::is_regular_file(status)) refuse(path, "not a regular file");
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size == 0) refuse(path, error ? "cannot be read: " + error.message() : "the file is empty");
  SafetensorsFile file;
  file.name_ = path;
  try {
    auto mapping = std::make_shared<boost::iostreams::mapped_file_source>(path);
    file.bytes_ = {mapping->data(), mapping->size()};
    file.owner_ = std::move(mapping);
  } catch (const std::exception& e) {
    refuse(path, fmt::format("cannot be mapped: {}", e.what()));
  }
  file.read_header();
  return file;
}

SafetensorsFile SafetensorsFile::from_bytes(std::string bytes, const std::string& name) {
  SafetensorsFile file;
  file.name_ = name;
  auto owned = std::make_shared<std::string>(std::move(bytes));
  file.bytes_ = *owned;
  file.owner_ = std::move(owned);
  file.read_header();
  return file;
}

void SafetensorsFile::read_header() {
  if (bytes_.size() < kLengthBytes)
    refuse(name_, fmt::format("{} bytes are too few for a safetensors file", bytes_.size()));
  std::uint64_t length = 0;
  std::memcpy(&length, bytes_.data(), kLengthBytes);
  if (length > kMaxHeader) {
    refuse(name_,
           fmt::format("no safetensors file: its first 8 bytes give a header length of {} bytes, above the limit of {}",
                       length, kMaxHeader));
  }
  if (length > bytes_.size() - kLengthBytes) {
    refuse(name_, fmt::format("header length {} runs beyond the end of the file", length));
  }
  const Header header = parse_header(bytes_.substr(kLengthBytes, length), name_);
  const std::string_view buffer = bytes_.substr(kLengthBytes + length);
  check_layout(header.tensors, buffer.size(), name_);
  metadata_ = header.metadata;
  for (const HeaderTensor& t : header.tensors) {
    const auto data = std::as_bytes(std::span(buffer.substr(t.begin, t.end - t.begin)));
    tensors_[t.name] = {dtype_from_name(t.dtype).dtype, t.dtype, t.shape, data};
  }
}

const Tensor* SafetensorsFile::find(const std::string& tensor) const {
  const auto it = tensors_.find(tensor);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace kvcast::trace
