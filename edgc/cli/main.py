"""The command line. A command imports what it needs when it runs, so that the others start fast."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from edgc.cli.bench_commands import app as bench
from edgc.cli.check_commands import app as check
from edgc.cli.list_commands import AsJson, Results, experiments, methods
from edgc.cli.missing import missing
from edgc.cli.plan_commands import plan, recommend
from edgc.cli.site_commands import app as site
from edgc.cli.site_commands import compare, evidence
from edgc.core.base.errors import EXIT_BAD_INPUT, UserError
from edgc.core.base.terminal import replace_unprintable
from edgc.suite.config import Corpus, RunSpec, Task, load, load_experiment
from edgc.tools.lab.commands import app as lab


class _OneScreenErrors(TyperGroup):
    """Prints a UserError without a traceback and exits with its code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        replace_unprintable()
        return super().main(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            typer.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)
        except ModuleNotFoundError as error:
            typer.echo(f"error: {missing(error)}", err=True)
            sys.exit(EXIT_BAD_INPUT)
        except OSError as error:
            if error.filename is None:
                raise
            missing_file = isinstance(error, FileNotFoundError)
            remedy = "check the path, or run what makes it" if missing_file else "choose a folder that can be written"
            typer.echo(f"error: {error.filename}: {error.strerror}; {remedy}", err=True)
            sys.exit(EXIT_BAD_INPUT)


app = typer.Typer(
    cls=_OneScreenErrors, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False,
    help="Does compressing gradients pay? A benchmark for language-model training.",
)  # fmt: skip

app.add_typer(bench, name="bench")
app.add_typer(check, name="check")
app.add_typer(lab, name="lab")
app.add_typer(site, name="site")
for command in (plan, recommend, compare, evidence, methods, experiments):
    app.command()(command)

ExperimentName = Annotated[str, typer.Option("--experiment", "-e", help="Name of an experiment in configs/experiments")]
Folder = Annotated[Path, typer.Option(help="Folder to write to")]
ExperimentArgument = Annotated[str, typer.Argument(help="Name of an experiment in configs/experiments")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait for a process of this machine that trains into the folder")]
CorpusFolder = Annotated[Path, typer.Option("--corpus", help="Folder that `edgc prepare` wrote")]


@app.command()
def prepare(corpus: Annotated[str, typer.Argument(help="Name of a file in configs/corpora")], out: Folder) -> None:
    """Turn a corpus into tokens: train.bin and validation.bin."""
    from edgc.suite.training.data.prepare import prepare as prepare_corpus

    prepare_corpus(load(Corpus, corpus), out)


@app.command()
def train(
    run_id: Annotated[str, typer.Argument(help="Id of a run; `edgc runs` lists them")],
    experiment: ExperimentName,
    corpus: CorpusFolder,
    out: Folder,
    wait: Wait = False,
) -> None:
    """Train one run, on this machine or on the nodes of the current SLURM job.

    Start it again and it goes on from its last checkpoint.

    Exit code 3: the run diverged. Exit code 4: its time is up; it has saved
    its state, so start it again.
    """
    from edgc.suite.training.launch import launch

    chosen = load_experiment(experiment)
    if chosen.mode != "train":
        raise UserError(f"experiment {experiment}: mode is {chosen.mode}; `edgc train` is for mode: train")
    launch(chosen.run(run_id), out, corpus, wait)


@app.command()
def time(
    experiment: ExperimentArgument, corpus: CorpusFolder, results: Results = Path("results"), wait: Wait = False
) -> None:
    """Time the methods of an experiment (mode time): they take turns in one launch."""
    from edgc.suite.config.timing import Session
    from edgc.suite.training.launch import launch_session

    chosen = load_experiment(experiment)
    if chosen.timing is None:
        raise UserError(f"experiment {experiment}: mode is {chosen.mode}; `edgc time` is for mode: time")
    session = Session(timing=chosen.timing, runs=tuple(chosen.runs()))
    launch_session(session, results / experiment / "session", corpus, wait)


@app.command()
def follow(
    job_id: Annotated[int, typer.Argument(help="Id of a SLURM job")],
    output: Annotated[Path, typer.Argument(help="A file that the job makes")],
) -> None:
    """Wait for a SLURM job. Fail if it ends without making its output."""
    from edgc.suite.cluster.slurm import follow as wait_for

    wait_for(job_id, output)


@app.command()
def evaluate(
    run_dir: Annotated[Path, typer.Argument(help="Folder of a finished run")],
    experiment: ExperimentName,
    corpus: CorpusFolder,
) -> None:
    """Score a finished run on the experiment's zero-shot tasks."""
    from edgc.core.base.files import read_json
    from edgc.suite.training.checks import check_corpus
    from edgc.suite.training.evaluation.zero_shot import evaluate_run

    chosen = load_experiment(experiment)
    spec, prepared = run_dir / "spec.json", corpus / "manifest.json"
    if spec.is_file() and prepared.is_file():
        check_corpus(RunSpec.model_validate(read_json(spec)), read_json(prepared))
    evaluate_run(run_dir, [load(Task, name) for name in chosen.tasks], corpus, chosen.task_limit)


@app.command()
def runs(experiment: ExperimentName, results: Results = Path("results")) -> None:
    """List the ids of an experiment's runs.

    Where seeds are added until verdicts are decided, those that there are so
    far in --results.
    """
    from edgc.report.planned_runs import asked

    found = asked(load_experiment(experiment), results)
    for spec in found.specs:
        typer.echo(spec.run_id)
    if not found.complete:
        typer.echo(
            f"{len(found.specs)} runs so far, at most {found.at_most}: seeds are added until verdicts are decided",
            err=True,
        )


@app.command()
def look(
    experiment: ExperimentArgument,
    seeds: Annotated[int, typer.Argument(help="Seeds that have been run")],
    results: Results = Path("results"),
) -> None:
    """Say which verdicts are open, and which runs of the next seed they need.

    For experiments whose seeds are added until verdicts are decided.
    """
    from edgc.report.interim_looks import look as look_at

    typer.echo(look_at(load_experiment(experiment), seeds, results))


@app.command()
def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="EXPERIMENT", help="Names of experiments; default: all that have runs"),
    ] = None,
    results: Results = Path("results"),
    as_json: AsJson = False,
    watch: Annotated[
        float | None,
        typer.Option(min=0.1, metavar="SECONDS", help="Draw again every so many seconds until all runs have ended"),
    ] = None,
) -> None:
    """Show how far each run is. Exit code 1: a run failed.

    It reads the runs' folders only, so it works on a login node, too.

    timeout: the job's time is up; the run goes on when SLURM requeues it.

    stopped: no sign of life for two minutes, and no status. Start it again
    and it goes on from its last checkpoint.

    loss: validation loss of a run that is done, else training loss.

    left: estimated time for the remaining steps.

    seen: time since the last sign of life.
    """
    from edgc.report.status.view import report

    sys.exit(report(names or [], results, as_json, watch))


