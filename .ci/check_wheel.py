"""Check a built wheel and its installation.

Run by .ci/run, away from the sources, with the Python that has the wheel installed. Arguments: the
wheel, and the virtual environment that it is installed in.
"""

import importlib
import stat
import sys
import zipfile
from pathlib import Path

LAZY = {"apscheduler", "click", "rich", "tiktoken"}
"""What `import scratch` must not load: whoever embeds the store pays for them on first use."""

wheel, environment = Path(sys.argv[1]), Path(sys.argv[2]).resolve()


def check(*, holds: bool, message: str) -> None:
    """End with the message unless it holds."""
    if not holds:
        sys.exit(f"{wheel.name}: {message}")


with zipfile.ZipFile(wheel) as archive:
    roots = {name.split("/")[0] for name in archive.namelist()}
    check(
        holds={root for root in roots if not root.endswith(".dist-info")} == {"scratch"},
        message=f"its top level must be scratch alone, and is {sorted(roots)}",
    )
    links = [i.filename for i in archive.infolist() if stat.S_ISLNK(i.external_attr >> 16)]
    check(holds=not links, message=f"it must hold real files, and has links: {links}")
    check(holds="scratch/schema.sql" in archive.namelist(), message="scratch/schema.sql is not in it")
    schema = archive.read("scratch/schema.sql")
    check(holds=b"CREATE TABLE" in schema, message="scratch/schema.sql holds no schema")
    check(holds="scratch/py.typed" in archive.namelist(), message="scratch/py.typed is not in it")

scratch = importlib.import_module("scratch")
loaded = LAZY & set(sys.modules)
check(holds=not loaded, message=f"`import scratch` loads {sorted(loaded)}")
importlib.import_module("scratch.cli.main")
importlib.import_module("scratch.sweeper.daemon")

package = Path(str(scratch.__file__)).resolve().parent
check(
    holds=package.is_relative_to(environment),
    message=f"scratch was imported from {package}, not from {environment}",
)
check(
    holds=(package / "schema.sql").read_bytes() == schema,
    message="the installed schema.sql is another one",
)
sys.stdout.write(f"{wheel.name}: fine\n")
