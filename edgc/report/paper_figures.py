"""Every table and figure that the ledger of a replication names, made again in minutes. Nothing is trained or timed."""

from __future__ import annotations

import shutil
from pathlib import Path

from edgc.core.base.files import read_json, write_text
from edgc.report import archive
from edgc.report.collect import collect
from edgc.report.interim_looks import look
from edgc.report.ledger import ledger
from edgc.report.planned_runs import asked
from edgc.report.redraw import redraw
from edgc.report.reference_values import Reference
from edgc.report.render import markdown
from edgc.report.study import load_study
from edgc.report.write import write_figure, write_table
from edgc.suite.config import Experiment, available, load_experiment


def make(reference: Reference, results: Path, out: Path) -> list[str]:
    """Write `<out>/EXPERIMENT/{tables,figures}` and `<out>/index.md`, the ledger with its pictures.

    Archived runs are collected again, in `<out>/restored`: what the user has run is left alone. Figures of others are
    drawn from the CSVs that were published, and their tables are the published ones. Returns the experiments whose runs
    were archived.
    """
    shown = sorted({path for entry in reference.ledger for path in entry.shown})
    restored, published = out / "restored", results / "published"
    shutil.rmtree(restored, ignore_errors=True)
    for path in shown:
        (out / path).parent.mkdir(parents=True, exist_ok=True)
        for file in {published / path, (published / path).with_suffix(".csv")}:
            if file.is_file():
                shutil.copy(file, (out / path).parent)
    redraw(out)
    restored.mkdir()
    for folder in ("archive", "published"):
        (restored / folder).symlink_to((results / folder).resolve())
    archived = [name for name in sorted({Path(path).parts[0] for path in shown}) if _collected(name, restored)]
    for name in archived:
        study = load_study(name, restored)
        for path in (path for path in map(Path, shown) if path.parts[0] == name):
            (write_table if path.suffix == ".md" else write_figure)(path.stem, study, (out / path).parent)
    pictures = "\n".join(f"![{path}]({path})\n" for path in shown if path.endswith(".svg"))
    write_text(out / "index.md", f"# {reference.title}\n\n{markdown(ledger(reference, published, ''))}\n{pictures}")
    return archived


def _collected(name: str, results: Path) -> bool:
    """Whether the archive has all runs that the experiment asks for, further seeds by its looks; collects them then."""
    experiment = load_experiment(name) if name in available(Experiment) else None
    if experiment is None or experiment.mode not in archive.NEEDED:
        return False
    archive.restore(experiment, results)
    until = experiment.until_decided

    def all_there() -> bool:
        return all((results / name / "runs" / spec.run_id).is_dir() for spec in asked(experiment, results).specs)

    for seeds in range(until.first, until.most) if until else ():
        if not all_there() or not read_json(look(experiment, seeds, results))["runs"]:
            break
    if not all_there():
        return False
    collect(experiment, results)
    return True
