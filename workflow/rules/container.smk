# With `--sdm apptainer` every job runs in an image (slurm/container/). Without it no rule names one: the report would
# say that it was used.

from snakemake.settings.types import DeploymentMethod

if DeploymentMethod.APPTAINER in workflow.deployment_settings.deployment_method:
    IMAGE = os.environ.get("EDGC_CONTAINER", "edgc.sif")
    if "://" not in IMAGE and not os.path.exists(IMAGE):
        raise WorkflowError(
            f"EDGC_CONTAINER: there is no {IMAGE}; slurm/container/README.md says how to build an image"
        )
    # Apptainer makes it EDGC_PYTHON in the container: the image's own, as the host's interpreter does not exist there.
    os.environ.update(APPTAINERENV_EDGC_PYTHON="python")

    container: IMAGE
