# While jobs run, one line says which, how far they are and how long they take; at the end, where the results are.
from edgc.report.status.live import LiveLine

LINE = LiveLine(EXPERIMENT.name, [*SPECS.values()], Path("results"), sys.stderr)
if workflow.is_main_process:
    logger.addHandler(LINE)


onstart:
    settings = workflow.output_settings
    told_all = settings.verbose or settings.printshellcmds
    LINE.begin(
        []
        if told_all
        else [h for h in logger.handlers if h.name == "DefaultStreamHandler"]
    )


onsuccess:
    LINE.end(f"{EXPERIMENT.title}:", *answer())


onerror:
    LINE.end(
        f"{EXPERIMENT.name}: not finished. Start the same command again: it goes on from what is there. All of "
        f"Snakemake's messages: {log}"
    )
