"""What a dataset can ask about the process that it is in. Apart from the worker's program, which only workers import."""

info = None


class WorkerInfo:
    """Which worker process this is, of how many, with which dataset; and what it was seeded with for this batch."""

    def __init__(self, id, num_workers, dataset):
        self.id, self.num_workers, self.dataset, self.seed = id, num_workers, dataset, None


def get_worker_info():
    """In a worker process, which one it is; None elsewhere."""
    return info
