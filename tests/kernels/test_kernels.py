"""Compressed rows and random choices against numpy, networkx and PyG; compilation and its cache."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.utils import subgraph

import graph_transplant
from graph_transplant.data import GraphBatch
from graph_transplant.errors import DataError
from graph_transplant.kernels import csr, sampling
from helpers.edits import agree, uniform
from helpers.oracles import (
    assert_valid,
    dense_adjacency,
    edges_of,
    graphs_of,
    is_undirected,
    same_content,
)
from helpers.strategies import batches, generator, random_batch, seeds

Edges = list[tuple[int, int]]
EDGES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=20)


def compressed(edges: Edges) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of edges among six nodes."""
    ends = np.array(edges, np.int64).reshape(-1, 2)
    return csr.compress(ends[:, 0].copy(), ends[:, 1].copy(), 6)


# ------------------------------------------------------------------ rows


@given(EDGES)
def test_rows_of_an_edge_list(edges: Edges) -> None:
    row_ptr, column, order = compressed(edges)
    expected = sorted(range(len(edges)), key=lambda e: (edges[e][1], edges[e][0]))  # stable
    assert order.tolist() == expected
    assert column.tolist() == [edges[e][0] for e in expected]
    assert csr.rows_of(row_ptr).tolist() == [edges[e][1] for e in expected]
    assert row_ptr.tolist() == [sum(v < row for _, v in edges) for row in range(7)]


@given(EDGES, st.booleans())
def test_reverses(edges: Edges, undirected: bool) -> None:
    if undirected:
        edges = edges + [(v, u) for u, v in edges if u != v]
    row_ptr, column, _ = compressed(edges)
    reverse = csr.reverse_of(row_ptr, column)
    if Counter(edges) != Counter((v, u) for u, v in edges):
        assert reverse.size == 0
        return
    row = csr.rows_of(row_ptr)
    assert (row[reverse] == column).all()
    assert (column[reverse] == row).all()
    assert (reverse[reverse] == np.arange(len(edges))).all()


@given(batches(), st.data())
def test_gathered_graphs_are_those_pyg_collates(batch: Batch, data: st.DataObject) -> None:
    whole = GraphBatch.from_pyg(batch)
    chosen = data.draw(st.lists(st.integers(0, batch.num_graphs - 1), max_size=6))
    edge_start = whole.row_ptr[whole.ptr]
    first = np.repeat(whole.ptr[:-1], np.diff(edge_start))  # of the graph of every edge
    row, column = csr.rows_of(whole.row_ptr) - first, whole.column - first
    gathered, nodes, edges = csr.gather(
        np.array(chosen, np.int64), whole.ptr[:-1], np.diff(whole.ptr),
        edge_start[:-1], np.diff(edge_start), row, column,
    )  # fmt: skip
    if not chosen:
        assert gathered.ptr.tolist() == gathered.row_ptr.tolist() == [0]
        return
    expected = Batch.from_data_list([whole.to_pyg()[g] for g in chosen])
    found = whole.derive(
        gathered,
        nodes=whole.nodes_like(nodes), edges=whole.edges_like(edges), y=expected.y,
    )  # fmt: skip
    assert_valid(found)
    assert same_content(found.to_pyg(), expected)


@settings(max_examples=60)
@given(batches(), seeds())
def test_induced_graphs_are_those_of_pyg(batch: Batch, seed: int) -> None:
    whole, random = GraphBatch.from_pyg(batch), np.random.default_rng(seed)
    keep, keep_edge = random.random(whole.num_nodes) < 0.6, random.random(whole.num_edges) < 0.7
    (ptr, row_ptr, column), nodes, edges = csr.induced(whole.csr, keep, keep_edge)
    expected, number = subgraph(
        torch.from_numpy(keep),
        whole.edge_index[:, keep_edge],
        torch.from_numpy(np.flatnonzero(keep_edge)),
        relabel_nodes=True,
        num_nodes=whole.num_nodes,
    )
    assert nodes.tolist() == np.flatnonzero(keep).tolist()
    assert edges.tolist() == number.tolist()
    assert np.stack((column, csr.rows_of(row_ptr))).tolist() == expected.tolist()
    kept = np.bincount(whole.batch.numpy()[keep], minlength=whole.num_graphs)
    assert np.diff(ptr).tolist() == kept.tolist()


# ------------------------------------------------------------------ batches and PyG


