"""Datasets, samplers, and the loader that makes batches of them."""
from grapnel.data._info import get_worker_info  # noqa: F401
from grapnel.data.dataset import (  # noqa: F401
    ConcatDataset, Dataset, FashionMNIST, IterableDataset, Subset, TensorDataset, TextCorpus, random_split)
from grapnel.data.loader import DataLoader, default_collate  # noqa: F401
from grapnel.data.sampler import (  # noqa: F401
    BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)
