"""What every rank imports. Imported once, by the process that ranks on CPUs are forked from."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of libraries that only GPUs have
    import edgc.suite.backends.megatron.engine
    import edgc.suite.training.loop  # noqa: F401
