"""Runs one file of tests with pytest and ends with the line that tools/run_tests counts."""
import sys

import pytest


class Count:
    passed = failed = 0

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed += 1
        elif report.failed:
            self.failed += 1

    def pytest_collectreport(self, report):
        self.failed += report.failed


if __name__ == "__main__":
    count = Count()
    status = pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[count])
    print(f"{count.passed} passed, {max(count.failed, int(status != 0))} failed")
    sys.exit(status)
