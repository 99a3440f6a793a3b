#!/usr/bin/env python3
"""The grapnel command as people meet it: help, runs, Ctrl-C, resuming, pipes, and every kind of bad input.

    check_command.py BUILD [PART OF A TEST'S NAME]      BUILD holds command/grapnel
"""
import gzip
import json
import os
import pathlib
import pty
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

GRAPNEL = str(pathlib.Path(sys.argv[1]).resolve() / "command" / "grapnel")
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def grapnel(*words, status=0, env=None, **more):
    """Runs the command; its end has to be as expected. Returns what it printed and what it complained about."""
    done = subprocess.run([GRAPNEL, *map(str, words)], capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, **(env or {})}, **more)
    assert done.returncode == status, f"{words}: status {done.returncode}, expected {status}\n{done.stdout}\n{done.stderr}"
    return done.stdout, done.stderr


def small_images(folder, train=256, test_count=64):
    """Images of the form of Fashion-MNIST, whose brightness gives their class away."""
    folder.mkdir()
    draw = random.Random(1)
    for part, count in (("train", train), ("t10k", test_count)):
        labels = [draw.randrange(10) for _ in range(count)]
        images = b"".join(bytes([25 * label + draw.randrange(20)] * 784) for label in labels)
        with gzip.open(folder / f"{part}-images-idx3-ubyte.gz", "wb") as out:
            out.write(struct.pack(">IIII", 0x803, count, 28, 28) + images)
        with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz", "wb") as out:
            out.write(struct.pack(">II", 0x801, count) + bytes(labels))
    return folder


def train(work, name, *words, status=0, model="mlp", **more):
    out = grapnel("train", "--data", work / "data", "--model", model, "--batch", 32, "--run", work / name, *words, status=status, **more)
    return (*out, work / name)


def results(run):
    return json.loads((run / "run.json").read_text())["results"]


def losses(run):
    return [line for line in (run / "metrics.jsonl").read_text().splitlines() if "loss" in line]


