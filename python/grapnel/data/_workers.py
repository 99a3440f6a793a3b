"""The worker processes of a loader, as their parent sees them.

Batch k is made by worker k % count, and each worker answers in the order in which it was asked, so batches come in their order whatever the number of
workers. Every worker has a connection of its own: one that dies takes no lock with it, and is noticed at once.
"""
import collections
import contextlib
import multiprocessing
import multiprocessing.connection
import pickle
import signal
import time
from multiprocessing import resource_tracker

from grapnel.data import _messages, _worker
from grapnel.errors import Error

_ANSWERS = "A worker starts by importing the main module again, so what a program runs has to stand behind `if __name__ == \"__main__\":`."


class WorkerTraceback(Exception):
    """Where an exception was raised, in the process of a worker."""

    def __str__(self):
        return "\n" + self.args[0]


@contextlib.contextmanager
def _without_interrupts():
    """A process that is started inside begins without Ctrl-C, until it can say that it wants none. It waits for this thread meanwhile."""
    resource_tracker.ensure_running()  # when it starts it switches interrupts on again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Member:
    def __init__(self, context, number, count):
        self.number = number
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_worker.main, args=(theirs, number, count), daemon=True, name=f"grapnel-data-{number}")
        with _without_interrupts():
            self.process.start()
        theirs.close()
        self.begun = False

    def send(self, packed):
        try:
            _messages.send(self.connection, packed)
        except OSError:
            pass  # it has died: what it made before is taken first, and the answer that is missing says so

    def ask(self, what, *arguments):
        with _messages.Packed.of((what, *arguments)) as packed:
            self.send(packed)

    def answer(self, doing, timeout=0):
        """What it answers; what it raised is raised here."""
        try:
            ready = multiprocessing.connection.wait([self.connection, self.process.sentinel], timeout or None)
            if not ready:
                raise Error(f"DataLoader: worker {self.number} (process {self.process.pid}) was given {timeout} s and has not {doing}.")
            if self.connection not in ready and not self.connection.poll(0):
                raise EOFError
            packed = _messages.receive(self.connection)
        except (EOFError, ConnectionError):
            self.fail(doing)
        self.begun = True
        with packed:
            good, result = packed.unpacked()
        if good:
            return result
        content, line, text = result
        error = pickle.loads(content) if content is not None else Error(f"DataLoader: a worker raised {line}")
        error.add_note(f"Raised in worker {self.number} of a DataLoader, which should have {doing}.")
        raise error from WorkerTraceback(text)

    def fail(self, doing):
        self.process.join(5)
        code = self.process.exitcode
        how = "is not there any more" if code is None else f"ended with code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
        raise Error(f"DataLoader: worker {self.number} (process {self.process.pid}) {how} before it had {doing}." + ("" if self.begun else "\n" + _ANSWERS)) from None


class Workers:
    """Processes with the dataset in them."""

    def __init__(self, count, what, seed, method, timeout):
        self.timeout = timeout
        self.members = []
        context = multiprocessing.get_context(method or "spawn")
        with _messages.Packed.of((*what, seed)) as packed:  # one copy of its tensors for all of them
            try:
                for number in range(count):
                    self.members.append(_Member(context, number, count))
                for member in self.members:
                    member.send(packed)
                for member in self.members:
                    member.answer("got its dataset", timeout)
            except BaseException:
                self.close()
                raise

    def batches(self, order, ahead, seed):
        """Batches of the indices that `order` gives."""
        numbered, waiting = enumerate(order), collections.deque()

        def ask_for_one():
            for number, indices in numbered:
                self.members[number % len(self.members)].ask("batch", number, indices, seed)
                waiting.append(number)
                return True
            return False

        while len(waiting) < ahead * len(self.members) and ask_for_one():
            pass
        while waiting:
            number = waiting.popleft()
            batch = self.members[number % len(self.members)].answer(f"made batch {number}", self.timeout)
            ask_for_one()
            yield batch

    def following(self, count, drop_last, ahead, seed):
        """Batches of a dataset with an order of its own: the first worker's."""
        (worker,) = self.members
        worker.ask("begin", seed)
        worker.answer("begun its dataset", self.timeout)
        for _ in range(ahead):
            worker.ask("following", count, drop_last)
        number, waiting = 0, ahead
        while waiting:
            found = worker.answer(f"made batch {number}", self.timeout)
            waiting -= 1
            if found:
                worker.ask("following", count, drop_last)
                number, waiting = number + 1, waiting + 1
                yield found[0]

    def close(self):
        """Ends them, at once if they do not end by themselves."""
        for member in self.members:
            member.connection.close()
        end = time.monotonic() + 2
        for member in self.members:
            member.process.join(max(0, end - time.monotonic()))
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.process.close()
        self.members = []
