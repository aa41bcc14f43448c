"""scripts/generate_c_abi.py, and the table for ctypes that it makes of the C headers."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from polypath import _api, _c_abi

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import generate_c_abi

ROOT = Path(__file__).parents[2]
HEADER = """\
#ifndef TRIAL_H
#define TRIAL_H
#include <stddef.h>
#include <stdint.h>
#define POLYPATH_LIMIT 0x10u
typedef enum polypath_mood { POLYPATH_GOOD = 3, POLYPATH_BAD } polypath_mood;
enum { POLYPATH_LOOSE = -2 };
typedef struct polypath_thing polypath_thing;
typedef int (*polypath_asked)(const char* text, void* user);
typedef struct polypath_pair {
  const polypath_thing* thing;
  uint16_t words[POLYPATH_LIMIT];
  polypath_mood mood;
  void (*end)(void* user);
} polypath_pair;
__attribute__((visibility("default"))) polypath_mood polypath_ask(polypath_thing* const* things,
    const polypath_pair* pairs, size_t count, polypath_asked asked, char** text, char* free_it);
const char* polypath_name(void);
#endif
"""


def trial(folder: Path, header: str) -> dict[str, object]:
    """The table of one header as a module's names."""
    file = folder / "trial/include/polypath/trial.h"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(header)
    source = generate_c_abi.table(folder).replace("from .integers", "from polypath.integers")
    names: dict[str, object] = {}
    exec(source, names)
    return names


def test_table_is_what_the_headers_say():
    assert generate_c_abi.TABLE.read_text() == generate_c_abi.table()


def test_translation_of_each_kind(tmp_path):
    table = trial(tmp_path, HEADER)
    assert table["CONSTANTS"] == {"POLYPATH_LIMIT": 16, "POLYPATH_LOOSE": -2}
    assert table["ENUMS"] == {"polypath_mood": {"POLYPATH_GOOD": 3, "POLYPATH_BAD": 4}}
    kinds = [kind for _, kind in table["Pair"]._fields_]
    assert kinds[:3] == [ctypes.c_void_p, ctypes.c_uint16 * 16, ctypes.c_int]
    assert issubclass(kinds[3], ctypes._CFuncPtr)
    functions = table["FUNCTIONS"]["trial.h"]
    assert functions["polypath_name"] == (ctypes.c_char_p, [])
    result, parameters = functions["polypath_ask"]
    assert result is ctypes.c_int
    assert parameters == [
        ("things", ctypes.POINTER(ctypes.c_void_p)),
        ("pairs", ctypes.POINTER(table["Pair"])),
        ("count", ctypes.c_size_t),
        ("asked", table["Asked"]),
        ("text", ctypes.POINTER(ctypes.c_void_p)),
        ("free_it", ctypes.c_void_p),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("typedef union polypath_u { int a; } polypath_u;", "typedef polypath_u"),
        ("int polypath_f();", "no prototype"),
        ("int polypath_f(int);", "a parameter without a name"),
        ("int polypath_f(int a, ...);", "no parameter that has a name"),
        ("int polypath_f(long double a);", "the type long double"),
        ("int polypath_f(int a[3]);", "a ArrayDecl as a type"),
        ("int polypath_f(struct other* a);", "as a type"),
        ("static inline int polypath_f(int a) { return a; }", "no typedef, enum or function"),
        ("extern int polypath_x;", "no typedef, enum or function"),
        ('#define POLYPATH_TEXT "a"', "a macro that is no integer"),
        ("typedef struct polypath_s { int a : 3; } polypath_s;", "or of bits"),
        ("this is no C", "trial.h:19"),
        ("#include <unknown.h>", "the preprocessor failed"),
    ],
)
def test_refusal_names_the_place(tmp_path, line, reason):
    with pytest.raises(generate_c_abi.Unreadable, match=re.escape(reason)):
        trial(tmp_path, HEADER.replace("#endif", f"{line}\n#endif"))


def test_changed_header_changes_the_table(tmp_path):
    original, changed = tmp_path / "original", tmp_path / "changed"
    trial(original, HEADER)
    trial(changed, HEADER.replace("size_t count", "uint32_t count"))
    assert generate_c_abi.table(original) != generate_c_abi.table(changed)


def structures() -> list[type[ctypes.Structure]]:
    return [
        value
        for value in vars(_c_abi).values()
        if isinstance(value, type) and issubclass(value, ctypes.Structure)
        if value is not ctypes.Structure
    ]


def c_name(structure: type[ctypes.Structure]) -> str:
    return "polypath" + re.sub("[A-Z]", lambda letter: "_" + letter[0].lower(), structure.__name__)


def test_structures_lie_as_the_compiler_has_them(tmp_path):
    checks = []
    for structure in structures():
        name = c_name(structure)
        checks.append(f"sizeof({name}) == {ctypes.sizeof(structure)}")
        for field, _ in structure._fields_:
            offset = getattr(structure, field).offset
            checks.append(f"offsetof({name}, {field}) == {offset}")
    headers = "".join(f"#include <polypath/{header}>\n" for header in _c_abi.FUNCTIONS)
    asserts = "".join(f'_Static_assert({check}, "{check}");\n' for check in checks)
    file = tmp_path / "layout.c"
    file.write_text(headers + asserts)
    includes = [f"-I{folder}" for folder in ROOT.glob("*/include")]
    compiler = os.environ.get("CC", "cc")
    result = subprocess.run(
        [compiler, "-std=c11", "-fsyntax-only", *includes, str(file)],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert len(checks) > 100


def test_every_status_has_an_exception():
    assert sorted([0, *_api._ERRORS]) == sorted(_c_abi.ENUMS["polypath_status"].values())
