"""Several machines on one: network namespaces with shaped links between them, and a real SLURM cluster on those."""
