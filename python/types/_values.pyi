"""Sizes and pairs."""
class Size(tuple[int, ...]):
    def numel(self) -> int: ...

class ValuesIndices(NamedTuple):
    values: Tensor
    indices: Tensor
