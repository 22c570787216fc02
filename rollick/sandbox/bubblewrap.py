"""Runs inside of bubblewrap (bwrap(1)), where it may make namespaces and this process may not: it is set-uid on some
systems, and allowed by name on others.

Inside, the same init as everywhere sets limits and watches (`rollick.sandbox.run`). Files and folders in the writable
place are not counted here, only bytes; and every run starts one interpreter more.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any, NoReturn

from rollick.sandbox.root import SYSTEM, WORK
from rollick.sandbox.run import Descriptors

_OWN_CODE = "/opt/rollick"


def find_bubblewrap() -> str | None:
    return shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")


def enter_bubblewrap(descriptors: Descriptors, spec: Mapping[str, Any], visible: Mapping[str, str]) -> NoReturn:
    """Become bwrap, which becomes the init of a run. Raises OSError when it cannot be started."""
    for end in astuple(descriptors):
        os.set_inheritable(end, True)
    os.execv(find_bubblewrap() or "bwrap", _command(descriptors, spec["limits"], visible))


def _command(descriptors: Descriptors, limits: Mapping[str, Any], visible: Mapping[str, str]) -> list[str]:
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    python = os.path.join(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    return [
        "bwrap",
        "--unshare-all",
        "--unshare-user",
        "--die-with-parent",
        "--as-pid-1",
        *_binds(visible),
        *("--ro-bind", package, f"{_OWN_CODE}/rollick"),
        *("--proc", "/proc"),
        *("--dev", "/dev"),
        *("--remount-ro", "/dev"),
        *("--size", str(limits["disk_bytes"]), "--perms", "0700", "--tmpfs", WORK),
        *("--remount-ro", "/"),
        *("--hostname", "sandbox"),
        *("--chdir", WORK),
        *("--cap-drop", "ALL"),
        "--clearenv",
        *("--setenv", "PYTHONPATH", _OWN_CODE),
        *(python, "-P", "-S", "-s", "-B", "-m", "rollick.sandbox.run"),
        *map(str, astuple(descriptors)),
    ]


def _binds(visible: Mapping[str, str]) -> list[str]:
    words = []
    for path in SYSTEM:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            words += ["--ro-bind", path, path]
    for path, real in visible.items():
        words += ["--ro-bind", real, path]
    return words
