"""What is measured, as pictures: one module per figure, one name per figure here.

Each module has `TITLE`, `NOTE` (what each mark is), `build(study)` → what is plotted, and `draw(data)` → the views of a
panel, above each other, made of `edgc.report.vega`. There is a panel for every value of the data's column `panel`, or
`model` where there is no such column. A module may have `panel(data)`, every row's panel where no column is, and
`WIDTH`, the most that a panel has (pixels). The page, SVG and PNG are made of these views, see `edgc.report.pictures`.

To add one, write its module and put its name into a list below.
"""

#: Every experiment of mode train has these …
FIGURES = ("loss_step", "loss_bytes", "loss_seconds", "latency", "step_breakdown", "entropy_rank")

#: … every one of mode time has these …
TIME_FIGURES = ("exposed", "step_parts_on_links")

#: … and, where the cluster model predicted it, …
PREDICTED_FIGURES = ("predicted_measured",)

#: … every one of mode simulate has these …
SIMULATED_FIGURES = ("saving_by_link", "saving_by_rank")

#: … and those of these that its file names.
MORE_FIGURES = (
    "gap_bytes",
    "gap_on_links",
    "gap_replicas",
    "loss_on_links",
    "pareto_bytes",
    "pareto_seconds",
    "parts",
    "sampling_time",
    "sampling_error",
    "observed_entropy",
    "window_correlation",
    "gradient_histograms",
    "spectra",
    "low_rank_error",
    "error_prediction",
    "gradient_correlation",
    "who_wins_where",
    "utilisation",
)
