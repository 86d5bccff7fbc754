"""Kernels as they are launched, compiled for GPUs that are not here; what they take of a multiprocessor."""

from __future__ import annotations

import importlib
import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction

OPTIONS = ("num_warps", "num_stages")
DTYPE = "dtype"
#: It comes with Triton, and says of a compiled kernel what it takes.
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


@dataclass(frozen=True)
class Source:
    """What a launch's kernel is compiled from, as JSON holds it. `attributes`: what is known of arguments, by name."""

    module: str
    kernel: str
    signature: Mapping[str, str]
    constants: Mapping[str, Any]
    attributes: Mapping[str, Any]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, kernel: JITFunction, target: GPUTarget, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Source:
        """Of a launch with these arguments, specialised as Triton would do it on `target`."""
        from triton.runtime.jit import create_function_from_signature

        backend = make_backend(target)
        keywords = {**keywords, "debug": False}
        binder = create_function_from_signature(kernel.signature, kernel.params, backend)
        bound, specialisation, rest = binder(*arguments, **keywords)
        _, signature, constants, attributes = kernel._pack_args(backend, keywords, bound, specialisation, rest)
        names = [parameter.name for parameter in kernel.params]
        return cls(
            kernel.fn.__module__,
            kernel.__name__,
            signature,
            {names[path[0]]: _plain(value) for path, value in constants.items()},
            {names[path[0]]: value for path, value in attributes.items()},
            {name: keywords[name] for name in OPTIONS if name in keywords},
        )

    def multiplying_in(self, precision: str) -> Source:
        """The same with another precision of its products, if it has any."""
        known = "PRECISION" in self.constants
        return replace(self, constants={**self.constants, "PRECISION": precision}) if known else self

    def compiled(self, target: GPUTarget) -> Any:
        """Triton's compiled kernel; from its cache, if it has been compiled before."""
        kernel = getattr(importlib.import_module(self.module), self.kernel)
        place = {parameter.name: (number,) for number, parameter in enumerate(kernel.params)}
        constants = {place[name]: _made(value) for name, value in self.constants.items()}
        attributes = {place[name]: [tuple(one) for one in value] for name, value in self.attributes.items()}
        options = make_backend(target).parse_options({**self.options, "debug": False})
        source = ASTSource(kernel, dict(self.signature), constants, attributes)
        return triton.compile(source, target=target, options=options.__dict__)


@dataclass(frozen=True)
class Resources:
    """Of a program: registers of a thread, and bytes that it spills to memory; bytes of shared memory; warps."""

    registers: int
    spilled: int
    shared: int
    warps: int


def resources(binary: Any) -> Resources:
    """What a kernel that was compiled for NVIDIA's GPUs takes. Raises `FileNotFoundError` without `CUOBJDUMP`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(binary.asm["cubin"])
        command = [CUOBJDUMP, "--dump-resource-usage", path]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found, text
    return Resources(int(found[1]), int(found[2]), binary.metadata.shared, binary.metadata.num_warps)


def _plain(value: Any) -> Any:
    return {DTYPE: value.name} if isinstance(value, triton.language.dtype) else value


def _made(value: Any) -> Any:
    return triton.language.dtype(value[DTYPE]) if isinstance(value, dict) else value
