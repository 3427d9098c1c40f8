"""Two workers of this machine, as `launch.run` starts them, that run a text of a test's."""

from __future__ import annotations

from pathlib import Path

from metal_ops.programs.cluster import local_clusters
from metal_ops.programs.launch import environment
from metal_ops.programs.memory import Lines
from tests.processes import Process


def start_two(program: str, folder: Path) -> list[Process]:
    """By rank; the folder is the program's argument."""
    lines = Lines(2)
    processes = [
        Process(
            "-c",
            program,
            str(folder),
            descriptors=lines.of(cluster.rank),
            **environment(cluster, folder, True),
            **lines.environment(cluster.rank),
        )
        for cluster in local_clusters(2)
    ]
    lines.close()  # a line breaks when a worker is all that has it
    return processes
