"""What is measured, in rows and columns: a `Table` for each name here, which a module has in capitals."""

#: Every experiment of mode train has these …
TABLES = ("latency", "time", "accuracy", "paper", "deviations")

#: … every one of mode time has these …
TIME_TABLES = ("links", "links_bytes", "links_conditions")

#: … and, where the cluster model predicted it, …
PREDICTED_TABLES = ("predicted",)

#: … every one of mode simulate has these …
SIMULATED_TABLES = ("forecast", "claims")

#: … and those of these that its file names.
MORE_TABLES = (
    "variants",
    "clamps",
    "parts",
    "sampling",
    "window",
    "observations",
    "learning_rates",
    "time_to_loss",
    "layout_costs",
    "method_costs",
    "bandwidth",
    "adaptation",
    "credit",
    "replicas",
    "choice",
)

#: Where those are that have no module of their name.
MODULES = {
    "times": ("latency", "time", "time_to_loss"),
    "links": ("links_bytes", "links_conditions"),
    "paper": ("deviations",),
    "cluster_forecasts": ("forecast", "claims", "bandwidth"),
    "ranks": ("variants", "clamps"),
    "samples": ("sampling", "window"),
    "expenses": ("layout_costs", "method_costs"),
    "comparisons": ("credit", "replicas"),
}
