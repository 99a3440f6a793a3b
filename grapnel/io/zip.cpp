#include "grapnel/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <concepts>
#include <limits>
#include <memory>

#include "grapnel/base/checked.h"

namespace grapnel::io {

namespace {

template <std::unsigned_integral T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// A size, a place or a count, in as many bits as its field has. The largest number is none: it
/// says that the number stands elsewhere.
template <std::unsigned_integral T>
void append_number(std::string& out, uint64_t value, const char* what, const std::string& source) {
  check(value < std::numeric_limits<T>::max(), source, ": does not fit in an .npz file: ", what,
        " would be ", value, ", and the most is ", std::numeric_limits<T>::max() - 1,
        ".\nUse safetensors.");
  append(out, checked_cast<T>(value, what));
}

/// What both headers of an entry share: version, flags (names are UTF-8), method, time, date
/// (1980-01-01), checksum, sizes.
std::string common(const ZipEntry& entry, const std::string& source) {
  std::string out;
  append<uint16_t>(out, 20);
  append<uint16_t>(out, 1 << 11);
  append<uint16_t>(out, entry.deflated ? Z_DEFLATED : 0);
  append<uint16_t>(out, 0);
  append<uint16_t>(out, 33);
  append(out, entry.checksum);
  append_number<uint32_t>(out, entry.packed, "the packed size of an array", source);
  append_number<uint32_t>(out, entry.size, "the size of an array", source);
  append_number<uint16_t>(out, entry.name.size(), "the length of a name", source);
  append<uint16_t>(out, 0);
  return out;
}

}  // namespace

std::string zip_header(const ZipEntry& entry, const std::string& source) {
  std::string out("PK\x03\x04", 4);
  return out += common(entry, source) + entry.name;
}

std::string zip_line(const ZipEntry& entry, const std::string& source) {
  std::string out("PK\x01\x02", 4);
  append<uint16_t>(out, 20);
  out += common(entry, source);
  append<uint16_t>(out, 0);
  append<uint16_t>(out, 0);
  append<uint16_t>(out, 0);
  append<uint32_t>(out, 0);
  append_number<uint32_t>(out, entry.offset, "the place of an array", source);
  return out += entry.name;
}

std::string zip_end(uint64_t entries, uint64_t bytes, uint64_t offset, const std::string& source) {
  std::string out("PK\x05\x06", 4);
  append<uint32_t>(out, 0);
  append_number<uint16_t>(out, entries, "the number of arrays", source);
  append_number<uint16_t>(out, entries, "the number of arrays", source);
  append_number<uint32_t>(out, bytes, "the size of the directory", source);
  append_number<uint32_t>(out, offset, "the place of the directory", source);
  append<uint16_t>(out, 0);
  return out;
}

std::string deflated(const std::string& bytes, const std::string& source, uint64_t piece) {
  z_stream stream{};
  check(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8,
                     Z_DEFAULT_STRATEGY) == Z_OK,
        source, ": zlib could not be started.");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, deflateEnd);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  uint64_t in = 0, done = 0;
  int code = Z_OK;
  while (code == Z_OK) {
    // The bound holds for bytes that come all at once.
    if (done == out.size()) out.resize(out.size() + out.size() / 8 + 64);
    const auto had_in = checked_cast<uInt>(std::min(piece, bytes.size() - in), "deflate"),
               had_out = checked_cast<uInt>(std::min(piece, out.size() - done), "deflate");
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + in));
    stream.avail_in = had_in;
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream.avail_out = had_out;
    code = deflate(&stream, in + had_in == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    in += had_in - stream.avail_in, done += had_out - stream.avail_out;
  }
  GRAPNEL_ASSERT(code == Z_STREAM_END, "deflate ended with ", code);
  out.resize(done);
  return out;
}

}  // namespace grapnel::io
