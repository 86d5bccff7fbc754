"""What is measured, in rows and columns: one module per table, one name per table here.

Each module has a `TABLE` (`edgc.report.table.Table`): title, `build(study)` → numbers, columns with what each is, and
the sentences that stand above it. The first line of its docstring says what it shows.
"""

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
