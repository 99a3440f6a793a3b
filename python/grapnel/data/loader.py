"""DataLoader: batches of a dataset, made when they are asked for."""
import collections.abc
import itertools

from grapnel import _core
from grapnel._core import Tensor
from grapnel.data.dataset import IterableDataset
from grapnel.data.sampler import BatchSampler, RandomSampler, SequentialSampler


def default_collate(batch):
    """Examples stacked along a new first dimension: tensors, arrays, numbers, and tuples, lists and dicts of them; strings stay a list."""
    first = batch[0]
    if isinstance(first, Tensor):
        return _core.stack(list(batch), 0)
    if isinstance(first, bool) or type(first).__module__ == "numpy" and not hasattr(first, "__len__"):
        return _core.tensor([x.item() if hasattr(x, "item") else x for x in batch])
    if hasattr(first, "__array__"):
        return _core.stack([_core.as_tensor(x) for x in batch], 0)
    if isinstance(first, float):
        return _core.tensor(batch, dtype=_core.dtype.float64)
    if isinstance(first, int):
        return _core.tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, collections.abc.Mapping):
        return {key: default_collate([x[key] for x in batch]) for key in first}
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(part)) for part in zip(*batch)))
    if isinstance(first, (tuple, list)):
        if any(len(x) != len(first) for x in batch):
            raise ValueError(f"default_collate: the examples of a batch have as many parts each; got {sorted({len(x) for x in batch})}")
        return [default_collate(list(part)) for part in zip(*batch)]
    raise TypeError(f"default_collate: there is no way to stack objects of type {type(first).__name__}; give the DataLoader a collate_fn")


def _same(value):
    return value


class DataLoader:
    """Batches of a dataset, made in this thread when they are asked for."""

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None, *, drop_last=False,
                 generator=None):
        if num_workers != 0:
            raise ValueError(f"DataLoader: batches are made in the thread that asks for them; take num_workers=0, got {num_workers}")
        iterable = isinstance(dataset, IterableDataset)
        if iterable and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader: an IterableDataset has an order of its own; leave out shuffle, sampler and batch_sampler")
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: a sampler decides the order; leave out shuffle")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler is not None or drop_last):
            raise ValueError("DataLoader: a batch_sampler decides what is in a batch; leave out batch_size, shuffle, sampler and drop_last")
        if batch_size is None and drop_last:
            raise ValueError("DataLoader: drop_last is about batches; with batch_size=None there are none")
        self.dataset, self.num_workers, self.drop_last, self.generator = dataset, num_workers, drop_last, generator
        self._iterable, self.batch_size = iterable, None if batch_sampler is not None else batch_size
        if not iterable:
            self.sampler = sampler if sampler is not None else RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            self.batch_sampler = batch_sampler if batch_sampler is not None else None if batch_size is None else BatchSampler(self.sampler, batch_size, drop_last)
        self.collate_fn = collate_fn or (_same if batch_size is None and batch_sampler is None else default_collate)

    def __len__(self):
        if self._iterable:
            length = len(self.dataset)
            return length if self.batch_size is None else length // self.batch_size if self.drop_last else -(-length // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __iter__(self):
        if self._iterable:
            examples = iter(self.dataset)
            while True:
                batch = list(itertools.islice(examples, self.batch_size or 1))
                if not batch or (self.drop_last and len(batch) < self.batch_size):
                    return
                yield self.collate_fn(batch if self.batch_size else batch[0])
        elif self.batch_sampler is None:
            for index in self.sampler:
                yield self.collate_fn(self.dataset[index])
        else:
            for indices in self.batch_sampler:
                yield self.collate_fn([self.dataset[i] for i in indices])
