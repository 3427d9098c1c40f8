"""One file a subject; each registers its cases (benchmarks.registry.register) when imported."""
