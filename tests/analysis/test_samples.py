"""Sample quality: the same numbers as networkx, scipy and RDKit find one graph at a time."""

from __future__ import annotations

import copy
import json
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, wasserstein_distance
from torch import nn
from torch_geometric.data import Data

import graph_transplant as gt
from graph_transplant.analysis import samples
from graph_transplant.analysis.samples import sample_quality
from graph_transplant.augment import Augmentation, CleanPass, Virtual, VirtualGraphs, build_method
from graph_transplant.data import Featurizer, GraphBatch, GraphStore
from graph_transplant.datasets.molecules import atoms_of
from graph_transplant.methods import METHODS, expand_methods
from graph_transplant.nn.adapter import Predictor
from helpers.oracles import graphs_of, unchanged
from helpers.strategies import featured_motifs, generator

NO_GRAPHS = {"vanilla", "manifold-mixup", "label-smoothing"}
WITH_ORIGIN = {name for name in METHODS if name.startswith("transplant-")}
WITH_ORIGIN |= {"saliency-shuffled", "sub-mix"}


def ready(
    method: str, store: GraphStore, seed: int = 0
) -> tuple[gt.GraphClassifier, tuple[Augmentation, ...]]:
    """A model and the augmentations of a method, as if training had begun."""
    model = gt.GraphClassifier.for_data(store, hidden=8, layers=2, seed=seed)
    augmentations = build_method(method, model, seed=seed)
    for augmentation in augmentations:
        augmentation.check(model, store)
        augmentation.prepare(store, generator(seed))
    return model, augmentations


class Recording(Augmentation):
    """Hands on what another augmentation makes, and keeps it for the test."""

    def __init__(self, inner: Augmentation, kept: list[tuple[Any, Virtual]]) -> None:
        super().__init__()
        self.inner, self.kept = inner, kept

    def __deepcopy__(self, memo: dict[int, Any]) -> Recording:
        return Recording(copy.deepcopy(self.inner, memo), self.kept)

    def forward(
        self, clean: CleanPass, *, model: Predictor, generator: torch.Generator | None
    ) -> Virtual:
        virtual: Virtual = self.inner(clean, model=model, generator=generator)
        self.kept.append((clean.batch, virtual))
        return virtual


def plain_graphs(batch: GraphBatch) -> list[nx.Graph]:
    """The graphs of a batch for networkx: an edge of more than half its weight is there."""
    there = None if batch.edge_weight is None else batch.edge_weight > 0.5
    found = []
    for graph in graphs_of(batch):
        plain = nx.Graph()
        plain.add_nodes_from(graph)
        for one, two, number in graph.edges(data="number"):
            if one != two and (there is None or bool(there[number])):
                plain.add_edge(one, two)
        found.append(plain)
    return found


def described(graphs: list[nx.Graph]) -> dict[str, float]:
    degrees = [degree for graph in graphs for _, degree in graph.degree]
    components = [nx.number_connected_components(graph) for graph in graphs]
    return {
        "nodes": float(np.mean([len(graph) for graph in graphs])),
        "edges": float(np.mean([graph.number_of_edges() for graph in graphs])),
        "components": float(np.mean(components)),
        "disconnected": float(np.mean([count > 1 for count in components])),
        "isolated": sum(nx.number_of_isolates(graph) for graph in graphs) / len(degrees),
    }


@pytest.mark.parametrize("method", sorted(set(expand_methods(["all"])) - NO_GRAPHS))
def test_every_method_is_measured_as_networkx_and_scipy_would(method: str) -> None:
    store = featured_motifs(40)
    model, (augmentation,) = ready(method, store)
    kept: list[tuple[Any, Virtual]] = []
    found = sample_quality(model, [Recording(augmentation, kept)], store, seed=3)
    assert [batch.num_graphs for batch, _ in kept] == [20, 20]
    originals = [graph for batch, _ in kept for graph in plain_graphs(batch)]
    assert all(isinstance(made, VirtualGraphs) for _, made in kept)
    virtual = [graph for _, made in kept for graph in plain_graphs(made.batch)]  # type: ignore[attr-defined]
    one, two = described(virtual), described(originals)
    degrees = [
        [degree for graph in some for _, degree in graph.degree] for some in (virtual, originals)
    ]
    expected = {
        "graphs": len(virtual),
        "nodes_ratio": one["nodes"] / two["nodes"],
        "edges_ratio": one["edges"] / two["edges"],
        "degree_distance": wasserstein_distance(*degrees),
        **{name: one[name] for name in ("components", "disconnected", "isolated")},
        **{f"{name}_original": two[name] for name in ("components", "disconnected", "isolated")},
    }
    if method in WITH_ORIGIN:
        weight, share = label_shares([made for _, made in kept])
        expected["label_gap"] = float(np.abs(weight - share).mean())
        varies = np.ptp(share) > 0  # not for `transplant-cut`, which transplants nothing
        correlation = float(pearsonr(weight, share).statistic) if varies else None
        expected["label_share_correlation"] = correlation
    control = found.pop("degree_distance_control")
    assert found == pytest.approx(expected, abs=1e-6)
    assert isinstance(control, float)
    assert 0 < control < 0.5


