"""python -m grapnel.compat.run: how tests of PyTorch's end, and what is expected of them."""
import re
import subprocess
import sys
import textwrap

import pytest

from grapnel.compat import run


def file_of(folder, text, name="test_some.py"):
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return str(path)


HEAD = """
import unittest
import torch
from torch.testing._internal.common_utils import TestCase, parametrize, instantiate_parametrized_tests
"""


def outcomes(folder, body, expectation=None, **options):
    text = HEAD + textwrap.dedent(body)
    found, _ = run.run_file(file_of(folder, text), expectation or run.Expectation(), **options)
    return {o.name.partition(".")[2]: str(o) for o in found}


def expecting(folder, text):
    return run.Expectation(file_of(folder, text, "expected.toml"))


def test_a_test_passes_fails_or_skips_itself(tmp_path):
    got = outcomes(tmp_path, """
        class T(TestCase):
            def test_a(self):
                self.assertEqual(torch.ones(2) + 1, torch.tensor([2.0, 2.0]))
            def test_b(self):
                self.assertEqual(torch.ones(2), torch.zeros(2))
            def test_c(self):
                self.skipTest("no such device")
            def test_d(self):
                raise KeyError("x")
    """)
    assert got["test_a"] == "pass"
    assert re.match(r"FAIL \(AssertionError: 2 of 2 elements differ", got["test_b"])
    assert got["test_c"] == "skipped (no such device)"
    assert got["test_d"] == "FAIL (KeyError: 'x')"


def test_a_name_that_is_not_there_ends_only_the_tests_that_use_it(tmp_path):
    got = outcomes(tmp_path, """
        from torch._some.where import decorator, Thing
        from torch.testing._internal.nowhere import OtherTestCase

        GPU = torch._some.where.has_gpu()

        class T(TestCase):
            def test_a(self):
                self.assertEqual(1, 1)
            @decorator
            def test_b(self):
                pass
            @decorator("why", flag=True)
            def test_c(self):
                pass
            def test_d(self):
                try:
                    Thing(3)
                except Exception:
                    pass
            def test_e(self):
                torch.ones(2).some_method_of_tomorrow()
            @unittest.skipIf(not GPU, "needs a GPU")
            def test_f(self):
                pass

        class U(OtherTestCase):
            def test_g(self):
                pass

        @decorator
        class V(TestCase):
            def test_h(self):
                pass
    """)
    assert got == {
        "test_a": "pass", "test_b": "not offered (torch._some.where.decorator)", "test_c": "not offered (torch._some.where.decorator)",
        "test_d": "not offered (torch._some.where.Thing)", "test_e": "not offered (torch.Tensor.some_method_of_tomorrow)",
        "test_f": "skipped (needs a GPU)", "test_g": "not offered (torch.testing._internal.nowhere.OtherTestCase)",
        "test_h": "not offered (torch._some.where.decorator)"}


def test_a_test_that_hangs_or_kills_its_process_ends_alone(tmp_path):
    got = outcomes(tmp_path, """
        import os, time
        class T(TestCase):
            def test_a(self):
                time.sleep(60)
            def test_b(self):
                os.kill(os.getpid(), 11)
            def test_c(self):
                self.assertTrue(True)
    """, seconds=2)
    assert got == {"test_a": "TIMEOUT (2 s)", "test_b": "FAIL (its process ended with -11)", "test_c": "pass"}


def test_a_file_that_cannot_be_imported_is_one_failure(tmp_path):
    found, _ = run.run_file(file_of(tmp_path, "import no_such_module_at_all\n"), run.Expectation())
    assert [str(o) for o in found] == ["FAIL (cannot be imported: ModuleNotFoundError: No module named 'no_such_module_at_all')"]


def test_tests_that_fail_before_they_begin_are_told(tmp_path):
    got = outcomes(tmp_path, """
        class T(TestCase):
            @classmethod
            def setUpClass(cls):
                raise ValueError("no")
            def test_a(self):
                pass
    """)
    assert got == {"test_a": "FAIL (ValueError: no)"}


BOTH = """
    class T(TestCase):
        def test_limit(self):
            self.assertEqual(1, 2)
        def test_text(self):
            self.assertExpectedInline("ours", "theirs")
        def test_plain(self):
            pass
"""


def test_what_differs_and_texts_are_named_in_the_expectation_file(tmp_path):
    expectation = expecting(tmp_path, """
        [text]
        tests = ["T.test_text"]
        [differs]
        "T.test_limit" = "PyTorch breaks here"
    """)
    got = outcomes(tmp_path, BOTH, expectation)
    assert got == {"test_limit": "differs (PyTorch breaks here)", "test_text": "pass, text not compared", "test_plain": "pass"}


def test_texts_are_compared_unless_the_file_names_the_test(tmp_path):
    got = outcomes(tmp_path, BOTH)
    assert got["test_text"].startswith("FAIL (AssertionError") and got["test_limit"].startswith("FAIL")


