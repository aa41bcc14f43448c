"""The checker of the dependency rule finds what it is there to find."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from check_layers import violations  # noqa: E402
from check_parts import allowed_parts  # noqa: E402

FILES = {
    "node/src/base/units.hpp": "#include <cstdint>\n",
    "node/src/driver/cuda_driver.hpp": '#include <cuda.h>\n#include "base/units.hpp"\n',
    "engine/src/registry/registry.hpp": '#include "base/units.hpp"\n',
    "node/src/topology/node.hpp": '#include "base/units.hpp"\n',
    "node/src/topology/graph.hpp": '#include "driver/cuda_driver.hpp"\n'
    '#include "topology/node.hpp"\n',
    "node/src/plan/plan.hpp": '#include "topology/graph.hpp"\n',
    "engine/src/exec/executor.hpp": '#include "plan/plan.hpp"\n#include "driver/cuda_driver.hpp"\n',
    "engine/src/tune/tune.hpp": '#include "exec/executor.hpp"\n',
    "engine/src/core/context.hpp": '#include "tune/tune.hpp"\n#include "polypath/polypath.h"\n'
    '#include "registry/registry.hpp"\n',
    "comm/src/collectives/plan/tree.hpp": '#include "plan/plan.hpp"\n',
    "comm/src/collectives/call.hpp": '#include "collectives/plan/tree.hpp"\n'
    '#include "core/context.hpp"\n',
    "intercept/src/cuda/shim.cpp": "#include <polypath/polypath.h>\n",
    "sim/src/clock.hpp": '#include "topology/node.hpp"\n',
    "engine/include/polypath/polypath.h": "#include <stddef.h>\n",
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
        ("node/src/base/units.hpp", '"driver/cuda_driver.hpp"'),
        ("node/src/driver/cuda_driver.hpp", '"topology/node.hpp"'),
        ("engine/src/registry/registry.hpp", '"driver/cuda_driver.hpp"'),
        ("engine/src/registry/registry.hpp", "<cuda.h>"),
        ("engine/src/exec/executor.hpp", '"registry/registry.hpp"'),
        ("node/src/topology/node.hpp", '"driver/cuda_driver.hpp"'),
        ("node/src/topology/graph.hpp", '"plan/plan.hpp"'),
        ("node/src/plan/plan.hpp", '"exec/executor.hpp"'),
        ("node/src/plan/plan.hpp", '"driver/cuda_driver.hpp"'),
        ("node/src/plan/plan.hpp", "<cuda.h>"),
        ("engine/src/exec/executor.hpp", '"core/context.hpp"'),
        ("engine/src/tune/tune.hpp", '"core/context.hpp"'),
        ("engine/src/core/context.hpp", '"clock.hpp"'),
        ("engine/src/core/context.hpp", '"../../../sim/src/clock.hpp"'),
        ("comm/src/collectives/plan/tree.hpp", '"exec/executor.hpp"'),
        ("comm/src/collectives/plan/tree.hpp", '"collectives/call.hpp"'),
        ("comm/src/collectives/plan/tree.hpp", "<cuda.h>"),
        ("engine/src/core/context.hpp", '"collectives/plan/tree.hpp"'),
        ("intercept/src/cuda/shim.cpp", '"core/context.hpp"'),
        ("sim/src/clock.hpp", '"topology/graph.hpp"'),
        ("sim/src/clock.hpp", '"driver/cuda_driver.hpp"'),
        ("engine/include/polypath/polypath.h", '"base/units.hpp"'),
        ("engine/src/core/context.hpp", '"core/absent.hpp"'),
        ("node/src/unheard_of/new.hpp", "<cstdint>"),
    ],
)
def test_a_violation_is_found_at_its_line(tree, file, include):
    path = tree / file
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as out:
        out.write(f"\n#include {include}\n")
    lines = len(path.read_text().splitlines())
    problems = violations(tree)
    assert len(problems) == 1
    assert problems[0].startswith(f"{file}:{lines}: ")


def test_a_part_depends_on_those_below_alone():
    allowed = allowed_parts(ROOT)
    assert allowed["node"] == {"node"}
    assert allowed["device"] == {"device"}
    assert allowed["sim"] == {"sim", "node", "device"}
    assert allowed["engine"] == {"engine", "node", "device"}
    assert allowed["intercept"] == allowed["comm"] | {"offload", "uniconn", "intercept"}
    assert [part for part, parts in allowed.items() if "lab" in parts] == ["lab"]


def test_this_repository_keeps_the_rule():
    assert violations(ROOT) == []