@app.command()
def collect(experiment: ExperimentArgument, results: Results = Path("results")) -> None:
    """Gather what an experiment's runs recorded into parquet files (mode simulate: forecasts)."""
    from edgc.report.collect import collect as collect_frames

    loaded = load_experiment(experiment)
    rows = []
    if loaded.mode == "simulate":
        from edgc.suite.cluster.experiments import write_forecasts

        rows = write_forecasts(loaded, results)
    elif loaded.predict_from:
        from edgc.core.base import files

        path = results / experiment / "prediction.json"
        published = results / "published" / experiment / "prediction.json"  # of a timing that came from the archive
        rows = files.read_json(path if path.is_file() else published)["rows"]
    collect_frames(loaded, results, forecasts=rows)


@app.command()
def table(name: str, experiment: ExperimentArgument, results: Results = Path("results")) -> None:
    """Write a table of an experiment as CSV and Markdown, after `edgc collect`."""
    from edgc.report.study import load_study
    from edgc.report.write import write_table

    write_table(name, load_study(experiment, results), results / experiment / "tables")


@app.command()
def figure(name: str, experiment: ExperimentArgument, results: Results = Path("results")) -> None:
    """Draw a figure of an experiment as SVG and PNG, with its data as CSV, after `edgc collect`."""
    from edgc.report.study import load_study
    from edgc.report.write import write_figure

    write_figure(name, load_study(experiment, results), results / experiment / "figures")


@app.command()
def publish(
    experiment: ExperimentArgument,
    results: Results = Path("results"),
    leave_out: Annotated[
        list[str] | None, typer.Option(help="A table or figure not to copy; repeat it for more")
    ] = None,
) -> None:
    """Copy an experiment's tables, figures and manifests to results/published, for git."""
    from edgc.report.publish import publish as publish_results

    typer.echo(publish_results(load_experiment(experiment), results, leave_out or ()))


@app.command()
def redraw(
    folder: Annotated[Path, typer.Argument(help="What to draw", exists=True)] = Path("results/published"),
) -> None:
    """Draw published figures again from their CSVs, after a change of how figures look."""
    from edgc.report.redraw import redraw as draw_again

    typer.echo(f"{len(draw_again(folder))} figures under {folder} were drawn again")