@settings(max_examples=150)
@given(batches())
def test_a_batch_holds_what_the_pyg_batch_holds(batch: Batch) -> None:
    before = batch.clone()
    ours = GraphBatch.from_pyg(batch)
    assert_valid(ours)
    assert same_content(batch, before)
    assert same_content(ours.pyg(), batch)
    order = torch.from_numpy(ours.edge_id)
    expected = batch.clone()
    expected.edge_index = batch.edge_index[:, order]
    for name in ("edge_attr", "edge_weight"):
        if name in batch:
            expected[name] = batch[name][order]
    assert same_content(ours.to_pyg(), expected)
    for one, other in zip(ours.to_pyg().to_data_list(), expected.to_data_list(), strict=True):
        assert same_content(one, other)
    again = GraphBatch.from_pyg(ours.to_pyg())
    assert same_content(ours, again)
    assert ours.symmetric == is_undirected(batch)  # the weights of the strategy are symmetric
    weight = batch.edge_weight if "edge_weight" in batch else torch.ones(batch.num_edges)
    dense = dense_adjacency(batch.edge_index, weight, batch.num_nodes)
    there = ours.adjacency
    values = torch.ones(ours.num_edges) if there.weight is None else there.weight
    matrix = torch.zeros_like(dense)
    matrix.index_put_((there.row, there.column), values, accumulate=True)
    torch.testing.assert_close(matrix, dense)


@settings(max_examples=60)
@given(batches())
def test_every_edge_is_near_both_of_its_ends(batch: Batch) -> None:
    ours = GraphBatch.from_pyg(batch)
    ptr, node, edge = ours.neighbours
    ends = edges_of(ours)
    for graph in graphs_of(ours):
        for v in graph:
            here = slice(ptr[v], ptr[v + 1])
            expected = [u for u, _ in graph.in_edges(v)]
            if not ours.symmetric:  # an undirected edge stands in both directions already
                expected += [u for _, u in graph.out_edges(v)]
            assert node[here].tolist() == sorted(expected)
            for u, e in zip(node[here].tolist(), edge[here].tolist(), strict=True):
                assert ends[e] in ((u, v), (v, u))


def test_weights_that_differ_make_a_batch_directed() -> None:
    pair = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0, 1], [1, 0]]))
    for weight, symmetric in (([1.0, 1.0], True), ([1.0, 2.0], False)):
        pair.edge_weight = torch.tensor(weight)
        assert GraphBatch.from_pyg(pair).symmetric == symmetric


@given(batches(), seeds())
def test_virtual_nodes_and_edges_are_like_others(batch: Batch, seed: int) -> None:
    random = np.random.default_rng(seed)
    batch.edge_type = torch.arange(batch.num_edges)
    ours = GraphBatch.from_pyg(batch)
    nodes = random.integers(ours.num_nodes, size=6)
    for name, value in ours.nodes_like(nodes).items():
        assert torch.equal(value, batch[name][nodes])
    like = random.integers(-1, ours.num_edges, size=6)
    fields = ours.edges_like(like)
    assert set(fields) == {"edge_type", *({"edge_attr", "edge_weight"} & set(batch.keys()))}
    for name, value in fields.items():
        assert value.dtype == batch[name].dtype
        blank = torch.full_like(value[0], 1.0 if name == "edge_weight" else 0.0)
        for k, edge in enumerate(like.tolist()):
            expected = blank if edge < 0 else batch[name][ours.edge_id[edge]]
            assert torch.equal(value[k], expected)


def test_edges_keep_the_gradients_of_their_weights() -> None:
    batch = random_batch(generator(1), graphs=3, edge_weight=True)
    weight = batch.edge_weight.clone().requires_grad_()
    batch.edge_weight = weight
    ours = GraphBatch.from_pyg(batch)
    like = ours.edges_like(np.array([2, -1, 2, 0]))["edge_weight"]
    (like * torch.tensor([1.0, 7.0, 10.0, 100.0])).sum().backward()
    expected = torch.zeros(batch.num_edges)
    expected[ours.edge_id[2]], expected[ours.edge_id[0]] = 11.0, 100.0
    assert torch.equal(weight.grad, expected)


