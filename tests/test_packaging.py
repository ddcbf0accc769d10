"""The linked layout, and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

is_unpacked_sdist = (ROOT / "PKG-INFO").exists()


@pytest.mark.skipif(is_unpacked_sdist, reason="an sdist holds folders in place of links")
@pytest.mark.parametrize("name", ["cli", "sweeper", "schema.sql"])
def test_the_package_links_to_the_top_level(name: str) -> None:
    link, target = ROOT / "scratch" / name, ROOT / name
    assert link.is_symlink(), (
        f"scratch/{name} must be a symbolic link to ../{name}, and is not. This checkout was "
        "probably made without symbolic links, as git does by default on Windows: there each link "
        "becomes a small text file that holds its target. Turn on Developer Mode, then `git config "
        f"core.symlinks true`, remove scratch/{name}, and `git checkout -- scratch/{name}`. "
        "Or install the wheel: it holds real files."
    )
    assert link.readlink().as_posix() == f"../{name}", (
        f"scratch/{name} must point to ../{name}, relative to itself: an absolute link or another "
        f"target breaks in every other checkout. It points to {link.readlink()}"
    )
    assert target.exists(), f"scratch/{name} points to {target}, and nothing is there"


@pytest.mark.parametrize(
    "name", ["apscheduler", "click", "opentelemetry", "re2", "rich", "sentencepiece", "tiktoken", "toktok"]
)
def test_importing_scratch_does_not_load(name: str) -> None:
    # a fresh interpreter: here in the test process other tests have loaded them already
    program = "import sys, scratch; print(sys.argv[1] in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, name], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False", f"`import scratch` loads {name}"
