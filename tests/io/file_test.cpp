/// Where a file that is written in one piece ends up, and what it never touches.
#include "grapnel/io/file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "grapnel/data/idx.h"
#include "grapnel/grapnel.h"
#include "tests/io/temporary_folder.h"
#include "tests/ops/error_text.h"

using namespace grapnel;
namespace fs = std::filesystem;

namespace {

void write(const fs::path& path, const std::string& text) {
  io::AtomicFile file(path, io::Durable::no);
  file.write(text);
  file.commit();
}

void plant(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

unsigned mode_of(const fs::path& path) {
  struct stat info;
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

}  // namespace

TEST_CASE("whatever lies where the draft goes, only a new file is written") {
  const TemporaryFolder folder;
  const fs::path victim = folder / "victim", file = folder / "file",
                 draft = folder / "file.partial";
  plant(victim, "precious");
  SUBCASE("a link") { fs::create_symlink(victim, draft); }
  SUBCASE("a link to nothing") { fs::create_symlink(folder / "made", draft); }
  SUBCASE("a second name of a file") { fs::create_hard_link(victim, draft); }
  SUBCASE("a pipe") { REQUIRE(::mkfifo(draft.c_str(), 0666) == 0); }
  SUBCASE("what a killed writer left") { plant(draft, std::string(1000, 'x')); }
  write(file, "mine");
  CHECK(io::read_text(file) == "mine");
  CHECK(io::read_text(victim) == "precious");
  CHECK(fs::is_regular_file(fs::symlink_status(file)));
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 2);
}

TEST_CASE("a draft that somebody holds open is not the file that is put in place") {
  const TemporaryFolder folder;
  plant(folder / "file.partial", "left");
  const int held = ::open((folder / "file.partial").c_str(), O_RDWR);
  REQUIRE(held >= 0);
  write(folder / "file", "mine");
  CHECK(::pwrite(held, "EVIL", 4, 0) == 4);
  ::close(held);
  CHECK(io::read_text(folder / "file") == "mine");
}

TEST_CASE("a folder in the place of the draft, or of the file, is an error") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "file.partial");
  CHECK(has(error_text([&] { write(folder / "file", "x"); }),
            "file.partial is in the way and cannot be removed"));
  CHECK(has(error_text([&] { write(folder.path(), "x"); }), "it is a folder"));
}

TEST_CASE("writing to a link replaces the file that it leads to") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "data");
  plant(folder / "data" / "real", "old");
  fs::create_symlink("data/real", folder / "middle");
  fs::create_symlink(folder / "middle", folder / "link");
  write(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(fs::is_symlink(folder / "middle"));
  CHECK(io::read_text(folder / "data" / "real") == "new");

  fs::create_symlink("data/later", folder / "dangling");
  save(ones({2}), folder / "dangling");
  CHECK(fs::is_symlink(folder / "dangling"));
  CHECK(io::load_safetensors(folder / "data" / "later").tensors["value"].numel() == 2);
  CHECK(std::distance(fs::directory_iterator(folder / "data"), {}) == 2);

  fs::create_symlink("b", folder / "a");
  fs::create_symlink("a", folder / "b");
  CHECK(has(error_text([&] { write(folder / "a", "x"); }), "leads in a circle"));
}

TEST_CASE("a scratch file replaces a link, since its name was made up") {
  const TemporaryFolder folder;
  plant(folder / "victim", "precious");
  fs::create_symlink("victim", folder / "scratch");
  io::AtomicFile file(folder / "scratch", io::Durable::scratch);
  file.write(std::string("mine"));
  file.commit();
  CHECK_FALSE(fs::is_symlink(folder / "scratch"));
  CHECK(mode_of(folder / "scratch") == 0600);
  CHECK(io::read_text(folder / "scratch") == "mine");
  CHECK(io::read_text(folder / "victim") == "precious");
}

TEST_CASE("a link that somebody else has put where everybody may write is not followed") {
  if (geteuid() != 0) return;  // only root can make files of others
  const TemporaryFolder folder;
  ::chmod(folder.path().c_str(), 01777);
  plant(folder / "victim", "precious");
  fs::create_symlink("victim", folder / "link");
  REQUIRE(::lchown((folder / "link").c_str(), 65534, 65534) == 0);
  CHECK(has(error_text([&] { write(folder / "link", "x"); }), "is a link that user 65534 has put"));
  CHECK(io::read_text(folder / "victim") == "precious");
}

TEST_CASE("pipes and devices are written into, and stay what they are") {
  const TemporaryFolder folder;
  const fs::path pipe = folder / "pipe", full = folder / "full";
  REQUIRE(::mkfifo(pipe.c_str(), 0666) == 0);
  const int reader = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK);
  write(pipe, "through");
  char text[16] = {};
  CHECK(::read(reader, text, sizeof text) == 7);
  CHECK(std::string(text) == "through");
  ::close(reader);
  CHECK(fs::is_fifo(pipe));

  fs::create_symlink("/dev/full", full);
  const std::string message = error_text([&] { write(full, "x"); });
  CHECK(has(message, "cannot be written: No space left on device (after 0 bytes)."));
  CHECK_FALSE(has(message, "What was there before"));
  CHECK(fs::is_symlink(full));
  CHECK(fs::is_character_file("/dev/full"));
}

TEST_CASE("a link that stands for an open file is written through") {
  const TemporaryFolder folder;
  plant(folder / "log", "first ");
  const int open = ::open((folder / "log").c_str(), O_WRONLY | O_APPEND);
  write("/proc/self/fd/" + std::to_string(open), "second ");
  CHECK(::write(open, "third", 5) == 5);
  ::close(open);
  CHECK(io::read_text(folder / "log") == "first second third");
}

TEST_CASE("a file that is replaced keeps its permissions, and its draft is never more open") {
  const TemporaryFolder folder;
  plant(folder / "private", "old");
  ::chmod((folder / "private").c_str(), 0600);
  io::AtomicFile file(folder / "private", io::Durable::no);
  CHECK(mode_of(folder / "private.partial") == 0600);
  file.write(std::string("new"));
  file.commit();
  CHECK(mode_of(folder / "private") == 0600);
  ::chmod((folder / "private").c_str(), 0444);
  write(folder / "private", "newer");
  CHECK(mode_of(folder / "private") == 0444);
}

TEST_CASE("a pipe in the place of a file is an error, not a wait") {
  const TemporaryFolder folder;
  const fs::path pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0666) == 0);
  CHECK(has(error_text([&] { io::read_text(pipe); }), "it is not a plain file"));
  CHECK(has(error_text([&] { io::load_safetensors(pipe); }), "it is not a plain file"));
  CHECK(has(error_text([&] { io::load_npy(pipe); }), "it is not a plain file"));
  CHECK(has(error_text([&] { data::read_idx(pipe); }), "it is not a plain file"));
}

TEST_CASE("a limit on what is read is kept") {
  const TemporaryFolder folder;
  plant(folder / "file", "12345");
  CHECK(io::read_text(folder / "file", 5) == "12345");
  CHECK(has(error_text([&] { io::read_text(folder / "file", 4); }),
            "has 5 bytes; 4 are the limit."));
}
