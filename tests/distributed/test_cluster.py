"""TF_CONFIG: the workers, and the errors where it is not as TensorFlow has it."""

from __future__ import annotations

import json
import socket
from types import SimpleNamespace

import pytest

from metal_ops import cli
from metal_ops.programs import launch
from metal_ops.programs.cluster import Cluster, cluster_from, local_clusters, silent
from metal_ops.programs.errors import ProgramError

TWO = {"worker": ["a:1", "b:2"]}


def config(cluster=TWO, task=("worker", 0)) -> dict[str, str]:
    if isinstance(task, tuple):
        task = {"type": task[0], "index": task[1]}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


def test_ranks():
    """The chief is first, wherever it stands."""
    with_chief = {"worker": ["a:1", "b:2"], "chief": ["c:3"]}
    ranks = [
        (found.rank, found.addresses)
        for task in (("chief", 0), ("worker", 0), ("worker", 1))
        if (found := cluster_from(config(with_chief, task)))
    ]
    assert ranks == [(rank, ("c:3", "a:1", "b:2")) for rank in range(3)]
    found = cluster_from(config(task=("worker", 1)))
    assert found.rank == 1 and cluster_from({"TF_CONFIG": found.to_json()}) == found


@pytest.mark.parametrize(
    "environment",
    [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}, config({"worker": ["a:1"]})],
)
def test_alone(environment):
    assert cluster_from(environment) is None


@pytest.mark.parametrize(
    "environment, words",
    [
        ({"TF_CONFIG": "worker"}, "TF_CONFIG: expected JSON, .*, got 'worker'"),
        ({"TF_CONFIG": "[1]"}, r"TF_CONFIG: expected .*, got '\[1\]'"),
        (config([1]), r"field 'cluster': expected .*, got \[1\]"),
        (config({"ps": ["a:1"], **TWO}), "field 'cluster' has 'ps', and all processes train here"),
        (config({"worker": ["a:1", "b"]}), r"'worker': expected a list of host:port, got \['a:1', 'b'\]"),
        (config({"worker": ["a:1", "a:1"]}), "names 'a:1' twice; each worker has a port of its own"),
        (config({"chief": ["a:1", "b:1"]}, ("chief", 0)), "several chiefs"),
        (config(task=("worker", 2)), "field 'task' is worker 2, but the cluster has 2 of that type"),
        (config(task=("chief", 0)), "field 'task' is chief 0, but the cluster has 0 of that type"),
        (config(task=("evaluator", 0)), "field 'task': expected a type of 'worker' or 'chief'"),
        (config(task=("worker", True)), "field 'task': expected a type"),
        (config(task=None), "field 'task': expected .*, got None"),
    ],
)  # fmt: skip
def test_mistakes(environment, words):
    with pytest.raises(ProgramError, match=words):
        cluster_from(environment)


def test_local_ports_are_free_and_differ():
    clusters = local_clusters(3)
    assert [found.rank for found in clusters] == [0, 1, 2]
    assert len(set(clusters[0].addresses)) == 3
    for address in clusters[0].addresses:
        with socket.socket() as one:
            one.bind(("localhost", int(address.rpartition(":")[2])))


def test_silent():
    with socket.create_server(("localhost", 0)) as listening, socket.socket() as other:
        other.bind(("localhost", 0))  # and does not listen
        heard, unheard = (f"localhost:{s.getsockname()[1]}" for s in (listening, other))
        cluster = Cluster({"worker": ("localhost:1", heard, unheard)}, "worker", 0)
        assert silent(cluster) == [unheard]


@pytest.mark.parametrize("program", ["nerf", "lm"])
def test_both_are_one_too_many(program, monkeypatch, capsys):
    monkeypatch.setenv("TF_CONFIG", config()["TF_CONFIG"])
    assert cli.main([program, "train", "--workers", "2"]) == 2
    assert capsys.readouterr().err == (
        f"{program}: --workers 2: TF_CONFIG names 2 workers already; give one of both.\n"
    )


@pytest.mark.parametrize(
    "codes, code, words",
    [
        ([0, 0], 0, ""),
        ([2, 75], 2, "said\n"),
        ([75, 2], 2, "nerf: worker 1: said\n"),
        # All begin again, also where others fail because of the one that was killed.
        ([1, -9], None, "nerf: worker 1 (process 8) was ended by SIGKILL.\n"),
        ([75, None], None, "said\n"),
    ],
)
def test_what_comes_of_workers_that_ended(codes, code, words, capfd):
    group = [
        SimpleNamespace(rank=rank, pid=7 + rank, code=code, said=lambda: "said")
        for rank, code in enumerate(codes)
    ]
    assert launch._failed("nerf", group) == code
    assert capfd.readouterr().err == words
