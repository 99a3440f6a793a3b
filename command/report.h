/// The report: run folders as one page that needs nothing else.
#pragma once

#include <filesystem>
#include <vector>

namespace command {

/// Reads the runs and writes the page, in one piece.
void write_report(const std::vector<std::filesystem::path>& runs,
                  const std::filesystem::path& page);

}  // namespace command
