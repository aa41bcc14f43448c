"""The simulated driver under the names of the real one, and all that it exports."""

from __future__ import annotations

import ctypes
import re
import subprocess
from pathlib import Path

import pytest
from polypath import _library

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def simulated_driver() -> Path:
    return _library.find_library().parent / "libpolypath_sim.so"


def test_cu_get_proc_address_knows_every_exported_function(simulated_driver):
    listing = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", simulated_driver],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    exported = set(re.findall(r"^(cu\w+) T", listing, re.MULTILINE))
    table = (ROOT / "sim" / "src" / "proc_addresses.def").read_text()
    entries = re.findall(r"^POLYPATH_PROC\((\w+), (\w*), \d+, \w*\)$", table, re.MULTILINE)
    assert {name + suffix for name, suffix in entries} == exported


@pytest.mark.parametrize("name", ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"])
def test_driver_names_resolve_to_one_loaded_library(simulated_driver, name):
    by_name = ctypes.CDLL(str(simulated_driver.parent / "simulated-driver" / name))
    itself = ctypes.CDLL(str(simulated_driver))
    for function in ["cuInit", "nvmlInit_v2", "polypath_sim_copies"]:
        addresses = {
            ctypes.cast(getattr(library, function), ctypes.c_void_p).value
            for library in (by_name, itself)
        }
        assert len(addresses) == 1
