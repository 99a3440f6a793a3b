#include "grapnel/io/unzip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "grapnel/base/error.h"

namespace grapnel::io {

namespace {

constexpr uint32_t local_magic = 0x04034b50, central_magic = 0x02014b50, end_magic = 0x06054b50,
                   end64_magic = 0x06064b50, locator_magic = 0x07064b50;

/// A little-endian number at `at`, if it is inside.
template <class T>
T number(std::string_view bytes, uint64_t at, const std::string& source) {
  check(at <= bytes.size() && bytes.size() - at >= sizeof(T), source,
        ": is damaged: an entry reaches beyond the end of the file.");
  T out;
  std::memcpy(&out, bytes.data() + at, sizeof out);
  return out;
}

/// Sizes that do not fit 32 bits stand in an extra field, in this order, each only if its place
/// holds the largest number.
void read_zip64(std::string_view bytes, uint64_t at, uint64_t end, ZipMember& m,
                const std::string& source) {
  while (at + 4 <= end) {
    const auto id = number<uint16_t>(bytes, at, source),
               length = number<uint16_t>(bytes, at + 2, source);
    uint64_t field = at + 4;
    at = field + length;
    if (id != 1) continue;
    for (uint64_t* value : {&m.size, &m.packed, &m.offset})
      if (*value == std::numeric_limits<uint32_t>::max() && field + 8 <= at)
        *value = number<uint64_t>(bytes, field, source), field += 8;
  }
}

std::string inflated(std::string_view bytes, const ZipMember& m, const std::string& source) {
  // Deflate makes at most 1032 bytes of one, so an honest size is no more than that.
  check(m.size / 1033 <= m.packed, source, ": '", m.name, "' claims ", m.size, " bytes from ",
        m.packed, ", which is impossible.");
  std::string out(m.size, '\0');
  z_stream stream{};
  check(inflateInit2(&stream, -MAX_WBITS) == Z_OK, source, ": zlib could not be started.");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
  uint64_t in = 0, done = 0;
  constexpr uint64_t piece = uint64_t{1} << 30;
  int code = Z_OK;
  while (code == Z_OK) {
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + m.begin + in));
    stream.avail_in = static_cast<uInt>(std::min(piece, m.packed - in));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream.avail_out = static_cast<uInt>(std::min(piece, m.size - done));
    const uInt had_in = stream.avail_in, had_out = stream.avail_out;
    code = inflate(&stream, Z_NO_FLUSH);
    in += had_in - stream.avail_in, done += had_out - stream.avail_out;
  }
  check(code == Z_STREAM_END && done == m.size, source, ": '", m.name,
        "' is damaged: ", stream.msg ? stream.msg : "it has another size than it says", ".");
  return out;
}

}  // namespace

ZipArchive::ZipArchive(std::string_view bytes, std::string source, const char* kind)
    : bytes_(bytes), source_(std::move(source)) {
  read_directory(kind);
  find_contents();
}

void ZipArchive::read_directory(const char* kind) {
  const std::string_view bytes = bytes_;
  const std::string& source = source_;
  // The end record is the last one of its kind; behind it is at most a comment.
  const size_t begin = bytes.size() > 65557 ? bytes.size() - 65557 : 0;
  size_t end = bytes.rfind(std::string_view("PK\x05\x06", 4));
  check(end != bytes.npos && end >= begin && bytes.size() - end >= 22, source, ": is ", kind,
        ", or it was cut off: the directory at its end is missing.");
  uint64_t count = number<uint16_t>(bytes, end + 10, source),
           at = number<uint32_t>(bytes, end + 16, source), behind = end;
  if (end >= 20 && number<uint32_t>(bytes, end - 20, source) == locator_magic) {
    const auto record = number<uint64_t>(bytes, end - 12, source);
    check(number<uint32_t>(bytes, record, source) == end64_magic, source,
          ": is damaged: its directory is not where it should be.");
    count = number<uint64_t>(bytes, record + 32, source),
    at = number<uint64_t>(bytes, record + 48, source), behind = record;
  }
  for (uint64_t i = 0; i < count; ++i) {
    check(number<uint32_t>(bytes, at, source) == central_magic, source, ": is damaged: entry ", i,
          " of its directory is missing.");
    ZipMember m;
    const auto flags = number<uint16_t>(bytes, at + 8, source);
    m.method = number<uint16_t>(bytes, at + 10, source);
    m.crc = number<uint32_t>(bytes, at + 16, source);
    m.packed = number<uint32_t>(bytes, at + 20, source),
    m.size = number<uint32_t>(bytes, at + 24, source),
    m.offset = number<uint32_t>(bytes, at + 42, source);
    const uint64_t name = number<uint16_t>(bytes, at + 28, source),
                   extra = number<uint16_t>(bytes, at + 30, source),
                   comment = number<uint16_t>(bytes, at + 32, source);
    check(at + 46 + name + extra <= bytes.size(), source,
          ": is damaged: an entry reaches beyond the end of the file.");
    m.name = bytes.substr(at + 46, name);
    check((flags & 1) == 0, source, ": '", m.name, "' is encrypted.");
    read_zip64(bytes, at + 46 + name, at + 46 + name + extra, m, source);
    at += 46 + name + extra + comment;
    members_.push_back(std::move(m));
  }
  check(at == behind, source, ": is damaged: its directory has another length than it says.");
}

/// Finds the bytes of every entry. Each byte of the file belongs to one of them at most, or a few
/// could unpack to any number of arrays.
void ZipArchive::find_contents() {
  const std::string_view bytes = bytes_;
  const std::string& source = source_;
  std::vector<const ZipMember*> order;
  for (ZipMember& m : members_) {
    check(number<uint32_t>(bytes, m.offset, source) == local_magic, source, ": is damaged: '",
          m.name, "' is not where the directory says.");
    m.begin = m.offset + 30 + number<uint16_t>(bytes, m.offset + 26, source) +
              number<uint16_t>(bytes, m.offset + 28, source);
    check(m.begin <= bytes.size() && m.packed <= bytes.size() - m.begin, source, ": is damaged: '",
          m.name, "' reaches beyond the end of the file.");
    order.push_back(&m);
  }
  std::ranges::sort(order, {}, &ZipMember::offset);
  for (size_t i = 1; i < order.size(); ++i)
    check(order[i - 1]->begin + order[i - 1]->packed <= order[i]->offset, source, ": is damaged: '",
          order[i - 1]->name, "' and '", order[i]->name, "' overlap.");
}

std::string_view ZipArchive::contents(const ZipMember& m, std::string& room) const {
  check(m.method == 0 || m.method == Z_DEFLATED, source_, ": '", m.name, "' is packed by method ",
        m.method, "; stored and deflated files are read.");
  check(m.method != 0 || m.packed == m.size, source_, ": '", m.name,
        "' is damaged: it has two sizes.");
  std::string_view out = bytes_.substr(m.begin, m.packed);
  if (m.method != 0) out = room = inflated(bytes_, m, source_);
  const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(out.data()), out.size());
  check(crc == m.crc, source_, ": '", m.name, "' is damaged: its checksum differs.");
  return out;
}

}  // namespace grapnel::io
