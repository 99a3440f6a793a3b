/// A progress bar with rate and remaining time; where nobody watches, a plain line now and then.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace command {

class Progress {
 public:
  enum class Style : uint8_t { bar, lines, none };

  /// `unit` is what is counted, e.g. "images". Counting begins at `first`, for a run that goes on.
  Progress(std::string title, int64_t first, int64_t total, std::string unit, Style style)
      : title_(std::move(title)),
        unit_(std::move(unit)),
        first_(first),
        total_(std::max<int64_t>(total, 1)),
        quarter_(first * 4 / total_),
        style_(style) {}

  /// `done` so far; `note` is shown at the end of the line.
  void update(int64_t done, const std::string& note) {
    const auto now = Clock::now();
    const bool last = done >= total_;
    // A terminal is redrawn ten times a second, a log gets a line for every quarter of the way.
    const bool due = style_ == Style::bar ? now - drawn_ >= std::chrono::milliseconds(100)
                                          : done * 4 / total_ > quarter_;
    if (style_ == Style::none || (!due && !last)) return;
    drawn_ = now;
    quarter_ = done * 4 / total_;

    const double seconds = elapsed(),
                 rate = seconds > 0 ? static_cast<double>(done - first_) / seconds : 0;
    const double left = rate > 0 ? static_cast<double>(total_ - done) / rate : 0;
    const std::string time = last ? "in " + duration(seconds) : duration(left) + " left";
    if (style_ == Style::bar) {
      constexpr int width = 28;
      const int filled = static_cast<int>(done * width / total_);
      std::string bar;
      for (int i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
      std::printf("\r%s  %s %3d %%  %7.0f %s/s  %s  %s\033[K%s", title_.c_str(), bar.c_str(),
                  percent(done), rate, unit_.c_str(), time.c_str(), note.c_str(), last ? "\n" : "");
      open_ = !last;
    } else {
      std::printf("%s  %3d %%  %7.0f %s/s  %s  %s\n", title_.c_str(), percent(done), rate,
                  unit_.c_str(), time.c_str(), note.c_str());
    }
    std::fflush(stdout);
  }
  /// Leaves the line of a bar that did not get to its end.
  ~Progress() {
    if (open_) std::printf("\n");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Seconds since the beginning.
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  static std::string duration(double seconds) {
    char text[32];
    const int whole = static_cast<int>(std::min(seconds, 359999.0));
    if (whole < 60) std::snprintf(text, sizeof text, "%.1f s", seconds);
    else std::snprintf(text, sizeof text, "%d min %02d s", whole / 60, whole % 60);
    return text;
  }

 private:
  using Clock = std::chrono::steady_clock;
  int percent(int64_t done) const { return static_cast<int>(done * 100 / total_); }

  std::string title_, unit_;
  int64_t first_, total_, quarter_;
  Style style_;
  bool open_ = false;
  Clock::time_point start_ = Clock::now(), drawn_ = {};
};

}  // namespace command
