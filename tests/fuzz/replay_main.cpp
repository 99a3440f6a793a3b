/// Any libFuzzer target as a plain test, without clang: runs what is in the corpus, then changes of
/// it for a while.
///
///   files_fuzz tests/fuzz/corpus/files_fuzz tests/io -seconds=10 -seed=1
///
/// GRAPNEL_FUZZ_SECONDS and GRAPNEL_FUZZ_SEED do the same. The same seed and corpus give the same
/// inputs. One that ends the process, or takes more than 30 seconds, is left in a file whose name
/// is printed; give that file alone to run it again.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" [[gnu::weak]] int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t longest = 1 << 16;
constexpr unsigned seconds_per_input = 30;

// --- what is under way when the process ends ---

const Bytes* current = nullptr;
char crash_path[64];

void keep_current() {
  if (current == nullptr) return;
  const int fd = ::open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  size_t done = 0;
  while (fd >= 0 && done < current->size()) {
    const ssize_t n = ::write(fd, current->data() + done, current->size() - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  const char text[] = "\nthis input ended it: ";
  (void)!::write(2, text, sizeof text - 1);
  (void)!::write(2, crash_path, std::strlen(crash_path));
  (void)!::write(2, "\n", 1);
  current = nullptr;
}

void on_signal(int number) {
  if (number == SIGALRM) (void)!::write(2, "\nan input takes too long", 24);
  keep_current();
  ::signal(number, SIG_DFL);
  ::raise(number);
}

void watch_for_the_end() {
  std::snprintf(crash_path, sizeof crash_path, "/tmp/grapnel-fuzz-%d.input", getpid());
  const bool sanitized = &__sanitizer_set_death_callback != nullptr;
  if (sanitized) __sanitizer_set_death_callback(keep_current);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM})
    if (!sanitized || number == SIGALRM || number == SIGABRT) ::signal(number, on_signal);
  if (sanitized) return;
  // More than any input has a right to; beyond it memory runs out, which no target catches.
  const struct rlimit limit = {rlim_t{6} << 30, rlim_t{6} << 30};
  ::setrlimit(RLIMIT_AS, &limit);
}

void run_one(const Bytes& input) {
  current = &input;
  ::alarm(seconds_per_input);
  LLVMFuzzerTestOneInput(input.data(), input.size());
  ::alarm(0);
  current = nullptr;
}

// --- changes ---

using Random = std::mt19937_64;

size_t below(Random& random, size_t n) { return n == 0 ? 0 : random() % n; }

/// Numbers at which sizes and offsets go wrong, of 1 to 8 bytes, in both orders of bytes.
void put_number(Bytes& bytes, Random& random) {
  static constexpr uint64_t numbers[] = {
      0,
      1,
      2,
      7,
      8,
      127,
      128,
      255,
      256,
      32767,
      65535,
      65536,
      0x40000000,
      0x7fffffff,
      0x80000000,
      0xffffffff,
      0x3fffffffffffffff,
      0x7fffffffffffffff,
      0x8000000000000000,
      0xffffffffffffffff};
  const size_t size = size_t{1} << below(random, 4);
  if (bytes.size() < size) return;
  uint64_t value = numbers[below(random, std::size(numbers))];
  if (random() % 4 == 0) value = bytes.size() + random() % 17 - 8;
  if (random() % 2 == 0) value = __builtin_bswap64(value) >> (64 - 8 * size);
  std::memcpy(bytes.data() + below(random, bytes.size() - size + 1), &value, size);
}

/// Another number in the place of one that is written out.
void put_digits(Bytes& bytes, Random& random) {
  static constexpr const char* numbers[] = {"0",          "-1",
                                            "9",          "0.5",
                                            "4294967296", "9223372036854775807",
                                            "1e999",      "18446744073709551615"};
  const auto is_digit = [](uint8_t c) { return c >= '0' && c <= '9'; };
  const auto from = bytes.begin() + static_cast<ptrdiff_t>(below(random, bytes.size()));
  const auto begin = std::find_if(from, bytes.end(), is_digit);
  const auto end = std::find_if_not(begin, bytes.end(), is_digit);
  const std::string number = numbers[below(random, std::size(numbers))];
  bytes.insert(bytes.erase(begin, end), number.begin(), number.end());
}

