"""Where the library is looked for."""

import pytest
from polypath import _library
from polypath.errors import LibraryNotFound


def test_the_environment_comes_first(monkeypatch, tmp_path):
    file = tmp_path / "libpolypath.so"
    file.touch()
    monkeypatch.setenv("POLYPATH_LIBRARY", str(file))
    assert _library.find_library() == file


def test_a_named_file_that_is_missing_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("POLYPATH_LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(LibraryNotFound, match=r"POLYPATH_LIBRARY names .*none\.so"):
        _library.find_library()


def test_a_wheel_comes_before_a_source_tree(monkeypatch, tmp_path):
    monkeypatch.delenv("POLYPATH_LIBRARY", raising=False)
    package = tmp_path / "python" / "polypath"
    monkeypatch.setattr(_library, "_PACKAGE", package)
    with pytest.raises(LibraryNotFound, match="make setup"):
        _library.find_library()

    built = tmp_path / "build" / "release" / "libpolypath.so"
    built.parent.mkdir(parents=True)
    built.touch()
    assert _library.find_library() == built

    shipped = package / "lib" / "libpolypath.so"
    shipped.parent.mkdir(parents=True)
    shipped.touch()
    assert _library.find_library() == shipped


def test_node_files_beside_the_library_come_first(monkeypatch, tmp_path):
    library = tmp_path / "build" / "release" / "libpolypath.so"
    for folder in (library.parent, library.parent / "nodes", tmp_path / "nodes"):
        folder.mkdir(parents=True)
    library.touch()
    monkeypatch.setenv("POLYPATH_LIBRARY", str(library))
    assert _library.node_directories() == [library.parent / "nodes", tmp_path / "nodes"]
