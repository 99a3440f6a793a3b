#include "command/words.h"

#include <algorithm>
#include <numeric>

namespace command {

std::string shell_quoted(const std::filesystem::path& path) {
  std::string text = path.string();
  if (text.starts_with('-')) text = "./" + text;
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=,./:@%";
  if (!text.empty() && text.find_first_not_of(plain) == text.npos) return text;
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += "'\\''";
    else out += c;
  }
  return out + "'";
}

namespace {
/// How many letters have to be put in, taken out or changed.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}
}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  constexpr size_t longest = 40;  // nobody means a command with a longer word
  if (word.size() > longest) return "";
  std::string best;
  size_t least = std::max<size_t>(1, (word.size() + 1) / 3) + 1;
  for (const std::string& other : known) {
    const size_t d = other.starts_with(word) && word.size() > 1 ? 0 : distance(word, other);
    if (d < least) least = d, best = other;
  }
  return best;
}

}  // namespace command
