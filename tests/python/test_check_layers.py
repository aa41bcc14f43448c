"""The checker of the dependency rule finds what it is there to find."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from check_layers import violations  # noqa: E402

FILES = {
    "src/base/units.hpp": "#include <cstdint>\n",
    "src/driver/cuda_driver.hpp": '#include <cuda.h>\n#include "base/units.hpp"\n',
    "src/registry/registry.hpp": '#include "base/units.hpp"\n',
    "src/topology/node.hpp": '#include "base/units.hpp"\n',
    "src/topology/graph.hpp": '#include "driver/cuda_driver.hpp"\n#include "topology/node.hpp"\n',
    "src/plan/plan.hpp": '#include "topology/graph.hpp"\n',
    "src/exec/executor.hpp": '#include "plan/plan.hpp"\n#include "driver/cuda_driver.hpp"\n',
    "src/tune/tune.hpp": '#include "exec/executor.hpp"\n',
    "src/core/context.hpp": '#include "tune/tune.hpp"\n#include "polypath/polypath.h"\n'
    '#include "registry/registry.hpp"\n',
    "src/collectives/plan/tree.hpp": '#include "plan/plan.hpp"\n',
    "src/collectives/call.hpp": '#include "collectives/plan/tree.hpp"\n'
    '#include "core/context.hpp"\n',
    "intercept/src/cuda/shim.cpp": "#include <polypath/polypath.h>\n",
    "sim/clock.hpp": '#include "topology/node.hpp"\n',
    "include/polypath/polypath.h": "#include <stddef.h>\n",
}


@pytest.fixture
def tree(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_tree_that_keeps_the_rule_is_clean(tree):
    assert violations(tree) == []


@pytest.mark.parametrize(
    ("file", "include"),
    [
        ("src/base/units.hpp", '"driver/cuda_driver.hpp"'),
        ("src/driver/cuda_driver.hpp", '"topology/node.hpp"'),
        ("src/registry/registry.hpp", '"driver/cuda_driver.hpp"'),
        ("src/registry/registry.hpp", "<cuda.h>"),
        ("src/exec/executor.hpp", '"registry/registry.hpp"'),
        ("src/topology/node.hpp", '"driver/cuda_driver.hpp"'),
        ("src/topology/graph.hpp", '"plan/plan.hpp"'),
        ("src/plan/plan.hpp", '"exec/executor.hpp"'),
        ("src/plan/plan.hpp", '"driver/cuda_driver.hpp"'),
        ("src/plan/plan.hpp", "<cuda.h>"),
        ("src/exec/executor.hpp", '"core/context.hpp"'),
        ("src/tune/tune.hpp", '"core/context.hpp"'),
        ("src/core/context.hpp", '"sim/clock.hpp"'),
        ("src/core/context.hpp", '"../../sim/clock.hpp"'),
        ("src/collectives/plan/tree.hpp", '"exec/executor.hpp"'),
        ("src/collectives/plan/tree.hpp", '"collectives/call.hpp"'),
        ("src/collectives/plan/tree.hpp", "<cuda.h>"),
        ("src/core/context.hpp", '"collectives/plan/tree.hpp"'),
        ("intercept/src/cuda/shim.cpp", '"core/context.hpp"'),
        ("sim/clock.hpp", '"topology/graph.hpp"'),
        ("sim/clock.hpp", '"driver/cuda_driver.hpp"'),
        ("include/polypath/polypath.h", '"base/units.hpp"'),
        ("src/core/context.hpp", '"core/absent.hpp"'),
        ("src/unheard_of/new.hpp", "<cstdint>"),
    ],
)
def test_a_planted_violation_is_found_at_its_line(tree, file, include):
    path = tree / file
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as out:
        out.write(f"\n#include {include}\n")
    lines = len(path.read_text().splitlines())
    found = violations(tree)
    assert len(found) == 1
    assert found[0].startswith(f"{file}:{lines}: ")


def test_this_repository_keeps_the_rule():
    assert violations(ROOT) == []
