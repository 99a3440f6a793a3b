"""The program of a worker process: batches for the loader of its parent.

One thread listens, so that the parent never waits for a worker that is busy, and so that a worker whose parent is gone ends, too.
"""
import os
import pickle
import queue
import random
import signal
import sys
import threading
import time
import traceback

from grapnel import _core
from grapnel.data import _info, _messages

_GRACE = 10  # seconds for a batch that nobody wants any more


def _listen(connection, tasks):
    try:
        while True:
            tasks.put(_messages.receive(connection))
    except (EOFError, OSError, RuntimeError):
        pass  # the parent is gone, or wants nothing more
    tasks.put(None)
    time.sleep(_GRACE)
    os._exit(1)


def seed_everything(*numbers):
    """The same draws for the same numbers, whichever process draws."""
    seed = random.Random(repr(numbers)).getrandbits(63)
    random.seed(seed)
    _core.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    if _info.info is not None:
        _info.info.seed = seed


class _Source:
    """Makes what tasks ask for."""

    def __init__(self, dataset, collate, init, number):
        self.dataset, self.collate, self.examples = dataset, collate, None
        if init is not None:
            init(number)

    def begin(self, seed):
        """A new pass over a dataset with an order of its own."""
        seed_everything(seed)
        self.examples = iter(self.dataset)

    def following(self, count, drop_last):
        """The next batch of such a dataset, in a list; or nothing."""
        examples = []
        for example in self.examples:
            examples.append(example)
            if len(examples) == (count or 1):
                break
        if not examples or (drop_last and len(examples) < count):
            return []
        return [self.collate(examples if count else examples[0])]

    def batch(self, number, indices, seed):
        seed_everything(seed, number)
        if isinstance(indices, list):
            return self.collate([self.dataset[i] for i in indices])
        return self.collate(self.dataset[indices])


def _described(error):
    """An exception as it travels: itself if it can be pickled, and its text."""
    text = "".join(traceback.format_exception(error))
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:
        content = None
    return content, f"{type(error).__name__}: {error}", text


def main(connection, number, count):
    """Until the parent closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    _core.set_num_threads(1)
    tasks = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(connection, tasks), daemon=True).start()
    source = None
    while (task := tasks.get()) is not None:
        try:
            if source is None:
                dataset, collate, init, seed = task.unpacked(private=True)
                _info.info = _info.WorkerInfo(number, count, dataset)
                seed_everything(seed, "worker", number)
                source = _Source(dataset, collate, init, number)
                result = None
            else:
                what, *arguments = task.unpacked()
                result = getattr(source, what)(*arguments)
            answer = _messages.Packed.of((True, result))
        except Exception as error:
            answer = _messages.Packed.of((False, _described(error)))
        task.close()
        with answer:
            try:
                _messages.send(connection, answer)
            except OSError:
                return  # nobody is there to take it
