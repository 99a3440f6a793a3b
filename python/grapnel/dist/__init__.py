"""Several ranks that train one model: groups, collectives, and the wrapper that averages gradients.

Ranks are threads of this process inside `run_threads(n, f)`, or processes that `mpirun` started.
"""
import contextlib

from grapnel import _core, nn
from grapnel._core._dist import Future, GradBucket, ProcessGroup, Work  # noqa: F401


def run_threads(count, function):
    """Calls function(group) on `count` threads, each a rank, and waits for them. What one raises reaches the caller."""
    _core._dist._run_threads(count, function)


def init():
    """The group of all ranks: MPI's when mpirun or srun started this process, else that of run_threads, else a group of one."""
    return _core._dist._init()


class DistributedDataParallel(nn.Module):
    """A module whose gradients are averaged over all ranks during the backward pass."""

    def __init__(self, module, process_group=None, *, bucket_cap_mb=None, find_unused_parameters=False, static_graph=False,
                 gradient_as_bucket_view=False, broadcast_buffers=True):
        super().__init__()
        self.module = module
        size = None if bucket_cap_mb is None else int(bucket_cap_mb * 1024 * 1024)
        self._ranks = _core._dist._DataParallel(module, process_group or init(), size, find_unused_parameters, static_graph, gradient_as_bucket_view,
                                                broadcast_buffers)

    def forward(self, *args, **kwargs):
        self._ranks.before_forward()
        return self._ranks.after_forward(self.module(*args, **kwargs))

    def register_comm_hook(self, state, hook):
        """hook(state, bucket) -> Future decides what is sent for a bucket. Once, before the first backward pass, alike on all ranks."""
        self._ranks.register_comm_hook(state, hook)

    def register_builtin_comm_hook(self, name):
        """A hook of the library by its name: "allreduce", "fp16_compress", "quantize_per_tensor", "noop", ..."""
        self._ranks.register_builtin_comm_hook(name)

    @contextlib.contextmanager
    def no_sync(self):
        """Inside, gradients stay local and only accumulate."""
        self._ranks.enter_no_sync()
        try:
            yield
        finally:
            self._ranks.leave_no_sync()
