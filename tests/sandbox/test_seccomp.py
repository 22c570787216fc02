"""The filter as data: what it holds can be said without running it."""

import errno
import struct

import pytest

from rollick.sandbox.seccomp import denied_calls, filter_program

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000


def verdict(program, number, arguments=(0, 0), arch=0xC000003E):
    """A small interpreter of the instructions that the filter uses."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *arguments, 0, 0, 0, 0)
    lines = [struct.unpack_from("=HBBI", program, at) for at in range(0, len(program), 8)]
    at, word = 0, 0
    while True:
        code, if_true, if_false, value = lines[at]
        at += 1
        if code == 0x20:
            [word] = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return value
        else:
            passed = {0x15: word == value, 0x35: word >= value, 0x45: bool(word & value)}[code]
            at += if_true if passed else if_false


@pytest.mark.parametrize(("machine", "arch"), [("x86_64", 0xC000003E), ("aarch64", 0xC00000B7)])
def test_denied_calls_fail_and_others_pass(machine, arch):
    program = filter_program(machine)
    denied = denied_calls(machine)
    for name, number in denied.items():
        assert verdict(program, number, arch=arch) == ERRNO | errno.EPERM, name
    special = {"x86_64": {16, 41, 56, 302}, "aarch64": {29, 198, 220, 261}}[machine] | {435}
    for number in set(range(463)) - set(denied.values()) - special:
        assert verdict(program, number, arch=arch) == ALLOW, number
    assert verdict(program, 500, arch=arch) == ERRNO | errno.ENOSYS
    assert verdict(program, 435, arch=arch) == ERRNO | errno.ENOSYS, "clone3 hides its flags"
    assert verdict(program, 0, arch=0x40000003) == KILL, "another architecture"


def test_arguments_are_looked_at():
    program = filter_program("x86_64")
    unix, inet, vsock = 1, 2, 40
    assert verdict(program, 41, (unix, 1)) == ALLOW
    assert {verdict(program, 41, (family, 1)) for family in (inet, 10, 16, 17, 38, vsock)} == {
        ERRNO | errno.EAFNOSUPPORT
    }
    assert verdict(program, 56, (0x11, 0)) == ALLOW, "fork"
    assert verdict(program, 56, (0x10000011, 0)) == ERRNO | errno.EPERM, "CLONE_NEWUSER"
    assert verdict(program, 302, (0, 6)) == ALLOW and verdict(program, 302, (1, 6)) == ERRNO | errno.EPERM
    assert verdict(program, 16, (0, 0x5401)) == ALLOW and verdict(program, 16, (0, 0x5412)) == ERRNO | errno.EPERM
    assert verdict(program, 39 | 0x40000000) == ERRNO | errno.ENOSYS, "x32"


def test_an_architecture_without_a_table_has_no_filter():
    assert filter_program("riscv64") is None
