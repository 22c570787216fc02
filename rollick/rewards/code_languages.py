"""How programs of a language are found in an answer, compiled and started."""

from __future__ import annotations

from pydantic import Field

from rollick.config.base import Settings


class Language(Settings):
    """One interpreter or compiler, as the sandbox sees it.

    {fences: [lua], file: main.lua, command: [lua, main.lua]}
    """

    fences: list[str] = Field(min_length=1)
    """Labels of fenced blocks that hold this language, in lower case."""
    file: str
    """Name the source is given."""
    command: list[str] = Field(min_length=1)
    """What starts the program."""
    compile: list[str] = Field(default_factory=list)
    """Run once before the tests; what it leaves at `artifact` is then beside the program. Empty: nothing to compile."""
    artifact: str = "program"
    """File that the compiler writes."""


LANGUAGES = {
    "python": Language(fences=["python", "py", "python3"], file="main.py", command=["python3", "-S", "-B", "main.py"]),
    "javascript": Language(
        fences=["javascript", "js", "node", "nodejs"],
        file="main.js",
        command=["node", "--max-old-space-size=256", "main.js"],
    ),
    "cpp": Language(
        fences=["cpp", "c++", "cc"],
        file="main.cpp",
        command=["./program"],
        compile=["g++", "-O2", "-std=c++17", "-o", "program", "main.cpp"],
    ),
    "c": Language(
        fences=["c"],
        file="main.c",
        command=["./program"],
        compile=["gcc", "-O2", "-o", "program", "main.c", "-lm"],
    ),
    "bash": Language(fences=["bash", "sh", "shell"], file="main.sh", command=["bash", "main.sh"]),
}


def find_program(text: str, fences: list[str]) -> str | None:
    """The last closed fenced block with one of these labels; where no block has one, the last without any label.

    find_program("First ```py\\n1\\n``` then\\n```python\\nprint(2)\\n```", ["python", "py"])   # "print(2)\\n"
    """
    labelled = unlabelled = None
    fence: str | None = None
    label = ""
    body: list[str] = []
    for line in text.split("\n"):
        stripped = line.strip()
        if fence is None:
            mark = next((one for one in ("```", "~~~") if stripped.startswith(one)), None)
            if mark is not None:
                fence = mark[0] * (len(stripped) - len(stripped.lstrip(mark[0])))
                words = stripped[len(fence) :].split()
                label, body = (words[0].lower() if words else ""), []
        elif stripped.startswith(fence) and not stripped.strip(fence[0]):
            program = "".join(f"{one}\n" for one in body)
            if label in fences:
                labelled = program
            elif not label:
                unlabelled = program
            fence = None
        else:
            body.append(line)
    return labelled if labelled is not None else unlabelled
