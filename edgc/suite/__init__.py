"""The benchmark: experiments, training, and the cluster model."""