def label_shares(made: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """λ and the source's share of the nodes, one graph at a time."""
    weights, shares = [], []
    for mixed in made:
        for number, weight in enumerate(mixed.label_weight.tolist()):
            inside = mixed.node_from_source[mixed.batch.batch.numpy() == number].tolist()
            weights.append(weight)
            shares.append(sum(inside) / len(inside))
    return np.array(weights), np.array(shares)


@pytest.mark.parametrize("method", sorted(NO_GRAPHS))
def test_methods_without_graphs_have_no_samples(method: str) -> None:
    store = featured_motifs(40)
    assert sample_quality(*ready(method, store), store, seed=0) == {}


@pytest.mark.parametrize("method", ["transplant-ep", "m-evolve"])
def test_nothing_is_changed_and_the_seed_decides(method: str) -> None:
    store = featured_motifs(40)
    model, augmentations = ready(method, store)
    model.train()
    for augmentation in augmentations:
        augmentation.after_epoch(model, store)
    with unchanged(nn.ModuleList((model, *augmentations))):
        first = sample_quality(model, augmentations, store, seed=1)
    assert sample_quality(model, augmentations, store, seed=1) == first
    assert sample_quality(model, augmentations, store, seed=2) != first


def test_the_control_is_the_same_for_all_methods() -> None:
    store = featured_motifs(60)
    same, other = (
        sample_quality(*ready(method, store), store, seed=0, graphs=10)
        for method in ("vanilla-x2", "drop-nodes")
    )
    assert same["degree_distance_control"] == other["degree_distance_control"]
    assert (same["graphs"], same["degree_distance"]) == (10, 0)
    assert same["nodes_ratio"] == same["edges_ratio"] == 1


def test_directions_repeats_and_loops_do_not_count_and_graphs_may_have_no_edges() -> None:
    def measured(method: str, edge_index: torch.Tensor) -> dict[str, Any]:
        graph = Data(edge_index=edge_index, num_nodes=4, y=torch.tensor([0]))
        store = GraphStore.from_pyg([graph, graph], num_outputs=2)
        return sample_quality(*ready(method, store), store, seed=0)

    edges = torch.tensor([[0, 1, 0, 0, 2], [1, 0, 1, 0, 2]])
    found, bare = measured("vanilla-x2", edges), measured("drop-nodes", edges[:, :0])
    assert found["components_original"] == found["components"] == 3
    assert found["isolated_original"] == found["isolated"] == 0.5
    assert bare["edges_ratio"] is None
    assert bare["isolated"] == bare["isolated_original"] == 1
    assert bare["degree_distance"] == 0
    json.dumps(bare, allow_nan=False)


# -------------------------------------------------------------------- molecules

SMILES = {
    "C": True,
    "C[N+](=O)[O-]": True,
    "c1ccc2ccccc2c1": True,
    "Cn1cccc1": True,
    "O=c1cccc[nH]1": True,
    "CS(=O)(=O)O": True,
    "[Na+].[Cl-]": True,
    "C[Fe](C)(C)(C)(C)(C)C": True,
    "C(C)(C)(C)(C)C": False,
    "F(C)C": False,
    "C=C(=C)C": False,
    "C#C#C": False,
    "CO(C)(C)C": False,
}


def molecules(smiles: list[str]) -> GraphStore:
    """A store of molecules, allowed by chemistry or not, with OGB's order of bond types."""
    chem = pytest.importorskip("rdkit.Chem")
    kinds = [getattr(chem.BondType, kind) for kind in ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")]
    listed = []
    for text in smiles:
        mol = chem.MolFromSmiles(text, sanitize=False)
        x = torch.zeros(mol.GetNumAtoms(), 119)  # one column per element, as in OGB
        for atom in mol.GetAtoms():
            x[atom.GetIdx(), atom.GetAtomicNum() - 1] = 1
        pairs, attributes = [], []
        for bond in mol.GetBonds():
            one, two = bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
            kind = [float(bond.GetBondType() == each) for each in kinds] + [0.0]
            pairs += [(one, two), (two, one)]
            attributes += [kind, kind]
        edge_index = torch.tensor(pairs, dtype=torch.long).reshape(-1, 2).t()
        edge_attr = torch.tensor(attributes).reshape(-1, 5)
        listed.append(Data(x=x, edge_index=edge_index, edge_attr=edge_attr, y=torch.tensor([0])))
    store = GraphStore.from_pyg(listed, num_outputs=2)
    store.featurizer = Featurizer("molecules")
    return store


def reader(store: GraphStore) -> samples.AtomReader:
    return lambda batch: atoms_of(batch, store)


def test_valence_agrees_with_the_sanitisation_of_rdkit() -> None:
    chem = pytest.importorskip("rdkit.Chem")
    from rdkit import RDLogger

    RDLogger.DisableLog("rdApp.*")
    try:
        assert {text: chem.MolFromSmiles(text) is not None for text in SMILES} == SMILES
    finally:
        RDLogger.EnableLog("rdApp.*")
    for text, allowed in SMILES.items():
        store = molecules([text])
        found = sample_quality(*ready("vanilla-x2", store), store, seed=0, atoms=reader(store))
        assert found["valence_violations"] == (not allowed), text
