/// A progress bar with rate and remaining time; on anything but a terminal, a plain line now and then.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace examples {

class Progress {
 public:
  /// `unit` is what is counted, e.g. "images".
  Progress(std::string title, int64_t total, std::string unit)
      : title_(std::move(title)),
        unit_(std::move(unit)),
        total_(total),
        terminal_(isatty(STDOUT_FILENO) != 0) {}

  /// `done` so far; `note` is shown at the end of the line.
  void update(int64_t done, const std::string& note) {
    const auto now = Clock::now();
    const bool last = done >= total_;
    // A terminal is redrawn ten times a second, a log gets a line for every quarter of the way.
    const bool due =
        terminal_ ? now - drawn_ >= std::chrono::milliseconds(100) : done * 4 / total_ > quarter_;
    if (!due && !last) return;
    drawn_ = now;
    quarter_ = done * 4 / total_;

    const double seconds = elapsed(), rate = seconds > 0 ? static_cast<double>(done) / seconds : 0;
    const double left = rate > 0 ? static_cast<double>(total_ - done) / rate : 0;
    const std::string time = last ? "in " + duration(seconds) : duration(left) + " left";
    if (terminal_) {
      constexpr int width = 28;
      const int filled = static_cast<int>(done * width / total_);
      std::string bar;
      for (int i = 0; i < width; ++i) bar += i < filled ? "█" : "░";
      std::printf("\r%s  %s %3d %%  %7.0f %s/s  %s  %s\033[K%s", title_.c_str(), bar.c_str(), percent(done),
                  rate, unit_.c_str(), time.c_str(), note.c_str(), last ? "\n" : "");
    } else {
      std::printf("%s  %3d %%  %7.0f %s/s  %s  %s\n", title_.c_str(), percent(done), rate, unit_.c_str(),
                  time.c_str(), note.c_str());
    }
    std::fflush(stdout);
  }

  /// Seconds since the beginning.
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  int percent(int64_t done) const { return static_cast<int>(done * 100 / total_); }
  static std::string duration(double seconds) {
    char text[32];
    const int whole = static_cast<int>(std::min(seconds, 359999.0));
    if (whole < 60) std::snprintf(text, sizeof text, "%.1f s", seconds);
    else std::snprintf(text, sizeof text, "%d min %02d s", whole / 60, whole % 60);
    return text;
  }

  std::string title_, unit_;
  int64_t total_, quarter_ = 0;
  bool terminal_;
  Clock::time_point start_ = Clock::now(), drawn_ = {};
};

}  // namespace examples