def interrupt(work, name, signals, *words):
    """Starts a long run and sends signals once it is under way; returns the exit status and its complaints."""
    process = subprocess.Popen([GRAPNEL, "train", "--data", str(work / "data"), "--model", "mlp", "--batch", "32", "--steps", "4000",
                                "--save-every", "5", "--run", str(work / name), *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    checkpoint = work / name / "checkpoint.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    for number in signals:
        process.send_signal(number)
    _, complaints = process.communicate(timeout=120)
    return process.returncode, complaints


@test
def help_is_for_newcomers(work):
    out, _ = grapnel("--help")
    for word in ("train", "report", "graph", "doctor", "demo"):
        assert word in out
        assert "--help" in grapnel(word, "--help")[0]
    assert "Ctrl-C" in grapnel("train", "--help")[0]
    assert grapnel("--version")[0].startswith("grapnel 0.")


@test
def wrong_flags_end_with_status_2_and_name_the_flag(work):
    assert "--colour" in grapnel("train", "--colour", status=2)[1]
    assert "resnet" in grapnel("train", "--model", "resnet", status=2)[1]
    complaint = grapnel(status=2)[1]
    assert "a command is missing" in complaint and "train, report, graph, doctor, demo" in complaint
    complaint = grapnel("--resume", status=2)[1]
    assert "a command comes first, before '--resume'. Did you mean 'grapnel train --resume'?" in complaint, complaint
    assert "train, report, graph, doctor, demo" in complaint
    assert "'grapnel train --steps' or 'grapnel demo --steps'" in grapnel("--steps=3", "train", status=2)[1]
    assert "before '--colour'.\nThe commands are" in grapnel("--colour", status=2)[1]
    for word, meant in (("trian", "train"), ("reprot", "report"), ("doc", "doctor")):
        assert f"no command '{word}'. Did you mean '{meant}'?" in grapnel(word, "--steps", 3, status=2)[1]
    complaint = grapnel("fly", status=2)[1]
    assert "Did you mean" not in complaint and "train, report, graph, doctor, demo" in complaint
    _, complaint, _ = train(work, "wrong", "--hooks", "squash=1", status=2)
    assert "no hook 'squash=1'" in complaint and "clip=LIMIT" in complaint
    assert "no number" in grapnel("graph", "--hooks", "clip=much", status=2)[1]
    _, complaint, _ = train(work, "wrong", "--ranks", 3, status=2)
    assert "shared evenly" in complaint
    for flag, value in (("--epochs", -1), ("--steps", -1), ("--batch", 0), ("--save-every", "often"), ("--threads", 10**12), ("--ranks", 0)):
        _, complaint, _ = train(work, "wrong", flag, value, status=2)
        assert f"{flag}: must be a whole number from" in complaint and f"got {value}" in complaint and len(complaint) < 200, complaint
    for rate in ("nan", "inf", "0", "-1", "fast"):
        assert f"--rate: must be a number above 0, got {rate}" in train(work, "wrong", "--rate", rate, status=2)[1]
    for target in ("nan", "inf", "-1", "101", "all"):
        assert f"--target: must be a number from 0 to 100, got {target}" in grapnel("demo", "--target", target, status=2)[1]
    assert "contradict" in train(work, "wrong", "--resume", "--overwrite", status=2)[1]
    assert not (work / "wrong").exists()


@test
def what_is_to_be_pasted_is_quoted(work):
    out, _, run = train(work, "my run's", "--steps", 2)
    assert f"grapnel report '{work}/my run'\\''s' -o report.html" in out
    complaint = grapnel("report", work / "a b", status=1)[1]
    assert f"grapnel train --run '{work}/a b' makes one" in complaint
    complaint = grapnel("report", run / "run.json", status=1)[1]
    assert "is a file" in complaint and "--run '" not in complaint


@test
def a_finished_run_is_left_as_it_is_and_may_be_made_longer(work):
    _, _, run = train(work, "done", "--epochs", 2)
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    for words in ((), ("--epochs", 1), ("--epochs", 2), ("--steps", 16)):
        out, _ = grapnel("train", "--resume", "--run", run, *words)
        assert "finished already, after 16 steps" in out and "--epochs N" in out, out
    assert {file.name: file.read_bytes() for file in run.iterdir()} == before
    grapnel("train", "--resume", "--run", run, "--epochs", 3)
    assert results(run)["step"] == 24 and len(losses(run)) == 24
    assert json.loads((run / "run.json").read_text())["options"]["epochs"] == 3
    assert losses(run)[:16] == [line for line in before["metrics.jsonl"].decode().splitlines() if "loss" in line]
    # A run that stopped after so many steps goes on to more of them, or through whole epochs; ranks agree on it.
    _, _, run = train(work, "steps", "--steps", 5, "--ranks", 2)
    grapnel("train", "--resume", "--run", run, "--steps", 9)
    assert len(losses(run)) == 9
    grapnel("train", "--resume", "--run", run, "--epochs", 2)
    assert len(losses(run)) == 16


@test
def a_run_that_was_killed_at_its_very_end_has_its_results(work):
    _, _, run = train(work, "end", "--epochs", 1)
    good = results(run)
    info = json.loads((run / "run.json").read_text())
    metrics = (run / "metrics.jsonl").read_text()
    for kept in (metrics, "".join(line for line in metrics.splitlines(True) if "accuracy" not in line)):
        (run / "metrics.jsonl").write_text(kept)
        (run / "run.json").write_text(json.dumps({**{k: v for k, v in info.items() if k != "results"}, "status": "running"}))
        grapnel("train", "--resume", "--run", run)
        assert {**results(run), "speed": 0} == {**good, "speed": 0}
        assert (run / "metrics.jsonl").read_text() == metrics


@test
def the_doctor_finds_everything_in_order(work):
    out, _ = grapnel("doctor")
    assert "same bits" in out and "broken" not in out


@test
def eager_and_compiled_runs_have_the_same_bits(work):
    runs = [train(work, mode, "--mode", mode, "--steps", 12, "--hooks", "histogram,clip=0.5,noise=0.001")[2] for mode in ("eager", "compiled")]
    assert results(runs[0])["weights"] == results(runs[1])["weights"]
    assert losses(runs[0]) == losses(runs[1])
    assert (runs[0] / "gradients.jsonl").read_text() == (runs[1] / "gradients.jsonl").read_text()
    assert results(runs[1])["compile"]["breaks"] == 0
    for name in ("timeline-0.json", "checkpoint.safetensors", "metrics.jsonl"):
        assert (runs[1] / name).exists()
    assert "clip 0.5" in (runs[1] / "graph.dot").read_text()


@test
def every_model_and_precision_trains(work):
    train(work, "bf16", "--precision", "bf16", "--steps", 4)
    train(work, "f64", "--precision", "f64", "--steps", 4)
    train(work, "cnn", "--steps", 4, "--mode", "compiled", model="cnn")
    text = work / "text.txt"
    text.write_text("the hook holds the gradient and lets it go again.\n" * 60)
    first = grapnel("train", "--model", "gpt", "--data", text, "--batch", 8, "--steps", 30, "--run", work / "gpt")[0]
    assert "text.txt" in first
    values = [json.loads(line)["loss"] for line in losses(work / "gpt")]
    assert values[-1] < values[0]


@test
def two_ranks_train_and_write_two_timelines(work):
    out, _, run = train(work, "ranks", "--ranks", 2, "--steps", 10, "--compress", "fp16")
    assert "2 ranks" in out
    assert len(losses(run)) == 10
    for rank in 0, 1:
        lanes = {span["lane"] for span in json.loads((run / f"timeline-{rank}.json").read_text())["spans"]}
        assert {"hook", "communication", "op"} <= lanes, lanes


@test
def two_ranks_have_the_same_bits_eager_and_compiled(work):
    runs = [train(work, mode, "--ranks", 2, "--mode", mode, "--steps", 10)[2] for mode in ("eager", "compiled")]
    assert results(runs[0])["weights"] == results(runs[1])["weights"]
    assert losses(runs[0]) == losses(runs[1])


@test
def ctrl_c_saves_and_tells_how_to_go_on(work):
    status, complaint = interrupt(work, "stopped", [signal.SIGINT])
    assert status == 130, (status, complaint)
    assert "everything is saved" in complaint and "--resume" in complaint
    run = work / "stopped"
    at = results(run)["step"]
    assert 0 < at < 4000 and len(losses(run)) == at
    assert json.loads((run / "run.json").read_text())["status"] == "stopped"
    assert "--batch 16 is not what the run" in grapnel("train", "--resume", "--run", run, "--batch", 16, status=2)[1]


@test
def a_run_that_was_killed_and_resumed_has_the_bits_of_one_that_never_stopped(work):
    _, _, straight = train(work, "straight", "--steps", 400, "--save-every", 0)
    process = subprocess.Popen([GRAPNEL, "train", "--data", str(work / "data"), "--model", "mlp", "--batch", "32", "--steps", "400", "--save-every", "7",
                                "--run", str(work / "broken")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (work / "broken" / "checkpoint.safetensors").exists() and process.poll() is None:
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert process.returncode in (-signal.SIGKILL, 0)
    grapnel("train", "--resume", "--run", work / "broken")
    assert results(work / "broken")["weights"] == results(straight)["weights"]
    assert losses(work / "broken") == losses(straight)


@test
def ctrl_c_twice_ends_at_once(work):
    status, _ = interrupt(work, "twice", [signal.SIGINT, signal.SIGINT])
    assert status in (130, -signal.SIGINT), status


@test
def ctrl_c_stops_all_ranks_together(work):
    status, complaint = interrupt(work, "ranks-stopped", [signal.SIGINT], "--ranks", "2")
    assert status == 130, (status, complaint)
    assert (work / "ranks-stopped" / "checkpoint.safetensors").exists()
    assert results(work / "ranks-stopped")["step"] == len(losses(work / "ranks-stopped"))


@test
def output_into_a_closed_pipe_loses_nothing(work):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([GRAPNEL, "train", "--data", str(work / "data"), "--model", "mlp", "--batch", "32", "--steps", "400", "--run",
                           str(work / "pipe")], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=120)
    assert done.returncode == 141, done
    assert b"saved" in done.stderr
    assert (work / "pipe" / "checkpoint.safetensors").exists()
    done = subprocess.run([GRAPNEL, "doctor"], stdout=writer, stderr=subprocess.PIPE, check=False, timeout=120)
    os.close(writer)
    assert done.returncode == 141 and b"output could not be written" in done.stderr


@test
def progress_is_a_bar_on_a_terminal_and_plain_lines_elsewhere(work):
    out, _, _ = train(work, "plain", "--steps", 8)
    assert "\r" not in out and "\x1b" not in out and "images/s" in out
    master, slave = pty.openpty()
    process = subprocess.Popen([GRAPNEL, "train", "--data", str(work / "data"), "--model", "mlp", "--batch", "32", "--steps", "200", "--run",
                                str(work / "bar")], stdout=slave, stderr=slave)
    os.close(slave)
    shown = b""
    while select.select([master], [], [], 60)[0]:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    assert process.wait(60) == 0
    assert b"\r" in shown and "█".encode() in shown and b"images/s" in shown, shown[-500:]


@test
def missing_and_damaged_data_is_named(work):
    complaint = grapnel("train", "--data", work / "nowhere", "--run", work / "x", status=1)[1]
    assert "nowhere" in complaint and "no such folder" in complaint
    assert "no such file" in grapnel("train", "--model", "gpt", "--data", work / "no.txt", "--run", work / "x", status=1)[1]
    damaged = shutil.copytree(work / "data", work / "damaged")
    file = damaged / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:200])
    assert "train-images" in grapnel("train", "--data", damaged, "--run", work / "x", status=1)[1]


@test
def a_run_is_not_overwritten_by_accident(work):
    _, _, run = train(work, "once", "--steps", 2)
    _, complaint, _ = train(work, "once", "--steps", 2, status=1)
    assert "holds a run already" in complaint and "--resume" in complaint
    (run / "notes.txt").write_text("mine")
    train(work, "once", "--steps", 3, "--overwrite")
    assert len(losses(run)) == 3 and (run / "notes.txt").exists()
    (work / "file").write_text("")
    assert "cannot be made" in train(work, "file", "--steps", 2, status=1)[1]


@test
def foreign_and_damaged_runs_are_refused_by_name(work):
    _, _, run = train(work, "good", "--steps", 3)
    page = work / "page.html"
    assert "no such folder" in grapnel("report", work / "none", "-o", page, status=1)[1]
    assert "no run.json" in grapnel("report", work / "data", "-o", page, status=1)[1]

    def broken(change):
        copy = work / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        change(copy)
        return grapnel("report", copy, "-o", page, status=1)[1]

    info = json.loads((run / "run.json").read_text())
    other = broken(lambda c: (c / "run.json").write_text(json.dumps({**info, "format": 7, "grapnel": "9.1.0"})))
    assert "grapnel 9.1.0" in other and "format 7" in other
    assert "damaged" in broken(lambda c: (c / "run.json").write_text("{\"format\":"))
    assert "metrics.jsonl:1" in broken(lambda c: (c / "metrics.jsonl").write_text("nonsense\n"))
    assert "damaged" in broken(lambda c: (c / "timeline-0.json").write_text("[1"))
    assert "damaged" in broken(lambda c: (c / "gradients.jsonl").write_text("{\"step\": 1}\n"))
    deep = "[" * 300_000 + "]" * 300_000
    for name, text in (("run.json", json.dumps({**info, "deep": 0}).replace("0}", deep + "}")), ("metrics.jsonl", '{"step": 1, "deep": ' + deep + "}\n"),
                       ("timeline-0.json", deep), ("gradients.jsonl", deep + "\n")):
        complaint = broken(lambda c: (c / name).write_text(text))
        assert "deeper than 100 levels" in complaint and name in complaint, complaint[:300]
    assert "data: is damaged: unit is not a text" in broken(
        lambda c: (c / "run.json").write_text(json.dumps({**info, "data": {**info["data"], "unit": ["images"]}})))
    assert "counts is not" in broken(lambda c: (c / "gradients.jsonl").write_text(
        '{"step": 1, "name": "w", "low": -1, "high": 1, "norm": 1, "counts": [1, "x", 2]}\n'))

    def pipe(name):
        def change(copy):
            (copy / name).unlink(missing_ok=True)
            os.mkfifo(copy / name)
        return change

    for name in ("metrics.jsonl", "timeline-0.json"):
        assert "not a plain file" in broken(pipe(name))
    assert not page.exists()
    # A line that was cut short by a crash is no damage.
    with (run / "metrics.jsonl").open("a") as out:
        out.write('{"step": 4, "lo')
    grapnel("report", run, "-o", page)
    (run / "checkpoint.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    assert "checkpoint.safetensors" in grapnel("train", "--resume", "--run", run, "--steps", 5, status=1)[1]


@test
def a_page_cannot_be_written_where_there_is_no_folder(work):
    _, _, run = train(work, "page", "--steps", 2)
    assert "nowhere" in grapnel("report", run, "-o", work / "nowhere" / "page.html", status=1)[1]


@test
def output_goes_where_a_link_leads_and_into_what_is_no_file(work):
    _, _, run = train(work, "links", "--steps", 2)
    real, link, pipe = work / "real.html", work / "link.html", work / "pipe"
    real.write_text("old")
    link.symlink_to("real.html")
    grapnel("report", run, "-o", link)
    assert link.is_symlink() and real.read_text().startswith("<!DOCTYPE html>")
    (work / "full").symlink_to("/dev/full")
    assert "No space left" in grapnel("report", run, "-o", work / "full", status=1)[1]
    assert (work / "full").is_symlink() and pathlib.Path("/dev/full").is_char_device()
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        grapnel("graph", "--format", "dot", "-o", pipe)
        assert reader.stdout.read().startswith("digraph")
    assert pipe.is_fifo()
    assert grapnel("graph", "--format", "dot", "-o", "/dev/stdout")[0].startswith("digraph")


@test
def a_graph_shows_hooks_and_kernels(work):
    svg, _ = grapnel("graph", "--model", "cnn", "--hooks", "histogram,clip=0.5", "--kernels")
    assert svg.startswith("<svg") and "clip 0.5" in svg and "kernel 1" in svg and "conv2d_backward_weight" in svg and "fc1.weight" in svg
    assert "conv2d_backward" not in grapnel("graph", "--model", "cnn", "--phase", "forward")[0]
    assert grapnel("graph", "--model", "gpt", "--format", "dot")[0].startswith("digraph")


@test
def without_graphviz_a_graph_is_refused_and_a_report_is_made(work):
    empty = {"PATH": str(work / "data")}
    assert "apt-get install graphviz" in grapnel("graph", status=1, env=empty)[1]
    assert "digraph" in grapnel("graph", "--format", "dot", env=empty)[0]
    _, _, run = train(work, "no-dot", "--steps", 4, "--mode", "compiled")
    grapnel("report", run, "-o", work / "no-dot.html", env=empty)
    assert "apt-get install graphviz" in (work / "no-dot.html").read_text()
    assert "openmpi-bin" in train(work, "no-mpi", "--ranks", 2, status=1, env=empty)[1]


@test
def the_demo_compares_three_runs(work):
    out, _ = grapnel("demo", "-o", work / "demo", "--steps", 6, "--target", 0)
    assert "identical losses" in out and "identical weights" in out
    page = (work / "demo" / "report.html").read_text()
    assert "two-ranks" in page and "<svg" in page
    out, complaint = grapnel("demo", "-o", work / "demo", "--steps", 2, "--target", 99, status=1)
    assert "below 99" in complaint


def main():
    passed, failed = 0, 0
    for function in TESTS:
        if len(sys.argv) > 2 and sys.argv[2] not in function.__name__:
            continue
        with tempfile.TemporaryDirectory() as name:
            work = pathlib.Path(name)
            small_images(work / "data")
            start = time.monotonic()
            try:
                function(work)
                passed += 1
            except Exception as error:  # every test has its say
                failed += 1
                print(f"{function.__name__.replace('_', ' ')}: {type(error).__name__}: {error}")
            if os.environ.get("GRAPNEL_TEST_TIMES"):
                print(f"{time.monotonic() - start:6.1f} s  {function.__name__}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
