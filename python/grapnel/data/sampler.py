"""Samplers: the order of the examples."""
import math
import random

from grapnel import _core


class Sampler:
    """Base of samplers: __iter__() gives indices."""

    def __init__(self, data_source=None):
        pass


class SequentialSampler(Sampler):
    """0, 1, 2, ..."""

    def __init__(self, data_source):
        self.data_source = data_source

    def __iter__(self):
        return iter(range(len(self.data_source)))

    def __len__(self):
        return len(self.data_source)


def _random(generator):
    """A source of Python's numbers, seeded by a generator of the library's, the default one unless told otherwise."""
    numbers = _core.randint(0, 2**62, (1,), dtype=_core.dtype.int64) if generator is None else _core.randint(0, 2**62, (1,), generator)
    return random.Random(int(numbers.item()))


class RandomSampler(Sampler):
    """All examples in another order every time."""

    def __init__(self, data_source, replacement=False, num_samples=None, generator=None):
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.num_samples = num_samples if num_samples is not None else len(data_source)

    def __iter__(self):
        source, size = _random(self.generator), len(self.data_source)
        if self.replacement:
            yield from (source.randrange(size) for _ in range(self.num_samples))
            return
        order = list(range(size))
        source.shuffle(order)
        for start in range(0, self.num_samples, size):
            yield from order[:self.num_samples - start]

    def __len__(self):
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """The given indices in another order every time."""

    def __init__(self, indices, generator=None):
        self.indices, self.generator = indices, generator

    def __iter__(self):
        order = list(self.indices)
        _random(self.generator).shuffle(order)
        return iter(order)

    def __len__(self):
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Draws in proportion to weights."""

    def __init__(self, weights, num_samples, replacement=True, generator=None):
        self.weights, self.num_samples, self.replacement, self.generator = [float(w) for w in weights], num_samples, replacement, generator

    def __iter__(self):
        source = _random(self.generator)
        if self.replacement:
            return iter(source.choices(range(len(self.weights)), self.weights, k=self.num_samples))
        keys = sorted(((source.random() ** (1 / w) if w > 0 else -1, i) for i, w in enumerate(self.weights)), reverse=True)
        return iter([i for _, i in keys[:self.num_samples]])

    def __len__(self):
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of batch_size indices."""

    def __init__(self, sampler, batch_size, drop_last):
        if not isinstance(batch_size, int) or batch_size <= 0:
            raise ValueError(f"BatchSampler: batch_size is a whole number above 0; got {batch_size!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self):
        batch = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self):
        return len(self.sampler) // self.batch_size if self.drop_last else math.ceil(len(self.sampler) / self.batch_size)


class DistributedSampler(Sampler):
    """The share of one rank: equally many for all. set_epoch() gives another order."""

    def __init__(self, dataset, num_replicas, rank, shuffle=True, seed=0, drop_last=False):
        self.dataset, self.shuffle, self.seed, self.drop_last, self.epoch = dataset, shuffle, seed, drop_last, 0
        self.num_replicas, self.rank = num_replicas, rank
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"DistributedSampler: there is no rank {self.rank} among {self.num_replicas}")
        size = len(dataset)
        self.num_samples = size // self.num_replicas if drop_last else math.ceil(size / self.num_replicas)

    def __iter__(self):
        order = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed * 1_000_003 + self.epoch).shuffle(order)
        total = self.num_samples * self.num_replicas
        while len(order) < total:
            order += order[:total - len(order)]
        return iter(order[self.rank:total:self.num_replicas])

    def __len__(self):
        return self.num_samples

    def set_epoch(self, epoch):
        self.epoch = epoch
