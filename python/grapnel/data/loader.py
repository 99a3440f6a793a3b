"""DataLoader: batches of a dataset, made when they are asked for, or ahead of time by workers."""
import collections
import collections.abc
import itertools
import weakref

from grapnel import _core
from grapnel._core import Tensor
from grapnel.data.dataset import IterableDataset, NativeDataset
from grapnel.data.sampler import BatchSampler, RandomSampler, SequentialSampler, _random


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
    """Batches of a dataset. With `num_workers`, processes make them ahead of time, or threads if the dataset is C++'s; the batches are the same ones."""

    def __init__(self, dataset, batch_size=1, shuffle=None, sampler=None, batch_sampler=None, num_workers=0, collate_fn=None, *, drop_last=False,
                 timeout=0, worker_init_fn=None, multiprocessing_context=None, generator=None, prefetch_factor=2, persistent_workers=False):
        if not isinstance(num_workers, int) or num_workers < 0 or prefetch_factor < 1 or timeout < 0:
            raise ValueError(f"DataLoader: num_workers and timeout are 0 or more, and prefetch_factor at least 1; got {num_workers}, {timeout} and "
                             f"{prefetch_factor}")
        if multiprocessing_context == "fork":
            raise ValueError("DataLoader: a fork has none of the library's threads, and may find their locks taken; take 'spawn' or 'forkserver'")
        if persistent_workers and not num_workers:
            raise ValueError("DataLoader: persistent_workers needs num_workers")
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
        self.timeout, self.worker_init_fn, self.multiprocessing_context = timeout, worker_init_fn, multiprocessing_context
        self.prefetch_factor, self.persistent_workers, self._workers = prefetch_factor, persistent_workers, None
        self._iterable, self.batch_size = iterable, None if batch_sampler is not None else batch_size
        if not iterable:
            self.sampler = sampler if sampler is not None else RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            self.batch_sampler = batch_sampler if batch_sampler is not None else None if batch_size is None else BatchSampler(self.sampler, batch_size, drop_last)
        self._default_collate = collate_fn is None
        self.collate_fn = collate_fn or (_same if batch_size is None and batch_sampler is None else default_collate)

    def __len__(self):
        if self._iterable:
            length = len(self.dataset)
            return length if self.batch_size is None else length // self.batch_size if self.drop_last else -(-length // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def __repr__(self):
        return f"DataLoader({type(self.dataset).__name__}, batch_size={self.batch_size}, num_workers={self.num_workers})"

    def __iter__(self):
        # Drawn with and without workers, so that the order that a sampler draws next does not depend on them.
        seed = _random(self.generator).getrandbits(62)
        if isinstance(self.dataset, NativeDataset) and self._default_collate and self.batch_sampler is not None:
            return self._native(seed)
        return self._with_workers(seed) if self.num_workers else self._here()

    def _order(self):
        """The indices of a batch, or one index, for each batch. From processes come lists."""
        return self.sampler if self.batch_sampler is None else (list(indices) for indices in self.batch_sampler)

    def _here(self):
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

    def _with_workers(self, seed):
        from grapnel.data._workers import Workers  # what it needs is much to import for a program without workers

        workers, self._workers = self._workers, None  # two loops at a time have workers of their own
        if workers is None:
            what = self.dataset, self.collate_fn, self.worker_init_fn
            # Examples that come one after the other come from one process, or their order would depend on how many there are.
            workers = Workers(1 if self._iterable else self.num_workers, what, seed, self.multiprocessing_context, self.timeout)
            if self.persistent_workers:
                weakref.finalize(self, workers.close)
        finished = False
        try:
            if self._iterable:
                yield from workers.following(self.batch_size, self.drop_last, self.prefetch_factor * self.num_workers, seed)
            else:
                yield from workers.batches(self._order(), self.prefetch_factor, seed)
            finished = True
        finally:
            if finished and self.persistent_workers and self._workers is None:
                self._workers = workers
            else:
                workers.close()

    def _native(self, seed):
        if not self.num_workers:
            for indices in self.batch_sampler:
                yield self.dataset.batch(list(indices), seed)
            return
        from concurrent.futures import ThreadPoolExecutor

        threads = ThreadPoolExecutor(self.num_workers, "grapnel-data")
        try:
            waiting = collections.deque()
            for indices in self.batch_sampler:
                waiting.append(threads.submit(self.dataset.batch, list(indices), seed))
                if len(waiting) > self.prefetch_factor * self.num_workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            threads.shutdown(cancel_futures=True)
