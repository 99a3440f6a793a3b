#include "grapnel/hooks/logger.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "grapnel/base/threads.h"

namespace grapnel::hooks {

namespace {

std::ofstream open_to_append(const std::filesystem::path& path) {
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path());
  std::ofstream out(path, std::ios::binary | std::ios::app);
  check(out.is_open(), path.string(), ": cannot be opened: ", std::strerror(errno), ".");
  return out;
}

/// A file that lines are added to. A child by fork must not write what waits in its copy of the
/// buffer, which its parent will write: it opens the file anew.
class Appending {
 public:
  explicit Appending(const std::filesystem::path& path)
      : path_(path), out_(std::make_unique<std::ofstream>(open_to_append(path))) {}
  ~Appending() {
    if (home_.is_elsewhere()) (void)out_.release();
  }
  Appending(const Appending&) = delete;
  Appending& operator=(const Appending&) = delete;

  std::ofstream& stream() {
    if (home_.is_elsewhere()) {
      (void)out_.release();
      out_ = std::make_unique<std::ofstream>(open_to_append(path_));
      home_ = {};
    }
    return *out_;
  }

 private:
  std::filesystem::path path_;
  std::unique_ptr<std::ofstream> out_;
  base::HomeProcess home_;
};

void check_written(const std::ofstream& out, const std::filesystem::path& path) {
  check(out.good(), path.string(),
        ": cannot be written (is the disk full?): ", std::strerror(errno), ".");
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// JSON has no NaN and no infinities.
nlohmann::json number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

}  // namespace

// --- JSON lines ---

struct JsonLinesWriter::File {
  std::filesystem::path path;
  Appending file{path};
  void write(const nlohmann::ordered_json& line) {
    std::ofstream& out = file.stream();
    out << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << '\n';
    check_written(out, path);
  }
};

JsonLinesWriter::JsonLinesWriter(const std::filesystem::path& path)
    : file_(new File{path}) {}
JsonLinesWriter::~JsonLinesWriter() = default;
void JsonLinesWriter::scalar(const std::string& tag, int64_t step, double value) {
  file_->write({{"step", step}, {"tag", tag}, {"value", number(value)}});
}
void JsonLinesWriter::histogram(const std::string& tag, int64_t step, const LoggedHistogram& h) {
  file_->write({{"step", step},
                {"tag", tag},
                {"min", number(h.min)},
                {"max", number(h.max)},
                {"limits", h.limits},
                {"counts", h.counts}});
}
void JsonLinesWriter::flush() {
  std::ofstream& out = file_->file.stream();
  out.flush();
  check_written(out, file_->path);
}

// --- TensorBoard ---

uint32_t crc32c(const void* data, size_t bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> out;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c & 1 ? c >> 1 ^ 0x82F63B78 : c >> 1;
      out[i] = c;
    }
    return out;
  }();
  uint32_t c = ~uint32_t{0};
  for (size_t i = 0; i < bytes; ++i)
    c = table[(c ^ static_cast<const uint8_t*>(data)[i]) & 0xFF] ^ c >> 8;
  return ~c;
}

namespace {

/// The few kinds of protobuf fields that events are made of.
class Message {
 public:
  Message& varint(int field, uint64_t value) {
    key(field, 0);
    put_varint(value);
    return *this;
  }
  Message& fixed64(int field, double value) { return raw(field, 1, value); }
  Message& fixed32(int field, float value) { return raw(field, 5, value); }
  Message& bytes(int field, const std::string& text) {
    key(field, 2);
    put_varint(text.size());
    text_ += text;
    return *this;
  }
  Message& packed(int field, const std::vector<double>& values) {
    std::string list(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double));
    return bytes(field, list);
  }
  const std::string& text() const { return text_; }

 private:
  template <class T>
  Message& raw(int field, int kind, T value) {
    key(field, kind);
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  void key(int field, int kind) { put_varint(static_cast<uint64_t>(field << 3 | kind)); }
  void put_varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

uint32_t masked_crc(const void* data, size_t bytes) {
  const uint32_t c = crc32c(data, bytes);
  return (c >> 15 | c << 17) + 0xA282EAD8;
}

std::filesystem::path event_path(const std::filesystem::path& folder) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  static int count = 0;
  return folder / str("events.out.tfevents.", static_cast<int64_t>(now()), '.', host.data(), '.',
                      getpid(), '.', count++);
}

}  // namespace

