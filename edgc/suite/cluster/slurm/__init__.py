"""What the project asks SLURM: about a job from inside it, and about the queue and the site from a login node."""
