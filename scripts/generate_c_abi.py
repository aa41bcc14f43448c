#!/usr/bin/env python3
"""Writes python/polypath/_c_abi.py, what ctypes needs of the public C headers: generate_c_abi.py
[--check].

The C preprocessor and pycparser read the headers. What this script cannot translate is an error
that names the place: nothing is left out. --check: fails unless the file is what would be written.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pycparser import c_ast, c_parser

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "python/polypath/_c_abi.py"

#: The standard types that the headers may use, as ctypes and as C has them.
STANDARD_TYPES = {
    "size_t": ("c_size_t", "unsigned long"),
    "int32_t": ("c_int32", "int"),
    "uint8_t": ("c_uint8", "unsigned char"),
    "uint16_t": ("c_uint16", "unsigned short"),
    "uint32_t": ("c_uint32", "unsigned int"),
    "int64_t": ("c_int64", "long"),
    "uint64_t": ("c_uint64", "unsigned long"),
}
BASIC_TYPES = {"int": "c_int", "double": "c_double", "float": "c_float"}
HEADING = '''\
"""The C API for ctypes, from the public headers. Written by scripts/generate_c_abi.py: not by hand.

``CONSTANTS``: macros and enumerators without a type. ``ENUMS``: the enumerators of each enum.
``FUNCTIONS``: of each header, the result and the parameters (name, type) of each function. The
string that a caller frees is a c_void_p, since ctypes turns a c_char_p into bytes.
"""

from __future__ import annotations

from ctypes import {imports}

from .integers import Checked
'''


class Unreadable(Exception):
    """A declaration that this script does not translate."""

    def __init__(self, node: Any, reason: str) -> None:
        super().__init__(f"{getattr(node, 'coord', node)}: {reason}")


def public_headers(root: Path) -> list[Path]:
    """The C headers of all parts, but those over another library and the simulator's."""
    headers = [
        header
        for header in sorted(root.glob("*/include/polypath/**/*.h"))
        if "#include <mpi.h>" not in header.read_text()
    ]
    if not headers:
        raise Unreadable(root, "no public headers")
    return headers


