"""Where a model comes from: a folder here, or a name on the hub that can be reached."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib import request
from urllib.error import HTTPError

from rollick.errors import DataError

HUB_NAME = re.compile(r"^[A-Za-z0-9][\w.-]*(/[\w.-]+)?$")
HUB_TIMEOUT_SECONDS = 5.0


def require_source(path: str, key: str) -> None:
    """Raises DataError when `path` is neither a folder nor a hub name whose files are cached or can be fetched.

    Asked once, before a loader does: the loaders retry for a minute and then speak of connections, although what
    is wrong is usually a folder that is not there.
    """
    folder = Path(path)
    if folder.is_dir():
        return
    if folder.exists():
        raise DataError(f"{key}: '{path}' is a file; give the folder that holds config.json and the weights")
    hint = "; `rollick fetch smollm2` makes it" if folder.name == "smollm2-135m" else ""
    if not HUB_NAME.match(path):
        raise DataError(f"{key}: there is no folder '{path}'{hint}")
    if not _cached(path) and not _hub_answers():
        raise DataError(f"{key}: there is no folder '{path}', and no model hub to look the name up{hint}")


def _cached(name: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    files = ("config.json", "tokenizer_config.json")
    return any(isinstance(try_to_load_from_cache(name, file), str) for file in files)


def _hub_answers() -> bool:
    """Any answer counts: the loader says more about a name that the hub does not know."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE or os.environ.get("TRANSFORMERS_OFFLINE") == "1":
        return False
    try:
        request.urlopen(request.Request(constants.ENDPOINT, method="HEAD"), timeout=HUB_TIMEOUT_SECONDS).close()
    except HTTPError:
        return True
    except OSError:
        return False
    return True
