"""Runs inside a sandbox beside a model's `solution.py` and answers what its functions are worth.

This file is only ever read as text and copied into a sandbox; nothing of Rollick imports it. It may therefore
execute what it is told. Its stdin is one JSON object, taken after the solution was loaded; it answers with one JSON
line per test on the stdout it started with, each with the nonce of that object. Expected values are not among what it
is told: they are compared outside.
"""

import contextlib
import importlib
import json
import os
import signal
import traceback


def plain(value, depth=0):
    """A JSON form of plain data that keeps its types; anything else is its name."""
    if depth > 50:
        return {"other": "nested too deeply"}
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        value = int.__int__(value)
        return {"int": hex(value)} if abs(value) >= 1 << 53 else value
    if isinstance(value, float):
        return {"float": float.__repr__(value)}
    for kind, name in ((list, "list"), (tuple, "tuple"), (set, "set"), (frozenset, "set")):
        if isinstance(value, kind):
            return {name: [plain(one, depth + 1) for one in value]}
    if isinstance(value, dict):
        return {"dict": [[plain(key, depth + 1), plain(one, depth + 1)] for key, one in value.items()]}
    if type(value) is complex:
        return {"complex": [repr(value.real), repr(value.imag)]}
    if hasattr(value, "tolist"):
        return plain(value.tolist(), depth + 1)
    return {"other": type(value).__name__}


class OutOfTime(BaseException):
    pass


def _stop(number, frame):
    raise OutOfTime


def evaluate(test, names):
    """The answer to one test: {"value": …} or {"passed": true}; raises what the test raises."""
    if "call" in test:
        name, args, kwargs = test["call"]
        return {"value": plain(find(name, names)(*args, **kwargs))}
    if "expression" in test:
        return {"value": plain(eval(test["expression"], names))}
    own = dict(names)
    exec(compile(test["source"], "test", "exec"), own)
    if "function" in test:
        own[test["function"]]()
    return {"passed": True}


def find(name, names):
    if name in names:
        return names[name]
    return getattr(names["Solution"](), name)  # the form of many coding sites


def main():
    own_in, own_out = os.dup(0), os.dup(1)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    failure = None
    names = {}
    try:
        names = vars(importlib.import_module("solution"))
    except BaseException as error:  # noqa: BLE001 - whatever a solution raises is its own failure
        failure = describe(error)
    with os.fdopen(own_in, encoding="utf-8") as told:
        order = json.load(told)
    signal.signal(signal.SIGALRM, _stop)
    with os.fdopen(own_out, "w", encoding="utf-8") as out:
        for index, test in enumerate(order["tests"]):
            answer = {"error": failure} if failure else answer_one(test, names, order["seconds"])
            out.write(json.dumps({"nonce": order["nonce"], "index": index, **answer}) + "\n")
            out.flush()


def answer_one(test, names, seconds):
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            return evaluate(test, names)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except OutOfTime:
        return {"error": "timeout"}
    except BaseException as error:  # noqa: BLE001 - as above
        return {"error": describe(error)}


def describe(error):
    with contextlib.suppress(Exception):
        return traceback.format_exception_only(type(error), error)[-1].strip()[:300]
    return type(error).__name__


if __name__ == "__main__":
    main()
