#!/bin/sh
# What both images install: what README asks for, then its own set-up. As root, in the checkout: install.sh cuda|cpu
set -eu

# git names the commit in manifests; Triton compiles with gcc against Python's headers; without libibverbs NCCL leaves
# InfiniBand unused and says nothing; srun of the host, bound into the container, needs libmunge and liblz4.
apt-get update
DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    ca-certificates gcc git ibverbs-providers libc6-dev libibverbs1 liblz4-1 libmunge2 make python3-dev python3-venv
apt-get clean
rm -rf /var/lib/apt/lists/*

PIP_NO_CACHE_DIR=1 make setup BUILD="$1"

git config --system safe.directory "$PWD" # it is root's; whoever runs the image is somebody else
chmod -R a+rX .                           # whatever the umask of the checkout was