def test_only_a_failed_assertion_differs(tmp_path):
    expectation = expecting(tmp_path, '[differs]\n"T.test_a" = "a limit"\n')
    got = outcomes(tmp_path, """
        class T(TestCase):
            def test_a(self):
                raise RuntimeError("something else")
    """, expectation)
    assert got == {"test_a": "FAIL (RuntimeError: something else)"}


@pytest.mark.parametrize("expected, status", [
    ('[text]\ntests = ["T.test_text"]\n[differs]\n"T.test_limit" = "r"\n', 0),
    ('[text]\ntests = ["T.test_text"]\n', 1),
    ('[text]\ntests = ["T.test_text"]\n[differs]\n"T.test_limit" = "r"\n"T.test_plain" = "r"\n', 1),  # passes unexpectedly
    ('[text]\ntests = ["T.test_text"]\n[differs]\n"T.test_limit" = "r"\n"T.test_gone" = "r"\n', 1)])
def test_the_status_says_whether_all_is_as_expected(tmp_path, expected, status, capsys):
    file = file_of(tmp_path, HEAD + textwrap.dedent(BOTH))
    assert run.main(["--expect", file_of(tmp_path, expected, "e.toml"), file]) == status


def test_without_expectations_only_failures_count(tmp_path, capsys):
    file = file_of(tmp_path, HEAD + "class T(TestCase):\n    def test_a(self):\n        torch.nowhere.f()\n    def test_b(self):\n        torch.nowhere.f()\n")
    assert run.main([file]) == 0
    out = capsys.readouterr().out
    assert "2 tests: 2 not offered" in out and re.search(r"\n +2  torch\.nowhere\.f\n", out)


def test_the_command_runs(tmp_path):
    file = file_of(tmp_path, HEAD + "class T(TestCase):\n    def test_a(self):\n        print('noise')\n")
    done = subprocess.run([sys.executable, "-m", "grapnel.compat.run", file], capture_output=True, text=True)
    assert done.returncode == 0 and "T.test_a: pass" in done.stdout and "noise" not in done.stdout


def test_tests_for_every_device_run_on_the_cpu(tmp_path):
    got = outcomes(tmp_path, """
        from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyCUDA
        class T(TestCase):
            @dtypes(torch.float32, torch.float64)
            def test_a(self, device, dtype):
                self.assertEqual(torch.ones(1, device=device, dtype=dtype).dtype, dtype)
            @onlyCUDA
            def test_b(self, device):
                pass
            @parametrize("flag", (True, False))
            def test_c(self, device, flag):
                self.assertEqual(device, "cpu")
        instantiate_device_type_tests(T, globals())
    """)
    assert got == {"test_a_cpu_float32": "pass", "test_a_cpu_float64": "pass", "test_b_cpu": "skipped (needs a GPU)",
                   "test_c_cpu_flag_True": "pass", "test_c_cpu_flag_False": "pass"}


def test_a_class_whose_base_is_not_offered_ends_the_test_that_uses_it(tmp_path):
    got = outcomes(tmp_path, """
        class Outside(torch.tomorrow.Function):
            pass
        class T(TestCase):
            def test_a(self):
                Outside.apply(torch.ones(1))
            def test_b(self):
                class Inside(torch.tomorrow.Function):
                    pass
    """)
    assert set(got.values()) == {"not offered (torch.tomorrow.Function)"}


def test_parametrised_tests_become_one_each(tmp_path):
    got = outcomes(tmp_path, """
        class T(TestCase):
            @parametrize("flag", (True, False))
            def test_a(self, flag):
                self.assertTrue(flag)
            @parametrize("x, y", [(1, 1), (2, 2)])
            def test_b(self, x, y):
                self.assertEqual(x, y)
        instantiate_parametrized_tests(T)
    """)
    assert got["test_a_flag_True"] == "pass" and got["test_a_flag_False"].startswith("FAIL")
    assert [got["test_b_x_1_y_1"], got["test_b_x_2_y_2"]] == ["pass", "pass"] and len(got) == 4


def test_arguments_that_are_not_taken_are_not_offered(tmp_path):
    got = outcomes(tmp_path, """
        class T(TestCase):
            def test_types(self):
                torch.ones(2).clone(memory_format=3)
            def test_stand_in(self):
                torch.ones(2, dtype=torch.complex64)
            def test_stand_in_for_others(self):
                "a" + torch.nowhere.text
            def test_keyword(self):
                torch.nn.Linear(1, 2, sparse=True)
            def test_keyword_of_a_class(self):
                torch.optim.SGD([torch.ones(1)], capturable=True)
            def test_device(self):
                torch.device("meta")
            def test_attribute_of_a_class(self):
                torch.Tensor._tomorrow()
            def test_error_type(self):
                with self.assertRaises(torch.nowhere.Error):
                    pass
            def test_own(self):
                def f():
                    pass
                f(1)
    """)
    assert got == {
        "test_types": "not offered (torch.clone(Tensor, memory_format=))", "test_stand_in": "not offered (torch.complex64)",
        "test_stand_in_for_others": "not offered (torch.nowhere.text)", "test_keyword": "not offered (torch.nn.Linear(sparse=))",
        "test_keyword_of_a_class": "not offered (torch.optim.SGD(capturable=))", "test_device": "not offered (torch.device('meta'))",
        "test_attribute_of_a_class": "not offered (torch.Tensor._tomorrow)", "test_error_type": "not offered (torch.nowhere.Error)",
        "test_own": "FAIL (TypeError: T.test_own.<locals>.f() takes 0 positional arguments but 1 was given)"}


