"""Functions that rewards of `kind: function` point at: good ones, and ones that misbehave."""

import ctypes
import os
import subprocess
import sys
import time

from rollick.rewards.base import Abstain, Failed, Score


def length(response):
    return len(response)


def equals(response, ground_truth):
    return response == ground_truth


def with_parts(episode):
    return {"score": episode.response_length, "note": "text is ignored", "extra": 0.5}


def from_extra(prompt, extra):
    return {"value": extra["value"], "asked": float(prompt[0]["content"] == "What is it?")}


def nothing(response):
    return None


def verdicts(response):
    return {"score": Score(0.25), "abstain": Abstain("because"), "failed": Failed("because")}[response]


def literal(extra):
    return extra["result"]


async def later(response):
    return 2.0


def raises(response):
    raise KeyError("no such field")


def exits(response):
    sys.exit(3)


def needs_more(response, temperature):
    return 0.0


def misbehaves(response):
    """Does what the answer says; an ordinary word is paid 1."""
    if response == "hang":
        time.sleep(3600)
    if response == "hang holding the interpreter":
        ctypes.PyDLL(None).sleep(3600)
    if response == "crash":
        print("about to die", flush=True)
        os._exit(7)
    if response == "segfault":
        ctypes.string_at(0)
    if response == "flood":
        while True:
            print("x" * 10_000)
    if response == "large":
        return {"score": 1.0, **{f"part{i}": 1.0 for i in range(200_000)}}
    if response == "allocate":
        return float(len(bytearray(64 << 30)))
    if response == "process id":
        return os.getpid()
    if response.startswith("child"):
        detached = response.endswith("detached")
        child = subprocess.Popen(["sleep", "3600"], start_new_session=detached)
        with open(response.split()[1], "w") as file:
            file.write(str(child.pid))
        time.sleep(3600)
    return 1.0


def dies_once(response):
    """Dies at the first call (the answer names a marker file), works from then on."""
    if not os.path.exists(response):
        open(response, "w").close()
        os._exit(1)
    return 1.0
