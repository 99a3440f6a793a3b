"""Anomaly mode: nodes remember where the forward op was called, and NaNs are caught where they are born."""
from grapnel import _core


class detect_anomaly:
    """Anomaly mode for the time of a `with` block."""

    def __init__(self, check_nan=True):
        self.check_nan = check_nan
        self.guards = []

    def __enter__(self):
        self.guards.append(_core._DetectAnomaly(self.check_nan))

    def __exit__(self, *error):
        if self.guards:
            self.guards.pop()


class set_detect_anomaly:
    """Switches anomaly mode on or off: at once, and as `with` until the block ends."""

    def __init__(self, mode, check_nan=True):
        self.before = _core.is_anomaly_enabled(), _core.is_anomaly_check_nan_enabled()
        _core.set_anomaly_enabled(mode, check_nan)

    def __enter__(self):
        pass

    def __exit__(self, *error):
        _core.set_anomaly_enabled(*self.before)
