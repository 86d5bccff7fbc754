"""What is measured, as pictures: a `Figure` for each name here, which a module has in capitals.

To add one, declare it in a module and put its name into a list below, and into `MODULES`, if the module has another.
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

#: Where those are that have no module of their name.
MODULES = {
    "curves": ("loss_step", "loss_bytes", "loss_seconds", "loss_on_links"),
    "fronts": ("pareto_bytes", "pareto_seconds", "gap_on_links"),
    "loss_gaps": ("gap_bytes", "gap_replicas", "parts"),
    "step_times": ("step_breakdown", "step_parts_on_links", "latency"),
    "cluster_model": ("saving_by_link", "saving_by_rank", "utilisation", "who_wins_where", "predicted_measured"),
    "gradient_entropy": ("entropy_rank", "observed_entropy", "window_correlation", "sampling_time", "sampling_error"),
    "gradient_matrices": (
        "gradient_histograms",
        "spectra",
        "low_rank_error",
        "error_prediction",
        "gradient_correlation",
    ),
}
