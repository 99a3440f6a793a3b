"""The backward graph."""
def get_gradient_edge(tensor: Tensor) -> GradientEdge: ...
def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[[Any], None], *, mode: Literal['all', 'any'] = 'all') -> RemovableHandle: ...

class GradientEdge(NamedTuple):
    node: Node
    output_nr: int
