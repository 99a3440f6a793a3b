"""What load_state_dict found."""
class IncompatibleKeys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]