@app.command()
def archive(experiment: ExperimentArgument, results: Results = Path("results")) -> None:
    """Pack the records of an experiment's finished runs into results/archive, for git."""
    from edgc.report.archive import archive as pack

    typer.echo(f"{len(pack(load_experiment(experiment), results))} runs are in {results / 'archive'}")


@app.command()
def restore(experiment: ExperimentArgument, results: Results = Path("results")) -> None:
    """Unpack an experiment's runs from results/archive, so that only those that are missing are trained or timed."""
    from edgc.report.archive import restore as unpack

    found = unpack(load_experiment(experiment), results)
    typer.echo(
        f"{len(found.came)} runs came from {results / 'archive'}; {len(found.there)} were there before, and "
        f"{len(found.absent)} are in no archive"
    )


@app.command()
def doctor(
    gpu_dry: Annotated[
        str | None,
        typer.Option(
            help="Experiment on GPUs: run a rank of every stage and method on a device without data, on this machine, "
            "and say what it would need there"
        ),
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="With --gpu-dry: this method only; may be repeated")] = None,
    out: Annotated[Path | None, typer.Option(help="With --gpu-dry: folder of the tables")] = None,
) -> None:
    """Say what is installed, and what each missing piece would make possible."""
    if gpu_dry is not None:
        from edgc.tools.dry.gpu_doctor import doctor as dry

        sys.exit(dry(load_experiment(gpu_dry), out or Path("results/gpu-dry", gpu_dry), method or ()))
    from edgc.tools import doctor as checks

    sys.exit(checks.report(checks.doctor()))


@app.command()
def gpu_queue(
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Do as much of it in so many minutes (inf: all), the most valuable first"),
    ] = None,
    experiment: Annotated[
        list[str] | None, typer.Option("--experiment", "-e", help="Experiment whose runs are meant; may be repeated")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Time fewer operations")] = False,
    results: Results = Path("results"),
) -> None:
    """List what a GPU is needed for and is still open, with minutes and value.

    Results of kernels and records of finished runs go where git keeps them.
    A run whose time is up saves its state and goes on from it the next time.

    Exit code 1: something failed. Exit code 4: something is left.
    """
    from edgc.tools import gpu_queue as queue

    names = experiment or queue.usual()
    if minutes is None:
        queue.show(queue.open_items(names, results, quick))
    else:
        sys.exit(queue.work(queue.open_items(names, results, quick), minutes))


@app.command()
def search(
    name: Annotated[str, typer.Argument(help="Name of a search in configs/searches")],
    cores: Annotated[int, typer.Option(min=1, help="Runs at once")] = 1,
    publish: Annotated[
        bool, typer.Option("--publish", help="Then copy all trials to results/published/searches")
    ] = False,
    results: Results = Path("results"),
) -> None:
    """Try settings of a method for the least loss within a number of bytes; started again, it goes on."""
    from edgc.tools import search as searches

    typer.echo(searches.run(name, cores, results))
    if publish:
        typer.echo(searches.publish(name, results))


@app.command()
def schema() -> None:
    """Write JSON schemas of all YAML files to workflow/schemas, for an editor's YAML plug-in."""
    from edgc.suite.config.schema import write

    for path in write():
        typer.echo(path)


@app.command()
def calibrate(
    name: Annotated[str, typer.Argument(help="Name of the calibration; it goes to configs/calibrations/<name>.yaml")],
    experiment: Annotated[
        list[str], typer.Option("--experiment", "-e", help="A timing that was run on this machine; repeat it for more")
    ],
    results: Results = Path("results"),
) -> None:
    """Work out this machine's rates from timings that were run on it."""
    import yaml

    from edgc.core.base import files
    from edgc.suite.cluster.calibrate import calibrate as fit
    from edgc.suite.cluster.calibrate import read_session
    from edgc.suite.config import CONFIGS

    timed = [one for each in experiment for one in read_session(load_experiment(each), results)]
    found = fit(name, timed, f"measured on this machine by {', '.join(experiment)}")
    path = CONFIGS / found.folder / f"{name}.yaml"
    files.write_text(path, yaml.safe_dump(found.model_dump(mode="json", exclude_defaults=True), sort_keys=False))
    typer.echo(path)


@app.command()
def predict(experiment: ExperimentArgument, results: Results = Path("results")) -> None:
    """Write down what the cluster model says of a timing, before it is run."""
    from edgc.suite.cluster.experiments import write_prediction

    typer.echo(write_prediction(load_experiment(experiment), results))
