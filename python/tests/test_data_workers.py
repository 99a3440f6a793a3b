"""Loaders whose batches other processes make."""
import collections
import os
import random
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import grapnel as g
from grapnel.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

Pair = collections.namedtuple("Pair", ["image", "label"])


class Squares(Dataset):
    """Tensors, numbers and texts; index 7 can be made to fail in some way."""

    def __init__(self, size=20, fault=None, seven=7):
        self.size, self.fault, self.seven, self.table = size, fault, seven, g.arange(size, dtype=g.float32)

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if i == self.seven and self.fault:
            self.fault()
        return Pair(self.table[i] * g.ones(3), {"square": i * i, "name": str(i), "noise": random.random(), "drawn": g.rand(2), "pid": os.getpid()})


class Count(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        for i in range(self.size):
            yield g.full((2,), float(i)) + g.rand(2) * 0


class Unpicklable:
    def __reduce__(self):
        return _raise, ()


class OwnError(Exception):
    def __init__(self, code, words):
        super().__init__(code, words)
        self.code = code


def _raise():
    raise OSError("this comes from the other side")


def raise_own():
    raise OwnError(41, "no such picture")


def raise_unpicklable():
    raise type("Local", (Exception,), {})("made here")


def kill_itself():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    os._exit(3)


def sleep():
    time.sleep(60)


def plain(batch):
    return batch.image.tolist(), batch.label["square"].tolist(), batch.label["name"]


def test_batches_are_the_same_whatever_the_number_of_workers():
    seen = []
    for workers in (0, 1, 3):
        loader = DataLoader(Squares(), batch_size=3, shuffle=True, num_workers=workers)
        seen.append([[(plain(b), b.label["noise"].tolist(), b.label["drawn"].tolist()) for b in loader] for epoch in range(2) if g.manual_seed(epoch)])
    orders = [[[batch[0] for batch in epoch] for epoch in run] for run in seen]
    assert orders[0] == orders[1] == orders[2] and orders[0][0] != orders[0][1]
    assert seen[1] == seen[2], "what an example draws depends on its batch, and not on who makes it"
    assert len({tuple(map(tuple, batch[2])) for epoch in seen[2] for batch in epoch}) == 14


def test_other_processes_make_them_and_are_gone_afterwards():
    loader = DataLoader(Squares(8), batch_size=1, num_workers=2)
    pids = {b.label["pid"].item() for b in loader}
    assert len(pids) == 2 and os.getpid() not in pids
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_loop_that_is_left_ends_its_workers():
    for batch in DataLoader(Squares(1000), num_workers=2):
        pid = batch.label["pid"].item()
        break
    assert not os.path.exists(f"/proc/{pid}")


def test_workers_that_persist():
    loader = DataLoader(Squares(4), num_workers=2, persistent_workers=True)
    first, second = ({b.label["pid"].item() for b in loader} for _ in range(2))
    assert first == second
    for _ in loader:
        break
    assert {b.label["pid"].item() for b in loader} != first
    pids = {b.label["pid"].item() for b in loader}
    del loader
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_an_exception_comes_with_the_workers_traceback():
    with pytest.raises(OwnError) as caught:
        list(DataLoader(Squares(fault=raise_own), batch_size=4, num_workers=2))
    assert caught.value.code == 41
    assert "made batch 1" in caught.value.__notes__[0] and "in raise_own" in str(caught.value.__cause__)
    with pytest.raises(g.Error, match="a worker raised Local: made here"):
        list(DataLoader(Squares(fault=raise_unpicklable), num_workers=2))


def test_batches_before_the_exception_come_first():
    loader, seen = iter(DataLoader(Squares(fault=raise_own), num_workers=3)), []
    with pytest.raises(OwnError):
        for batch in loader:
            seen.append(batch.label["square"].item())
    assert seen == [i * i for i in range(7)]


@pytest.mark.parametrize("fault, how", [(kill_itself, "was killed by SIGKILL"), (leave, "ended with code 3")])
def test_a_worker_that_dies_is_an_error_and_no_hang(fault, how):
    start = time.monotonic()
    with pytest.raises(g.Error, match=f"worker 1 .process [0-9]+. {how} before it had made batch 7"):
        list(DataLoader(Squares(fault=fault), num_workers=2))
    assert time.monotonic() - start < 30


def test_a_worker_that_takes_too_long():
    with pytest.raises(g.Error, match="was given 3 s and has not made batch 7"):
        list(DataLoader(Squares(fault=sleep), num_workers=2, timeout=3))


def test_a_dataset_that_cannot_travel():
    with pytest.raises(OSError, match="from the other side"):
        list(DataLoader([Unpicklable()], num_workers=1))
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        list(DataLoader(Squares(fault=lambda: None), num_workers=1))


def note_worker(number):
    get_worker_info().dataset.size = 100 + number


class Asked(Squares):
    def __getitem__(self, i):
        info = get_worker_info()
        return info.id, info.num_workers, info.dataset.size, self is info.dataset


def test_workers_know_who_they_are():
    assert get_worker_info() is None
    found = [[x.item() for x in b] for b in DataLoader(Asked(4), num_workers=2, worker_init_fn=note_worker)]
    assert found == [[0, 2, 100, True], [1, 2, 101, True]] * 2


def test_an_iterable_dataset_keeps_its_order():
    wanted = [b.tolist() for b in DataLoader(Count(7), batch_size=2)]
    assert [b.tolist() for b in DataLoader(Count(7), batch_size=2, num_workers=2)] == wanted and len(wanted) == 4
    assert len(list(DataLoader(Count(7), batch_size=2, num_workers=2, drop_last=True))) == 3
    assert len(list(DataLoader(Count(3), batch_size=None, num_workers=1))) == 3
    assert list(DataLoader(Count(0), batch_size=2, num_workers=1)) == []


def test_batches_are_writable_and_their_own():
    x = g.randn(8, 4)
    first, second = DataLoader(TensorDataset(x), batch_size=4, num_workers=1)
    first[0].zero_()
    assert g.equal(second[0], x[4:]) and first[0].data_ptr() != second[0].data_ptr()


def doubled(examples):
    return g.stack(examples) * 2


def test_large_batches_and_other_collates():
    data = [g.full((300_000,), float(i)) for i in range(4)]
    found = [b[0, 0].item() for b in DataLoader(data, batch_size=1, num_workers=2, collate_fn=doubled, prefetch_factor=4)]
    assert found == [0.0, 2.0, 4.0, 6.0]


# --- programs of their own ---

PROGRAM = """
    import os, sys, time
    import grapnel as g
    from grapnel.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self): return 1000
        def __getitem__(self, i):
            time.sleep(0.05)
            return os.getpid()

    if {guard}:
        try:
            print("ready", flush=True)
            for batch in DataLoader(Slow(), num_workers=2):
                print(batch.item(), flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
"""


def start(tmp_path, guard="__name__ == '__main__'"):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(PROGRAM).format(guard=guard))
    program = subprocess.Popen([sys.executable, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
    assert guard == "True" or program.stdout.readline() == "ready\n"
    return program


def gone(pids, seconds=15):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(os.path.exists(f"/proc/{pid}") for pid in pids):
            return True
        time.sleep(0.05)
    return False


def test_ctrl_c_ends_everything_without_noise(tmp_path):
    program = start(tmp_path)
    pids = {int(program.stdout.readline()) for _ in range(4)}
    os.killpg(program.pid, signal.SIGINT)  # as a terminal does
    out, err = program.communicate(timeout=60)
    assert out.endswith("interrupted\n") and program.returncode == 0 and err == ""
    assert gone(pids)


@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.5])
def test_ctrl_c_while_workers_start(tmp_path, seconds):
    program = start(tmp_path)
    time.sleep(seconds)
    os.killpg(program.pid, signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert out.endswith("interrupted\n") and program.returncode == 0 and err == ""


def test_workers_are_gone_with_a_parent_that_is_killed(tmp_path):
    program = start(tmp_path)
    pids = {int(program.stdout.readline()) for _ in range(4)}
    program.kill()
    program.communicate(timeout=60)
    assert gone(pids)


def test_a_program_without_its_guard_is_told(tmp_path):
    program = start(tmp_path, guard="True")
    _, err = program.communicate(timeout=120)
    assert program.returncode != 0 and "__main__" in err and "ended with code 1" in err