struct TensorBoardWriter::File {
  std::filesystem::path path;
  Appending file{path};
  /// A record: length, its checksum, the event, its checksum.
  void write(Message event) {
    event.fixed64(1, now());
    const uint64_t length = event.text().size();
    const uint32_t length_crc = masked_crc(&length, sizeof length),
                   data_crc = masked_crc(event.text().data(), length);
    std::ofstream& out = file.stream();
    out.write(reinterpret_cast<const char*>(&length), sizeof length)
        .write(reinterpret_cast<const char*>(&length_crc), sizeof length_crc);
    out << event.text();
    out.write(reinterpret_cast<const char*>(&data_crc), sizeof data_crc);
    check_written(out, path);
  }
  void summary(int64_t step, const Message& value) {
    Message event;
    event.varint(2, static_cast<uint64_t>(step)).bytes(5, Message().bytes(1, value.text()).text());
    write(std::move(event));
  }
};

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const auto path = event_path(folder);
  // The name is ours, so the file has to be, too.
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  check(fd >= 0, path.string(), ": cannot be created: ", std::strerror(errno), ".");
  ::close(fd);
  file_.reset(new File{path});
  file_->write(Message().bytes(3, "brain.Event:2"));
}
TensorBoardWriter::~TensorBoardWriter() = default;
const std::filesystem::path& TensorBoardWriter::path() const { return file_->path; }

void TensorBoardWriter::scalar(const std::string& tag, int64_t step, double value) {
  file_->summary(step, Message().bytes(1, tag).fixed32(2, static_cast<float>(value)));
}
void TensorBoardWriter::histogram(const std::string& tag, int64_t step, const LoggedHistogram& h) {
  Message values;
  values.fixed64(1, h.min)
      .fixed64(2, h.max)
      .fixed64(3, h.count)
      .fixed64(4, h.sum)
      .fixed64(5, h.sum_squares)
      .packed(6, h.limits)
      .packed(7, h.counts);
  file_->summary(step, Message().bytes(1, tag).bytes(5, values.text()));
}
void TensorBoardWriter::flush() {
  std::ofstream& out = file_->file.stream();
  out.flush();
  check_written(out, file_->path);
}

// --- the logger ---

GradientLogger::GradientLogger(nn::Module& module, LogWriter& writer,
                               const GradientLoggerOptions& options)
    : writer_(writer), options_(options), statistics_(options.statistics) {
  check(options.every > 0, "GradientLogger: every must be positive, got ", options.every, ".");
  statistics_.attach(module);
  begin_step();
}

void GradientLogger::step() {
  ++steps_;
  begin_step();
  if (!is_time(steps_)) return;
  for (const Statistics::Row& row : statistics_.report()) {
    if (row.calls == 0) continue;
    writer_.scalar(row.name + "/norm", steps_, row.norm);
    writer_.scalar(row.name + "/mean", steps_, row.mean);
    writer_.scalar(row.name + "/largest", steps_, std::max(-row.min, row.max));
    if (row.histogram.empty()) continue;
    const auto n = static_cast<double>(row.elements);
    LoggedHistogram h{row.min,
                      row.max,
                      n,
                      row.mean * n,
                      (row.deviation * row.deviation + row.mean * row.mean) * n,
                      {},
                      {}};
    const auto& o = options_.statistics;
    for (int64_t i = 0; i <= o.bins + 1; ++i) {
      h.limits.push_back(i <= o.bins ? o.low + static_cast<double>(i) * (o.high - o.low) /
                                                   static_cast<double>(o.bins)
                                     : std::max(row.max, o.high));
      h.counts.push_back(static_cast<double>(row.histogram[static_cast<size_t>(i)]));
    }
    writer_.histogram(row.name + "/gradient", steps_, h);
  }
  writer_.flush();
  statistics_.reset();
}

void GradientLogger::save(io::Archive& out) const {
  out.write("steps", Scalar(steps_));
  io::Archive part;
  statistics_.save(part);
  out.write("statistics", part);
}
void GradientLogger::load(const io::Archive& in) {
  const int64_t steps = in.number("steps").to_int();
  statistics_.load(in.part("statistics"));
  steps_ = steps;
  begin_step();
}

}  // namespace grapnel::hooks
