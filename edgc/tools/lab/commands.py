"""`edgc lab`: the cluster on one machine, from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from edgc.core.base.errors import UserError
from edgc.tools.lab import slurm_cluster as cluster

app = typer.Typer(no_args_is_help=True, help="A real SLURM cluster on this machine, for tests (root only).")

Nodes = Annotated[list[str] | None, typer.Argument(help="Nodes, e.g. n1 n3; default: all")]


@app.command()
def up(
    nodes: Annotated[int, typer.Option(min=1, max=64, help="Nodes, each a network namespace with a slurmd")] = 4,
    gpus: Annotated[int, typer.Option(min=0, max=16, help="GPUs that a node claims to have")] = 8,
) -> None:
    """Start the cluster. It touches nothing of this machine but /run/edgc-lab and a network interface, edgc-lab."""
    made = cluster.up(nodes, gpus)
    typer.echo(f"{', '.join(made.nodes)} are idle. For SLURM's commands: export SLURM_CONF={cluster.CONF}")


@app.command()
def down() -> None:
    """End the cluster and leave nothing of it behind."""
    cluster.check_root()
    cluster.down()


@app.command()
def status() -> None:
    """Show nodes, links and processes."""
    network = cluster.running()
    states = cluster.node_states()
    table = Table("node", "state", "address", "link", "processes", box=box.SIMPLE_HEAD)
    for node in network.nodes:
        limit = network.limits(node)[1]
        rate = "not shaped" if limit is None else f"{limit / 1e6:g}mbit"
        count = str(len(network.pids(node)))
        table.add_row(node, states.get(node, "unknown"), network.address(node), rate, count)
    Console(highlight=False).print(table)


@app.command()
def rate(rate: Annotated[str, typer.Argument(help="e.g. 200mbit; none: no limit")], nodes: Nodes = None) -> None:
    """Limit what nodes send and receive, at once and while jobs run."""
    network = cluster.running()
    network.check_nodes(nodes or ())
    network.shape(None if rate == "none" else rate, nodes or None)


@app.command()
def kill(nodes: Annotated[list[str], typer.Argument(help="Nodes, e.g. n3")]) -> None:
    """Crash nodes: every process on them ends at once."""
    network = cluster.running()
    network.check_nodes(nodes)
    for node in nodes:
        cluster.crash(network, node)


@app.command()
def start(nodes: Annotated[list[str], typer.Argument(help="Nodes that were crashed")]) -> None:
    """Start crashed nodes again."""
    network = cluster.running()
    network.check_nodes(nodes)
    for node in nodes:
        if network.pids(node):
            raise UserError(f"node {node}: runs already")
        cluster.start_node(network, node)


@app.command(context_settings={"ignore_unknown_options": True})
def run(command: Annotated[list[str], typer.Argument(help="e.g. -- snakemake --profile slurm …")]) -> None:
    """Run a command that finds the lab's SLURM (SLURM_CONF is set)."""
    cluster.running()
    sys.exit(subprocess.run(command, env=os.environ | cluster.environment(), check=False).returncode)