def test_processes_that_tests_leave_behind_disturb_nothing(tmp_path):
    got = outcomes(tmp_path, """
        import os, sys
        class T(TestCase):
            def test_a(self):
                if os.fork() == 0:
                    raise RuntimeError("the child comes back from the test")
            def test_b(self):
                if os.fork() == 0:
                    import time
                    time.sleep(100)
            def test_c(self):
                pass
    """, seconds=5)
    assert set(got.values()) == {"pass"} and len(got) == 3


def test_a_test_cannot_take_all_memory(tmp_path):
    got = outcomes(tmp_path, """
        import os
        class T(TestCase):
            def test_a(self):
                bytearray(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 3 // 4)
            def test_b(self):
                pass
    """)
    assert got["test_a"].startswith("FAIL (MemoryError") and got["test_b"] == "pass"


@pytest.mark.parametrize("body, outcome", [
    ("raise unittest.SkipTest('no such machine')", "skipped (no such machine)"), ("import sys; sys.exit(0)", "skipped (0)"),
    ("import sys; sys.exit(3)", "FAIL (cannot be imported: SystemExit: 3)"),
    ("torch.ones(2, dtype=torch.complex64)", "not offered (torch.complex64)"),
    ("import os; os.abort()", "FAIL (its process ended with -6)"), ("import time; time.sleep(30)", "TIMEOUT (2 s)")])
def test_a_file_that_ends_while_it_is_imported_is_one_outcome(tmp_path, body, outcome):
    found, _ = run.run_file(file_of(tmp_path, HEAD + body), run.Expectation(), seconds=2)
    assert [(o.name, str(o)) for o in found] == [("test_some.py", outcome)]


def test_a_class_with_two_names_and_a_way_of_loading(tmp_path):
    got = outcomes(tmp_path, """
        from torch.testing._internal.common_utils import load_tests
        load_tests = load_tests
        class T(TestCase):
            def test_a(self):
                pass
        U = T
    """)
    assert got == {"test_a": "pass"}


def test_pairs_of_types_are_an_argument(tmp_path):
    got = outcomes(tmp_path, """
        from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests, onlyOn
        from torch.testing._internal.common_utils import subtest
        class T(TestCase):
            @dtypes((torch.float32, torch.int64), (torch.float32, torch.complex64))
            def test_a(self, device, dtypes):
                torch.ones(1, dtype=dtypes[1])
            @onlyOn(["cuda", "mps"])
            def test_b(self, device):
                pass
            @parametrize(arg_str="x", arg_values=[subtest(arg_values=(3,), name="three")])
            def test_c(self, device, x):
                self.assertEqual(x, 3)
        instantiate_device_type_tests(T, globals())
    """)
    assert got == {"test_a_cpu_float32_int64": "pass", "test_a_cpu_float32_complex64": "not offered (torch.complex64)",
                   "test_b_cpu": "skipped (needs one of ['cuda', 'mps'])", "test_c_cpu_three": "pass"}


def test_what_stands_before_a_name_that_stops_the_import_is_run(tmp_path):
    found, _ = run.run_file(file_of(tmp_path, HEAD + textwrap.dedent("""
        class T(TestCase):
            def test_a(self):
                pass
            def test_of_devices(self, device):
                pass
        setattr(T, torch.nowhere.name(), None)
        class U(TestCase):
            def test_b(self):
                pass
    """)), run.Expectation())
    assert [(o.name, str(o)) for o in found] == [("T.test_a", "pass"), ("test_some.py", "not offered (torch.nowhere.name)")]


def test_an_error_that_a_test_expects_in_other_words_is_a_failure(tmp_path):
    got = outcomes(tmp_path, """
        class T(TestCase):
            def test_types(self):
                with self.assertRaisesRegex(TypeError, "other words"):
                    torch.ones(2).clone(memory_format=3)
            def test_attribute(self):
                with self.assertRaisesRegex(AttributeError, "other words"):
                    torch.ones(2).tomorrow
            def test_stand_in(self):
                with self.assertRaisesRegex(TypeError, "other words"):
                    torch.ones(2, dtype=torch.complex64)
    """)
    assert got["test_types"].startswith("FAIL (AssertionError") and got["test_attribute"].startswith("FAIL (AssertionError")
    assert got["test_stand_in"] == "not offered (torch.complex64)"
