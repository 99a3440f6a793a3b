"""Datasets, samplers, and the loader that makes batches of them."""
from grapnel.data.dataset import ConcatDataset, Dataset, IterableDataset, Subset, TensorDataset, random_split  # noqa: F401
from grapnel.data.loader import DataLoader, default_collate  # noqa: F401
from grapnel.data.sampler import (  # noqa: F401
    BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler)
