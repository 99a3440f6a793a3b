"""Datasets: numbered examples."""
import bisect
import itertools
import os

from grapnel import _core


class Dataset:
    """Base of datasets that are written in Python: __getitem__(index) and __len__()."""

    def __getitem__(self, index):
        raise NotImplementedError("a dataset defines __getitem__(index)")

    def __add__(self, other):
        return ConcatDataset([self, other])

    def __repr__(self):
        return f"{type(self).__name__}({f'{len(self)} examples' if hasattr(self, '__len__') else ''})"


class IterableDataset(Dataset):
    """Examples in an order of their own: __iter__()."""

    def __iter__(self):
        raise NotImplementedError("an iterable dataset defines __iter__()")


class TensorDataset(Dataset):
    """Rows of tensors that are in memory."""

    def __init__(self, *tensors):
        if not tensors or any(t.shape[0] != tensors[0].shape[0] for t in tensors):
            raise ValueError("TensorDataset: the tensors have other numbers of rows" if tensors else "TensorDataset: there are no tensors")
        self.tensors = tensors

    def __len__(self):
        return self.tensors[0].shape[0]

    def __getitem__(self, index):
        return tuple(t[index] for t in self.tensors)


class NativeDataset(Dataset):
    """A dataset of the C++ library. Whole batches are made there, without the interpreter's lock."""

    def __init__(self, impl, *arguments):
        self._impl, self._arguments = impl, arguments

    def __reduce__(self):
        return type(self), self._arguments  # read again from its files

    def __len__(self):
        return self._impl.size()

    def __getitem__(self, index):
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range of {len(self)} examples")
        return tuple(part[0] for part in self._impl.batch([index % len(self)], 0))

    def batch(self, indices, seed=0):
        """The examples of these indices, stacked: (data, target)."""
        return self._impl.batch(indices, seed)


class FashionMNIST(NativeDataset):
    """28 x 28 grey images of ten classes: float32 [1, 28, 28] in [0, 1], and int64. MNIST's files have the same form."""

    def __init__(self, root=None, train=True):
        super().__init__(_core._data.fashion_mnist(None if root is None else os.fspath(root), train), root, train)


class TextCorpus(NativeDataset):
    """A text, or all files of a folder, cut into windows of characters: int64 [block], and the same one character later."""

    def __init__(self, path, block=128, stride=0):
        super().__init__(_core._data.text_corpus(os.fspath(path), block, stride), path, block, stride)

    vocab_size = property(lambda self: self._impl.vocab_size())

    def encode(self, text):
        return self._impl.encode(text)

    def decode(self, tokens):
        return self._impl.decode(list(tokens))


class Subset(Dataset):
    """Some examples of a dataset, in the given order."""

    def __init__(self, dataset, indices):
        self.dataset, self.indices = dataset, indices

    def __len__(self):
        return len(self.indices)

    def __getitem__(self, index):
        return self.dataset[self.indices[index]]


class ConcatDataset(Dataset):
    """One dataset after the other."""

    def __init__(self, datasets):
        self.datasets = list(datasets)
        self.cumulative_sizes = list(itertools.accumulate(len(d) for d in self.datasets))

    def __len__(self):
        return self.cumulative_sizes[-1]

    def __getitem__(self, index):
        if not -len(self) <= index < len(self):
            raise IndexError("index out of range of the dataset")
        index %= len(self)
        which = bisect.bisect_right(self.cumulative_sizes, index)
        return self.datasets[which][index - (self.cumulative_sizes[which - 1] if which else 0)]


def random_split(dataset, lengths, generator=None):
    """Datasets of the given sizes (or shares), drawn without replacement."""
    if sum(lengths) <= 1 + 1e-9 and all(isinstance(n, float) for n in lengths):
        lengths = [int(n * len(dataset)) for n in lengths]
        for i in range(len(dataset) - sum(lengths)):
            lengths[i % len(lengths)] += 1
    if sum(lengths) != len(dataset):
        raise ValueError(f"random_split: lengths {list(lengths)} add up to {sum(lengths)}, and the dataset has {len(dataset)} examples")
    order = _core.randperm(len(dataset)).tolist() if generator is None else _core.randperm(len(dataset), generator=generator).tolist()
    ends = list(itertools.accumulate(lengths))
    return [Subset(dataset, order[end - n:end]) for n, end in zip(lengths, ends)]