def _broken(**changes: object) -> Data:
    data = Data(
        x=torch.ones(4, 1),
        edge_index=torch.tensor([[0, 2], [1, 3]]),
        batch=torch.tensor([0, 0, 1, 1]),
    )
    for name, value in changes.items():
        data[name] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (HeteroData(), "HeteroData.*to_homogeneous"),
        ([1, 2], "PyG Batch or Data; got list"),
        (Data(x=torch.ones(2, 1)), r"`batch.edge_index` must be a tensor \[2, edges\]"),
        (_broken(edge_index=torch.tensor([[0, 1], [1, 2]])), "edge 1 .*joins nodes 1 and 2"),
        (_broken(edge_index=torch.tensor([[0], [4]])), r"edge 0 .*has 4 nodes"),
        (_broken(edge_index=torch.tensor([[-1], [0]])), "edge 0 .*joins nodes -1 and 0"),
        (_broken(batch=torch.tensor([0, 1, 0, 1])), "`batch.batch` must be sorted"),
        (_broken(edge_attr=torch.ones(3, 1)), r"`edge_attr` must have shape \[2, …\]; got \[3, 1"),
        (_broken(edge_weight=torch.ones(2, 1)), r"`edge_weight` must have shape \[2\]"),
        (_broken(batch=torch.tensor([0, 0, 1])), "each of the 4 nodes; it has 3"),
    ],
)
def test_what_is_no_batch_is_refused(data: Data, message: str) -> None:
    with pytest.raises(DataError, match=message):
        GraphBatch.from_pyg(data)


# ------------------------------------------------------------------ choices


@pytest.mark.parametrize("ratio", ["0.05", "0.1", "0.15", "0.29", "0.5", "0.57", "1.0"])
def test_shares_are_floors_of_the_decimal_product(ratio: str) -> None:
    for count in range(1001):
        assert sampling.share_of(count, float(ratio)) == int(Fraction(ratio) * count)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_set_is_equally_likely(count: int) -> None:
    random = np.random.default_rng(count)
    drawn = Counter(tuple(sampling.sample_distinct(5, count, random).tolist()) for _ in range(4000))
    chosen: Counter[tuple[int, ...]] = Counter()
    for _ in range(4000):
        items = np.arange(7)  # of which the first five are to choose from
        sampling.shuffle_front(items, 5, count, random)
        assert sorted(items) == list(range(7))
        chosen[tuple(sorted(items[:count].tolist()))] += 1
    for seen in (drawn, chosen):
        agree(seen, uniform(itertools.combinations(range(5), count)))


def test_distinct_numbers_below_a_large_bound() -> None:
    drawn = sampling.sample_distinct(10**12, 1000, np.random.default_rng(0))
    assert len(set(drawn.tolist())) == 1000
    assert 10**11 < drawn.mean() < 9 * 10**11


# ------------------------------------------------------------------ compilation

PACKAGE = Path(graph_transplant.__file__).parent
ANNOUNCEMENT = "compiling kernels"


