"""Datasets, samplers and loaders."""
import numpy as np
import pytest

import grapnel as g
from grapnel import data


class Squares(data.Dataset):
    def __init__(self, size=10):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return g.full((2,), float(i)), i * i


class Broken(Squares):
    def __getitem__(self, i):
        if i == 5:
            raise LookupError("example 5")
        return super().__getitem__(i)


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(g.arange(5))


def flat(loader):
    return [(x[:, 0].tolist(), y.tolist()) for x, y in loader]


def test_batches_come_in_order():
    loader = data.DataLoader(Squares(), batch_size=4)
    expected = [([0, 1, 2, 3], [0, 1, 4, 9]), ([4, 5, 6, 7], [16, 25, 36, 49]), ([8, 9], [64, 81])]
    assert flat(loader) == expected and flat(loader) == expected and len(loader) == 3
    assert flat(data.DataLoader(Squares(), batch_size=4, drop_last=True)) == expected[:2]


def test_shuffling_draws_from_the_generator():
    def order(seed):
        g.manual_seed(seed)
        return [int(x[0, 0]) for x, _ in data.DataLoader(Squares(), shuffle=True)]

    assert order(1) == order(1) != order(2) and sorted(order(1)) == list(range(10))


def test_errors_of_a_dataset_come_where_their_batch_is_due():
    got = []
    with pytest.raises(LookupError, match="example 5"):
        for batch in data.DataLoader(Broken(), batch_size=2):
            got.append(batch)
    assert len(got) == 2


def test_rows_of_tensors():
    x, y = g.arange(10).float().reshape(10, 1), g.arange(10)
    loader = data.DataLoader(data.TensorDataset(x, y), batch_size=3)
    assert [(a.flatten().tolist(), b.tolist()) for a, b in loader] == [([0, 1, 2], [0, 1, 2]), ([3, 4, 5], [3, 4, 5]), ([6, 7, 8], [6, 7, 8]), ([9], [9])]
    with pytest.raises(ValueError, match="rows"):
        data.TensorDataset(x, y[:3])


def test_streams():
    assert [b.tolist() for b in data.DataLoader(Stream(), batch_size=2)] == [[0, 1], [2, 3], [4]]
    with pytest.raises(ValueError):
        data.DataLoader(Stream(), shuffle=True)


def test_collation():
    batch = data.default_collate([{"a": 1, "b": (2.0, "x"), "c": np.ones(2)}, {"a": 3, "b": (4.0, "y"), "c": np.zeros(2)}])
    assert batch["a"].tolist() == [1, 3] and batch["b"][0].dtype is g.float64 and batch["b"][1] == ["x", "y"] and batch["c"].shape == (2, 2)
    with pytest.raises(TypeError):
        data.default_collate([object()])
    with pytest.raises(ValueError, match="as many parts"):
        data.default_collate([[1], [1, 2]])


def test_samplers():
    assert list(data.BatchSampler(data.SequentialSampler(range(5)), 2, False)) == [[0, 1], [2, 3], [4]]
    assert sorted(data.RandomSampler(range(5))) == [0, 1, 2, 3, 4] and len(list(data.RandomSampler(range(3), replacement=True, num_samples=9))) == 9
    assert set(data.WeightedRandomSampler([0, 1, 0, 2], 20)) <= {1, 3} and sorted(data.SubsetRandomSampler([4, 2])) == [2, 4]
    shares = [list(data.DistributedSampler(range(7), 2, r)) for r in (0, 1)]
    assert len(shares[0]) == len(shares[1]) == 4 and set(shares[0] + shares[1]) == set(range(7))


def test_datasets_of_datasets():
    both = Squares(3) + Squares(2)
    assert len(both) == 5 and both[3][1] == 0 and both[-1][1] == 1
    parts = data.random_split(Squares(10), [0.7, 0.3])
    assert [len(p) for p in parts] == [7, 3] and sorted(p[i][1] for p in parts for i in range(len(p))) == [i * i for i in range(10)]
    with pytest.raises(ValueError):
        data.random_split(Squares(3), [1, 1])


@pytest.mark.parametrize("arguments", [dict(num_workers=-1), dict(num_workers=1, multiprocessing_context="fork"), dict(sampler=range(3), shuffle=True), dict(batch_sampler=[[0]], batch_size=2), dict(batch_size=0), dict(batch_size=None, drop_last=True)])
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError):
        data.DataLoader(Squares(), **arguments)


# --- datasets of C++ ---


def test_a_text_is_cut_into_windows_by_threads(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("the cat sat on the mat. " * 20)
    text = g.data.TextCorpus(path, block=8, stride=3)
    x, y = text[5]
    assert x.shape == (8,) and g.equal(x[1:], y[:-1]) and text.decode(text.encode("cat on mat")) == "cat on mat"
    assert text.vocab_size == len(set(path.read_text())) and g.equal(text[-1][0], text[len(text) - 1][0])
    with pytest.raises(IndexError, match="out of range"):
        text[len(text)]
    seen = []
    for workers in (0, 1, 4):
        g.manual_seed(2)
        loader = g.data.DataLoader(text, batch_size=5, shuffle=True, num_workers=workers)
        seen.append([[part.tolist() for part in batch] for batch in loader])
    assert seen[0] == seen[1] == seen[2] and len(seen[0]) == len(loader)
    for batch in loader:
        break  # threads end with the loop
    part = g.data.Subset(text, [3, 1])
    (x, _), = g.data.DataLoader(part, batch_size=2, num_workers=1)  # no dataset of C++ any more: a process
    assert g.equal(x[0], text[3][0])


def test_images_of_clothes():
    try:
        images = g.data.FashionMNIST(train=False)
    except g.Error as error:
        pytest.skip(str(error).split("\n")[0])
    x, y = next(iter(g.data.DataLoader(images, batch_size=16, num_workers=2)))
    assert len(images) == 10000 and x.shape == (16, 1, 28, 28) and y.dtype is g.int64 and 0 <= x.min().item() <= x.max().item() <= 1
    assert g.equal(images[15][0], x[15]) and images[15][1].item() == y[15].item()
    with pytest.raises(g.Error, match="no such folder"):
        g.data.FashionMNIST("/nowhere")
