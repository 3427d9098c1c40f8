"""One file per subject; each registers its cases (benchmarks.registry.register) when imported."""
