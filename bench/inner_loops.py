"""The instructions of a kernel's inner loops, read from the compiled code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from bench.context import Record

_FEWEST = 4  # multiply-adds that make a loop worth telling
_FUNCTION = re.compile(r"^[0-9a-f]+ <(.*)>:$")
_INSTRUCTION = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
_NAME = re.compile(r"::(\w+(?:<[^(]*>)?)\(")
_MULTIPLY_ADD = re.compile(r"v?fn?m(add|sub|la)\w*|mulps")


def inner_loops(build: Path, source: str, isa: str) -> list[Record]:
    """Per iteration of every innermost loop that multiplies and adds: the instructions, how many of
    them are multiply-adds, loads, broadcasts of one float, stores and prefetches. Loops of one
    function that count alike are told once.

    Args:
        build: CMake's build folder.
        source: a kernel source, from ``cpp/leashed`` on.
        isa: the instruction-set level, whose object is read.
    """
    folder = build / "CMakeFiles" / f"leashed_core_{isa}.dir" / "cpp" / "leashed"
    listing = subprocess.run(
        ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", folder / f"{source}.o"],
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ).stdout
    loops: list[Record] = []
    for name, code in _functions(listing):
        for body in _innermost(code):
            loop = {"function": name, **_counts(body)}
            if loop["multiply_adds"] >= _FEWEST and loop not in loops:
                loops.append(loop)
    return loops


def _functions(listing: str) -> list[tuple[str, list[tuple[int, str, str]]]]:
    """Every function's name and code: address, operation, operands."""
    functions: list[tuple[str, list[tuple[int, str, str]]]] = []
    for line in listing.splitlines():
        if head := _FUNCTION.match(line):
            short = _NAME.search(head[1])
            functions.append((short[1] if short else head[1], []))
        elif functions and (found := _INSTRUCTION.match(line)):
            functions[-1][1].append((int(found[1], 16), found[2], found[3]))
    return functions


def _innermost(code: list[tuple[int, str, str]]) -> list[list[tuple[str, str]]]:
    """The bodies of the loops that hold no other: from a jump's target up to the jump back."""
    places = {address: i for i, (address, _, _) in enumerate(code)}
    loops = []
    for i, (_, operation, operands) in enumerate(code):
        if operation.startswith(("j", "b")) and (target := re.match(r"([0-9a-f]+)\b", operands)):
            first = places.get(int(target[1], 16))
            if first is not None and first < i:
                loops.append((first, i))
    inner = [
        (a, b)
        for a, b in loops
        if not any((c, d) != (a, b) and a <= c and d <= b for c, d in loops)
    ]
    return [[(operation, operands) for _, operation, operands in code[a : b + 1]] for a, b in inner]


def _counts(body: list[tuple[str, str]]) -> Record:
    counts = dict.fromkeys(
        ("instructions", "multiply_adds", "loads", "broadcasts", "stores", "prefetches"), 0
    )
    for operation, operands in body:
        memory = re.search(r"\([^)]*%|\[", operands) is not None
        counts["instructions"] += 1
        if _MULTIPLY_ADD.fullmatch(operation):
            counts["multiply_adds"] += 1
        if operation.startswith("prefetch") or operation == "prfm":
            counts["prefetches"] += 1
        elif memory and ("broadcast" in operation or "{1to" in operands or "ld1r" in operation):
            counts["broadcasts"] += 1
        elif memory and operation.startswith(("vmov", "mov", "st", "ldp", "ldr", "ldur")):
            stores = operation.startswith("st") or operands.rstrip().endswith(")")
            counts["stores" if stores else "loads"] += 1
        elif memory and not operation.startswith("lea"):
            counts["loads"] += 1
    return counts
