/// libFuzzer's entry for everything that reads files: any bytes give a value or an Error, and
/// memory stays in bounds; what was read can be written, and is read back the same. Build with the
/// preset `fuzz`; then
///
///   build/fuzz/tests/files_fuzz -rss_limit_mb=1024 -max_total_time=600 new/
///       tests/fuzz/corpus/files_fuzz tests/io
///
/// Other builds have the same entry with replay_main.cpp around it.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <span>

#include "command/run_folder.h"
#include "grapnel/codegen/disk_cache.h"
#include "grapnel/data/idx.h"
#include "grapnel/grapnel.h"
#include "grapnel/io/archive.h"
#include "grapnel/io/pickle.h"
#include "tests/fuzz/checkpoint_parts.h"
#include "tests/io/pt_file.h"
#include "tests/io/temporary_folder.h"

namespace {

using namespace grapnel;

template <class Read>
void survives(Read read) {
  try {
    read();
  } catch (const Error&) {
  }
}

void require(bool condition) {
  if (!condition) std::abort();
}

/// Bytes as a file that has a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    require(fd_ >= 0 && ::write(fd_, bytes.data(), bytes.size()) ==
                            static_cast<ssize_t>(bytes.size()));
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  std::filesystem::path path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

/// Gone with the process, unless that ends early.
const TemporaryFolder& folder() {
  static const TemporaryFolder made;
  return made;
}

void put(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream out(path, std::ios::binary);
  const auto size = static_cast<std::streamsize>(bytes.size());
  out.write(reinterpret_cast<const char*>(bytes.data()), size);
  ::chmod(path.c_str(), 0600);  // as entries of the cache have to be
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

void tensors(std::span<const std::byte> bytes) {
  survives([&] {
    const io::Safetensors read = io::parse_safetensors(bytes);
    const auto copy = folder() / "copy.safetensors";
    io::save_safetensors(copy, read.tensors, read.metadata, io::Durable::scratch);
    const io::Safetensors back = io::load_safetensors(copy);
    require(back.tensors.size() == read.tensors.size() && back.metadata == read.metadata);
  });
  survives([&] {
    const Tensor read = io::parse_npy(bytes, "fuzz");
    const Tensor back = io::parse_npy(bytes_of(io::npy_bytes(read, "fuzz")), "fuzz");
    require(back.shape() == read.shape() && back.dtype() == read.dtype());
  });
  survives([&] { io::parse_npz(bytes, "fuzz"); });
}

/// Checksums keep changes away from what is inside of an archive, so the pickle is read by itself,
/// too.
void pickles(std::span<const std::byte> bytes) {
  survives([&] { io::parse_pt(bytes, "fuzz").tensors(); });
  const std::string_view code(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const io::PickleCalls calls{
      .is_text = [](std::string_view name) { return name.starts_with("torch."); },
      .call = [](const std::string&, const io::PtValue& arguments,
                 const io::PickleMaker& make) -> io::PtValue {
        if (arguments.items().empty()) return make(io::PtValue::Kind::dict);
        return arguments.items()[0];
      },
      .persistent = [](const io::PtValue&, const io::PickleMaker& make) -> io::PtValue {
        return make(io::PtValue::Kind::storage);
      }};
  survives([&] { io::run_pickle(code, calls, "fuzz").tensors(); });
  // The same with an archive around it, and some memory for its tensors.
  const std::string inside(code.substr(0, 1 << 16));
  survives([&] {
    io::parse_pt(bytes_of(pt_of(inside, {{"0", inside}, {"1", std::string(64, '\1')}})), "fuzz");
  });
}

void checkpoints(const std::filesystem::path& file) {
  survives([&] { io::Archive::load(file); });
  fuzz::CheckpointParts parts;
  survives([&] { parts.state.load(file); });
}

void kernels(std::span<const std::byte> bytes) {
  put(codegen::entry_path(folder().path(), fuzz::cache_key), bytes);
  const codegen::Entry entry = codegen::read_entry(folder().path(), fuzz::cache_key);
  require(entry.found != codegen::Found::no && entry.object.size() <= bytes.size());
}

void runs(std::span<const std::byte> bytes) {
  for (const char* name : {"run.json", "metrics.jsonl"}) put(folder() / name, bytes);
  survives([&] { command::RunFolder::read(folder().path()); });
  put(folder() / "run.json", bytes_of("{\"format\": 1}"));
  const command::RunFolder run = command::RunFolder::read(folder().path());
  survives([&] { run.lines("metrics.jsonl"); });
  survives([&] { run.json("metrics.jsonl"); });
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  if (std::filesystem::is_directory("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", 1);  // no disk
  set_warning_handler(nullptr);  // of tensors that are left out
  set_num_threads(1);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  tensors(bytes);
  pickles(bytes);
  {
    const MemoryFile file(bytes);
    survives([&] { data::read_idx(file.path()); });
    checkpoints(file.path());
  }
  kernels(bytes);
  runs(bytes);
  return 0;
}