def run_python(code: str, *path: Path, home: Path, **variables: str) -> str:
    """Run code in a process of its own, and return what it writes to stderr."""
    apart = ("NUMBA_", "XDG_", "PYTHON", "GRAPH_TRANSPLANT_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(apart)}
    env |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env | {"HOME": str(home)} | variables,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def copied_kernels(folder: Path, *modules: str) -> Path:
    """Copy some modules of the package's kernels, with an empty package around them."""
    kernels = folder / "graph_transplant" / "kernels"
    kernels.mkdir(parents=True)
    for name in ("__init__", "arrays", *modules):
        shutil.copy(PACKAGE / "kernels" / f"{name}.py", kernels)
    (kernels.parent / "__init__.py").touch()
    return kernels


TWO_KERNELS = """
import subprocess, sys
import numpy as np
from graph_transplant.kernels import csr, sampling
assert sampling.share_of(10, 0.5) == 5
assert csr.rows_of(np.array([0, 2, 3])).tolist() == [0, 0, 1]
one = "from graph_transplant.kernels import sampling; sampling.share_of(10, 0.5)"
subprocess.run([sys.executable, "-c", one], check=True)  # compiles in silence if nothing was kept
"""


@pytest.mark.parametrize("home_writable", [True, False])
def test_a_package_that_cannot_be_written_to(home_writable: bool, tmp_path: Path) -> None:
    # The machine code is then kept in the user's cache folder, or nowhere. Files in the place of
    # folders stop even root, for whom permissions mean nothing.
    kernels, home = copied_kernels(tmp_path / "path", "sampling", "csr"), tmp_path / "home"
    (kernels / "__pycache__").touch()
    if home_writable:
        home.mkdir()
    else:
        home.touch()
    said = [run_python(TWO_KERNELS, tmp_path / "path", home=home) for _ in range(2)]
    assert [each.count(ANNOUNCEMENT) for each in said] == [1, not home_writable]
    assert (home / ".cache" / "numba").exists() == home_writable


CALLEE = """
from graph_transplant.kernels.arrays import helper

@helper
def step() -> int:
    return {step}
"""
CALLERS = """
from graph_transplant.kernels.callee import step
from graph_transplant.kernels.arrays import compiled

@compiled
def up(start: int) -> int:
    return start + step()

@compiled
def down(start: int) -> int:
    return start - step()
"""


def test_an_edited_kernel_is_compiled_anew_in_the_kernels_that_call_it(tmp_path: Path) -> None:
    kernels = copied_kernels(tmp_path)
    (kernels / "callers.py").write_text(CALLERS)
    said = []
    for step in (1, 1, 5, 5):
        (kernels / "callee.py").write_text(CALLEE.format(step=step))
        code = f"from graph_transplant.kernels.callers import up; assert up(10) == {10 + step}"
        said.append(run_python(code, tmp_path, home=tmp_path))
    assert [each.count(ANNOUNCEMENT) for each in said] == [1, 0, 1, 0]


def test_the_first_kernel_that_is_compiled_has_all_others_compiled(tmp_path: Path) -> None:
    kernels = copied_kernels(tmp_path)
    (kernels / "callers.py").write_text(CALLERS)
    (kernels / "callee.py").write_text(CALLEE.format(step=1))
    said = [
        run_python(
            f"from graph_transplant.kernels.callers import {name}; {name}(10)",
            tmp_path,
            home=tmp_path,
        )
        for name in ("up", "down")
    ]
    assert [each.count(ANNOUNCEMENT) for each in said] == [1, 0]


EVERY_METHOD = """
import warnings
import torch
import graph_transplant as gt
from graph_transplant.augment import CleanPass, build_method, expand_methods, unsupported_reason
from graph_transplant.data import GraphBatch
from helpers.strategies import generator, graphs_of, random_batch

warnings.simplefilter("ignore")
torch.manual_seed(0)
for seed in range(4):
    undirected = seed % 2 == 0
    batch = random_batch(generator(seed), graphs=12, undirected=undirected, simple=False,
                         edge_attr=undirected, edge_weight=undirected)
    store = gt.GraphStore.from_pyg([graph.sort() for graph in graphs_of(batch)])
    store.batch(range(12))
    network = {"layers": 1, "hidden": 4, "input_layers": 1, "walk": 3}
    model = gt.GraphClassifier.for_data(store, seed=0, **network)
    graphs = GraphBatch.from_pyg(batch)
    for name in expand_methods(["all"]):
        if unsupported_reason(name, model, store) is None:
            for augmentation in build_method(name, model):
                augmentation.prepare(store, generator(0))
                clean = CleanPass(graphs, torch.eye(12), model.run(graphs))
                augmentation(clean, model=model, generator=generator(0))
"""


def test_no_kernel_leaves_its_arrays(tmp_path: Path) -> None:
    # Not compiled, where numpy checks every index: to compile all of them with checks takes long.
    path = Path(__file__).parents[1], PACKAGE.parent
    run_python(EVERY_METHOD, *path, home=tmp_path, NUMBA_DISABLE_JIT="1")


DECLARED_TYPES = """
from pathlib import Path
from tempfile import TemporaryDirectory
from graph_transplant.kernels import arrays as compiling

trained = gt.train("motifs", graphs=60, method="g-mixup", hidden=4, epochs=1, progress=False)
with TemporaryDirectory() as folder:
    file = Path(folder) / "graphs.safetensors"
    gt.load("motifs", graphs=30, seed=1).save(file)
    trained.predict(gt.load(file))
for kernel in compiling._called:
    name, declared = kernel.py_func.__name__, compiling.signature(kernel.py_func)
    assert kernel.signatures in ([], [declared]), (name, kernel.signatures, declared)
assert sum(kernel.signatures != [] for kernel in compiling._called) > 30
"""


def test_kernels_are_called_with_the_types_that_they_are_compiled_for(tmp_path: Path) -> None:
    # Others would be compiled in the middle of a training, and announced a second time.
    run_python(
        EVERY_METHOD + DECLARED_TYPES, Path(__file__).parents[1], PACKAGE.parent, home=tmp_path
    )
