"""`rollick init`: commented job files."""

from __future__ import annotations

from pathlib import Path

from rollick.config.base import nearest
from rollick.errors import ConfigError

STARTERS = Path(__file__).parents[1] / "config" / "starters"


def write_starter(pipeline: str, file: Path) -> Path:
    """Copy the starter of `pipeline` to `file`. Raises ConfigError for an unknown pipeline or a file that exists."""
    names = sorted(path.stem for path in STARTERS.glob("*.yaml"))
    if pipeline not in names:
        near = nearest(pipeline, names)
        hint = f"; did you mean '{near}'?" if near else ""
        raise ConfigError(f"there is no starter for '{pipeline}', there are {', '.join(names)}{hint}")
    text = (STARTERS / f"{pipeline}.yaml").read_text(encoding="utf-8")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise ConfigError(f"{file} exists and is left as it is; name another file") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be written ({error.strerror})") from None
    return file