def preprocess(root: Path, headers: list[Path]) -> str:
    """The headers, included once each, with their macros and the names of their files."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "stddef.h").touch()
        (folder / "stdint.h").write_text(
            "".join(f"typedef {c} {name};\n" for name, (_, c) in STANDARD_TYPES.items())
        )
        unit = folder / "all.c"
        unit.write_text(
            "#include <stdint.h>\n" + "".join(f'#include "{header}"\n' for header in headers)
        )
        includes = [f"-I{parent}" for parent in sorted(root.glob("*/include"))]
        command = [os.environ.get("CC", "cc"), "-E", "-dD", "-undef", "-nostdinc", "-std=c99"]
        result = subprocess.run(
            [*command, "-D__attribute__(x)=", f"-I{folder}", *includes, str(unit)],
            capture_output=True,
            text=True,
        )
    if result.returncode != 0:
        raise Unreadable(root, f"the preprocessor failed: {result.stderr}")
    return result.stdout


def macros(lines: list[str]) -> dict[str, int]:
    """The macros of polypath that are integers. Include guards and POLYPATH_API are empty."""
    values = {}
    for line in lines:
        name, _, value = line.removeprefix("#define ").partition(" ")
        if not name.startswith("POLYPATH_") or not value.strip():
            continue
        number = re.fullmatch(r"\(?(-?(?:0[xX][0-9a-fA-F]+|\d+))[uUlL]*\)?", value.strip())
        if number is None:
            raise Unreadable(name, f"a macro that is no integer: {value}")
        values[name] = int(number[1], 0)
    return values


def camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in name.removeprefix("polypath_").split("_"))


class Reader:
    """What the headers declare, in their order."""

    def __init__(self, root: Path, text: str) -> None:
        self._root = root
        lines = text.splitlines()
        self.constants = macros([line for line in lines if line.startswith("#define ")])
        self.enums: dict[str, dict[str, int]] = {}
        self.functions: dict[str, list[str]] = {}
        self.types: list[str] = []  # definitions in Python
        self._names: dict[str, str] = {name: python for name, (python, _) in STANDARD_TYPES.items()}
        self._opaque: set[str] = set()
        declarations = "\n".join(
            "" if re.match(r"#\s*(define|undef|pragma)\b", line) else line for line in lines
        )
        for node in c_parser.CParser().parse(declarations).ext:
            self._read(node)

    def _read(self, node: Any) -> None:
        if isinstance(node, c_ast.Typedef):
            if node.name not in STANDARD_TYPES:
                self._read_type(node)
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.FuncDecl):
            self._read_function(node)
        elif isinstance(node, c_ast.Decl) and isinstance(node.type, c_ast.Enum):
            self.constants |= self._enumerators(node.type)
        else:
            raise Unreadable(node, f"no typedef, enum or function: {type(node).__name__}")

    def _read_type(self, node: Any) -> None:
        declared = node.type
        if isinstance(declared, c_ast.PtrDecl) and isinstance(declared.type, c_ast.FuncDecl):
            self.types.append(f"{camel_case(node.name)} = {self._callback(declared.type)}\n")
            self._names[node.name] = camel_case(node.name)
            return
        kind = declared.type if isinstance(declared, c_ast.TypeDecl) else None
        if isinstance(kind, c_ast.Enum):
            self.enums[node.name] = self._enumerators(kind)
            self._names[node.name] = "c_int"
        elif isinstance(kind, c_ast.Struct) and kind.decls is None:
            self._opaque.add(node.name)
        elif isinstance(kind, c_ast.Struct):
            self.types.append(self._structure(node.name, kind))
            self._names[node.name] = camel_case(node.name)
        else:
            raise Unreadable(node, f"typedef {node.name}: no structure, enum or function pointer")

    def _enumerators(self, enum: Any) -> dict[str, int]:
        values: dict[str, int] = {}
        following = 0
        for enumerator in enum.values.enumerators:
            if enumerator.value is not None:
                following = self._integer(enumerator.value)
            values[enumerator.name] = following
            following += 1
        return values

    def _integer(self, node: Any) -> int:
        if isinstance(node, c_ast.UnaryOp) and node.op == "-":
            return -self._integer(node.expr)
        if isinstance(node, c_ast.Constant) and "int" in node.type:
            return int(node.value.rstrip("uUlL"), 0)
        raise Unreadable(node, "no integer constant")

    def _structure(self, name: str, struct: Any) -> str:
        fields = []
        for field in struct.decls:
            if field.name is None or field.bitsize is not None:
                raise Unreadable(field, f"{name}: a field without a name, or of bits")
            if isinstance(field.type, c_ast.ArrayDecl):
                count = self._length(field.type.dim)
                kind = f"{self._type(field.type.type)} * {count}"
            else:
                kind = self._type(field.type)
            fields.append(f'("{field.name}", {kind})')
        body = "".join(f"        {field},\n" for field in fields)
        return f"class {camel_case(name)}(Checked, Structure):\n    _fields_ = [\n{body}    ]\n"

    def _length(self, node: Any) -> int:
        if isinstance(node, c_ast.ID):
            for known in (self.constants, *self.enums.values()):
                if node.name in known:
                    return known[node.name]
        return self._integer(node)

    def _read_function(self, node: Any) -> None:
        result = self._result(node.type.type)
        parameters = "".join(f'("{name}", {kind}), ' for name, kind in self._parameters(node.type))
        header = str(Path(node.coord.file).relative_to(self._root))
        entry = f'"{node.name}": ({result}, [{parameters.removesuffix(", ")}])'
        self.functions.setdefault(header.partition("/polypath/")[2], []).append(entry)

    def _callback(self, function: Any) -> str:
        kinds = [self._result(function.type), *(kind for _, kind in self._parameters(function))]
        return f"CFUNCTYPE({', '.join(kinds)})"

    def _result(self, node: Any) -> str:
        is_void = isinstance(node, c_ast.TypeDecl) and node.type.names == ["void"]
        return "None" if is_void else self._type(node)

    def _parameters(self, function: Any) -> Iterator[tuple[str, str]]:
        if function.args is None:
            raise Unreadable(function, "() is no prototype: write (void)")
        for parameter in function.args.params:
            if isinstance(parameter, c_ast.Typename):
                if self._result(parameter.type) == "None" and len(function.args.params) == 1:
                    return
                raise Unreadable(parameter, "a parameter without a name")
            if not isinstance(parameter, c_ast.Decl):
                raise Unreadable(parameter, "no parameter that has a name and a type")
            yield parameter.name, self._type(parameter.type)

    def _type(self, node: Any) -> str:
        if isinstance(node, c_ast.PtrDecl):
            return self._pointer(node.type)
        if not isinstance(node, c_ast.TypeDecl) or not isinstance(node.type, c_ast.IdentifierType):
            raise Unreadable(node, f"a {type(node).__name__} as a type")
        name = " ".join(node.type.names)
        known = self._names.get(name, BASIC_TYPES.get(name))
        if known is None:
            raise Unreadable(node, f"the type {name}")
        return known

    def _pointer(self, node: Any) -> str:
        if isinstance(node, c_ast.FuncDecl):
            return self._callback(node)
        if isinstance(node, c_ast.PtrDecl):
            inner = self._pointer(node.type)
            return f"POINTER({'c_void_p' if inner == 'c_char_p' else inner})"
        name = " ".join(node.type.names) if isinstance(node.type, c_ast.IdentifierType) else ""
        if name == "char":
            return "c_char_p" if "const" in node.quals else "c_void_p"
        if name == "void" or name in self._opaque:
            return "c_void_p"
        return f"POINTER({self._type(node)})"


def table(root: Path = ROOT) -> str:
    """The text of the table, as ruff formats it. Raises `Unreadable`."""
    text = preprocess(root, public_headers(root))
    try:
        reader = Reader(root, text)
    except c_parser.ParseError as error:
        raise Unreadable("pycparser", str(error)) from error
    parts = [f"CONSTANTS = {reader.constants}\n", f"ENUMS = {reader.enums}\n", *reader.types]
    headers = "".join(
        f'"{header}": {{{", ".join(entries)},}},\n' for header, entries in reader.functions.items()
    )
    parts.append(f"FUNCTIONS = {{\n{headers}}}\n")
    body = "\n\n".join(parts)
    used = sorted(set(re.findall(r"\b(?:c_\w+|POINTER|CFUNCTYPE|Structure)\b", body)))
    source = HEADING.format(imports=f"({', '.join(used)})") + "\n" + body
    for command in (["check", "--fix", "--select=I"], ["format"]):
        source = ruff(command, source)
    return source


def ruff(command: list[str], source: str) -> str:
    tool = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(TABLE), "-"]
    result = subprocess.run(tool, input=source, capture_output=True, text=True, cwd=ROOT)
    if result.returncode != 0:
        raise Unreadable("ruff", result.stderr)
    return result.stdout


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        expected = table()
    except Unreadable as error:
        print(f"C headers: {error}", file=sys.stderr)
        return 1
    if arguments:
        if TABLE.read_text() == expected:
            return 0
        name = TABLE.relative_to(ROOT)
        print(f"{name} differs from the C headers: run scripts/generate_c_abi.py", file=sys.stderr)
        return 1
    TABLE.write_text(expected)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
