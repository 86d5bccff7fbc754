"""What this machine has of what the project can use, and what each missing piece would enable (`edgc doctor`)."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from edgc.core.base.lazy import dist, torch
from edgc.suite.config.provenance import cpu_count, cpu_model, version

SYSTEM_PATH = os.pathsep.join(["/usr/local/sbin", "/usr/sbin", "/sbin"])  # not in every user's PATH
SETUP = "make setup"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked for. `found` None: it is missing."""

    name: str
    found: str | None
    enables: str
    remedy: str
    required: bool = False


def doctor() -> list[Finding]:
    """Look for everything, in the order in which a user would mend it. Launches nothing but `nvidia-smi -L`."""
    python = f"{platform.python_version()} on {cpu_count()} cores of {cpu_model()}"
    return [
        Finding("python", python, "everything", SETUP, required=True),
        _torch(),
        _backend("gloo", "training on CPUs", required=True),
        _backend("nccl", "training on GPUs", required=False),
        _gpus(),
        _package("megatron-core", "model, optimizer and pipeline schedule", required=True),
        _package("lm_eval", "zero-shot tasks", required=True),
        _package("snakemake", "running experiments: make smoke", required=True),
        _package("triton", "fused GPU kernels", remedy="make setup BUILD=cuda"),
        _programs("slurm", ("sbatch", "squeue", "srun"), "experiments on a cluster"),
        _package("snakemake-executor-plugin-slurm", "experiments on a cluster"),
        _programs("SLURM's daemons", ("slurmctld", "slurmd", "munged"), "a cluster on this machine: make lab"),
        _programs("network shaping", ("tc", "ip"), "slow links on one machine"),
        _folder("EDGC_DATA", "experiments on local text: smoke-english"),
        _folder("EDGC_EVAL_DATA", "zero-shot tasks without the Hugging Face hub"),
    ]


def report(findings: list[Finding], console: Console | None = None) -> int:
    """Print findings as a table. Returns the exit code: 1 if something required is missing, else 0."""
    table = Table("", "what", "found", "what it is for", box=box.SIMPLE_HEAD)
    table.columns[1].overflow = "fold"
    for finding in findings:
        mark = "✓" if finding.found is not None else "✗" if finding.required else "–"
        table.add_row(mark, finding.name, finding.found or f"missing: {finding.remedy}", finding.enables)
    lacking = [f.name for f in findings if f.required and f.found is None]
    console = console or Console()
    console.print(table)
    console.print(f"required and missing: {', '.join(lacking)}" if lacking else "everything required is here")
    return 1 if lacking else 0


def _package(distribution: str, enables: str, remedy: str = SETUP, required: bool = False) -> Finding:
    return Finding(distribution, version(distribution), enables, remedy, required)


def _torch() -> Finding:
    installed = version("torch")
    build = None
    if installed is not None:
        cuda, hip = torch.version.cuda, torch.version.hip
        build = f"CUDA {cuda} build" if cuda else f"ROCm {hip} build" if hip else "CPU build"
    return Finding("torch", f"{installed}, {build}" if build else None, "everything", SETUP, required=True)


def _backend(name: str, enables: str, required: bool) -> Finding:
    offered = version("torch") is not None and dist.is_available() and dist.is_backend_available(name)
    return Finding(name, "in torch" if offered else None, enables, "another build of torch", required)


def _gpus() -> Finding:
    enables = "GPU experiments"
    if version("torch") is not None and torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        found = f"{len(names)} × {' + '.join(sorted(set(names)))}"
        if old := _without_kernels():
            remedy = f"torch {torch.__version__} has no kernels for {found} ({old}): make setup BUILD=cuda126"
            return Finding("GPU", None, enables, remedy, required=True)
        return Finding("GPU", found, enables, "")
    remedy = "an NVIDIA GPU and its driver"
    if _driver_lists_gpu():
        remedy = "torch cannot use the one there is: make setup BUILD=cuda, or a newer driver"
    return Finding("GPU", None, enables, remedy)


def _without_kernels() -> str:
    """Architectures of this machine's GPUs that are older than all that torch was built for; a V100 is sm_70."""
    built = [int(name[3:]) for name in torch.cuda.get_arch_list() if name.startswith("sm_") and name[3:].isdigit()]
    capabilities = {torch.cuda.get_device_capability(i) for i in range(torch.cuda.device_count())}
    here = sorted(10 * major + minor for major, minor in capabilities)
    return ", ".join(f"sm_{number}" for number in here if built and number < min(built))


def _driver_lists_gpu() -> bool:
    try:
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return b"GPU" in listing.stdout


def _programs(name: str, programs: tuple[str, ...], enables: str) -> Finding:
    path = os.pathsep.join([os.environ.get("PATH", ""), SYSTEM_PATH])
    absent = [program for program in programs if shutil.which(program, path=path) is None]
    return Finding(name, None if absent else ", ".join(programs), enables, f"install {', '.join(absent)}")


def _folder(variable: str, enables: str) -> Finding:
    value = os.environ.get(variable)
    if value is None:
        return Finding(variable, None, enables, f"export {variable}=FOLDER")
    found = value if Path(value).is_dir() else None
    return Finding(variable, found, enables, f"{variable}={value} is not a folder")
