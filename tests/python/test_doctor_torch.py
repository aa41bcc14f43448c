"""What `polypath doctor` says of PyTorch: with none, with the stand-in, and with what is broken."""

import os
import platform
from pathlib import Path

import pytest
from polypath.doctor.checks import State
from polypath.doctor.torch_check import of_answer, torch_finding

STANDIN = Path(__file__).with_name("torch_standin")


def with_modules(monkeypatch, *folders):
    paths = [*map(str, folders), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


def module(folder, text):
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text(text)


def test_the_backend_registers(monkeypatch):
    """With what stands in for PyTorch, which has no NCCL."""
    with_modules(monkeypatch, STANDIN)
    finding = torch_finding()
    assert finding.state is State.note
    assert '"polypath" registers; without NCCL' in finding.text


def test_a_torch_without_what_the_backend_needs(monkeypatch, tmp_path):
    module(tmp_path, '__version__ = "0.1"\nprint("noise")\n')
    with_modules(monkeypatch, tmp_path)
    finding = torch_finding()
    assert finding.state is State.note
    assert finding.text.startswith("0.1; polypath.torch does not register: ModuleNotFoundError: ")
    assert "pytorch.md" in finding.advice


def test_a_torch_that_cannot_be_imported(monkeypatch, tmp_path):
    module(tmp_path, 'raise OSError("libtorch.so: no such file")\n')
    with_modules(monkeypatch, tmp_path)
    finding = torch_finding()
    assert finding.state is State.note
    assert finding.text == "cannot be imported: OSError: libtorch.so: no such file"


@pytest.mark.parametrize(
    ("answer", "state", "text"),
    [
        ({"torch": None}, State.well, f"none for Python {platform.python_version()}"),
        (
            {"torch": "2.11", "registered": True, "nccl": "2.28.9"},
            State.well,
            '2.11, backend "polypath" registers; what it lacks goes to NCCL 2.28.9',
        ),
        (
            {"torch": "2.11", "registered": True, "nccl": True},
            State.well,
            '2.11, backend "polypath" registers; what it lacks goes to NCCL',
        ),
        (
            {"torch": "2.11", "registered": False, "nccl": "2.28.9", "error": "ImportError: x"},
            State.note,
            "2.11; polypath.torch does not register: ImportError: x",
        ),
    ],
)
def test_what_is_said(answer, state, text):
    finding = of_answer(answer)
    assert (finding.state, finding.text) == (state, text)


def test_the_doctor_says_it(polypath):
    done = polypath("doctor", "--node", "narval")
    assert done.returncode == 0, done.stderr
    assert any(line.strip().startswith("PyTorch") for line in done.stdout.splitlines())
