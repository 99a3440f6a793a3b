/// Who could have written a file, and what is loaded from where.
#include "grapnel/base/trusted_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/io/temporary_folder.h"

using namespace grapnel;
namespace fs = std::filesystem;

namespace {
bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

/// TemporaryFolder/above/near/file, which nobody else can write.
struct Tree {
  TemporaryFolder root;
  fs::path above = root / "above", near = above / "near", file = near / "file.so";
  Tree() {
    fs::create_directories(near);
    std::ofstream(file) << "code";
    for (const fs::path& folder : {above, near}) ::chmod(folder.c_str(), 0755);
    ::chmod(file.c_str(), 0644);
  }
};
}  // namespace

TEST_CASE("a file is trusted if nobody else can have written it or put it there") {
  const Tree tree;
  CHECK(base::why_untrusted(tree.file) == "");
  CHECK(base::why_untrusted("/bin/sh") == "");
  CHECK(has(base::why_untrusted(tree.near / "none"), "No such file"));
  CHECK(has(base::why_untrusted(tree.near), "is no plain file"));
}

TEST_CASE("a file that others may write to is not trusted, nor one in a folder of theirs") {
  const Tree tree;
  for (const fs::path& place : {tree.file, tree.near, tree.above})
    for (const mode_t more : {S_IWGRP, S_IWOTH}) {
      CAPTURE(place.string());
      struct stat before;
      REQUIRE(::stat(place.c_str(), &before) == 0);
      ::chmod(place.c_str(), before.st_mode | more);
      CHECK(has(base::why_untrusted(tree.file), "can be written by others (mode "));
      ::chmod(place.c_str(), before.st_mode);
    }
  CHECK(base::why_untrusted(tree.file) == "");
}

TEST_CASE("in a sticky folder, what is ours stays ours; but a file right in it is not trusted") {
  const Tree tree;
  ::chmod(tree.above.c_str(), 01777);
  CHECK(base::why_untrusted(tree.file) == "");
  ::chmod(tree.near.c_str(), 01777);
  CHECK(has(base::why_untrusted(tree.file), "near can be written by others (mode 1777)"));
}

TEST_CASE("a link to a trusted file is trusted only where nobody else can change the link") {
  const Tree tree;
  const fs::path open = tree.root / "open", link = open / "link.so";
  fs::create_directory(open);
  fs::create_symlink(tree.file, link);
  ::chmod(open.c_str(), 0755);
  CHECK(base::why_untrusted(link) == "");
  ::chmod(open.c_str(), 0777);
  CHECK(has(base::why_untrusted(link), "open can be written by others"));
}

TEST_CASE("a file or folder of another user is not trusted") {
  if (geteuid() != 0) return;  // only root can give a file away
  const Tree tree;
  for (const fs::path& place : {tree.file, tree.near, tree.above}) {
    REQUIRE(::chown(place.c_str(), 65534, 65534) == 0);
    CHECK(has(base::why_untrusted(tree.file), "belongs to user 65534"));
    REQUIRE(::chown(place.c_str(), 0, 0) == 0);
  }
  CHECK(base::why_untrusted(tree.file) == "");
}