void change(Bytes& bytes, const std::vector<Bytes>& corpus, Random& random) {
  const auto place = [](Bytes& in, size_t i) { return in.begin() + static_cast<ptrdiff_t>(i); };
  const size_t at = below(random, bytes.size()),
               length = below(random, std::min<size_t>(bytes.size() - at, 64) + 1);
  const auto begin = place(bytes, at), end = place(bytes, at + length);
  switch (random() % 9) {
    case 0:
      if (!bytes.empty()) bytes[at] = static_cast<uint8_t>(bytes[at] ^ 1u << random() % 8);
      return;
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<uint8_t>(random());
      return;
    case 2: bytes.erase(begin, end); return;
    case 3: bytes.resize(at); return;
    case 4: {
      const Bytes piece(begin, end);
      bytes.insert(place(bytes, below(random, bytes.size() + 1)), piece.begin(), piece.end());
      return;
    }
    case 5: {
      Bytes piece(1 + below(random, 8));
      for (uint8_t& b : piece) b = static_cast<uint8_t>(random());
      bytes.insert(begin, piece.begin(), piece.end());
      return;
    }
    case 6: {  // the end of another one
      Bytes other = corpus[below(random, corpus.size())];
      bytes.resize(at);
      bytes.insert(bytes.end(), place(other, below(random, other.size())), other.end());
      return;
    }
    case 7: put_number(bytes, random); return;
    default: put_digits(bytes, random); return;
  }
}

// --- arguments ---

void add_file(std::vector<Bytes>& corpus, const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  Bytes bytes{std::istreambuf_iterator<char>(in), {}};
  if (bytes.size() <= longest) corpus.push_back(std::move(bytes));
}

/// What the argument says behind `flag`, else the environment, else `value`.
double setting(const std::vector<std::string>& arguments, const std::string& flag,
               const char* variable, double value) {
  if (const char* text = std::getenv(variable); text && *text) value = std::atof(text);
  for (const std::string& argument : arguments)
    if (argument.starts_with(flag)) value = std::atof(argument.c_str() + flag.size());
  return value;
}

/// All files that the arguments name, in an order that folders do not have.
std::vector<std::filesystem::path> files_of(const std::vector<std::string>& arguments) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (const std::string& argument : arguments) {
    if (argument.starts_with('-')) continue;
    if (!fs::is_directory(argument)) files.push_back(argument);
    else
      for (const auto& entry : fs::recursive_directory_iterator(argument))
        if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

int main(int argc, char** argv) {
  watch_for_the_end();
  if (&LLVMFuzzerInitialize != nullptr) LLVMFuzzerInitialize(&argc, &argv);
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const double seconds = setting(arguments, "-seconds=", "GRAPNEL_FUZZ_SECONDS", 0);
  const auto seed =
      static_cast<uint64_t>(setting(arguments, "-seed=", "GRAPNEL_FUZZ_SEED", 1));
  std::vector<Bytes> corpus;
  for (const auto& file : files_of(arguments)) add_file(corpus, file);
  std::printf("%zu inputs of the corpus, then changed ones for %g s; seed %llu\n", corpus.size(),
              seconds, static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  for (const Bytes& bytes : corpus) run_one(bytes);
  if (corpus.empty()) corpus.emplace_back();

  Random random(seed);
  uint64_t count = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (; std::chrono::steady_clock::now() < end; ++count) {
    Bytes input = corpus[below(random, corpus.size())];
    for (size_t n = 1 + below(random, 6); n > 0; --n) change(input, corpus, random);
    if (input.size() > longest) input.resize(longest);
    run_one(input);
  }
  std::printf("%llu changed ones\n", static_cast<unsigned long long>(count));
  return 0;
}
