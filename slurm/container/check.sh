#!/bin/sh
# Whether an image is complete: fails if anything required is missing. Anywhere in it, as any user.
set -eu
edgc doctor
python -c "import megatron.core, snakemake, torch, triton"
git -C /opt/edgc rev-parse HEAD # manifests name it
