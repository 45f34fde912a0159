"""The commands for single models: ``train``, ``predict``, ``explain`` and ``show``."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graph_transplant.cli.arguments import (
    NO_COLUMNS,
    NO_INPUT_COLUMNS,
    Columns,
    InputColumns,
    load_data,
    tell_skipped,
)
from graph_transplant.cli.output import (
    BAD_INPUT,
    INTERRUPTED,
    cell,
    heartbeat,
    note,
    output,
    plain_table,
    print_error,
    print_files,
    repeated_command,
    use_threads,
)
from graph_transplant.config.datasets import check_data, existing
from graph_transplant.config.options import Count, InnerShare, SaliencyKind, Seed, TransplantName
from graph_transplant.config.training import TrainConfig
from graph_transplant.errors import DataError, GraphTransplantError
from graph_transplant.metrics import METRICS
from graph_transplant.utils.files import (
    MODEL_FILES,
    SKIPPED,
    folder_name,
    refuse_links,
    refuse_overwrite,
    write_atomically,
    write_skipped,
)
from graph_transplant.utils.text import count, plain

if TYPE_CHECKING:
    import pandas as pd

    from graph_transplant.models import TrainedModel
    from graph_transplant.results.model_json import ModelMetrics
    from graph_transplant.training.state import EpochLog

CHECKPOINT = ".checkpoint.pt"  # in the folder of the model
STANDARD = "-"  # standard input or output


def train(
    data: str,
    /,
    *,
    config: Annotated[TrainConfig, Parameter(name="*")] = TrainConfig(),  # noqa: B008
    device: str = "cpu",
    threads: Count = 1,
    tensorboard: Path | None = None,
    out: Path | None = None,
    fresh: bool = False,
    ignore: tuple[str, ...] = (),
    columns: Columns = NO_COLUMNS,
) -> int:
    """Train one model, calibrate it, and save it with a model card.

    After an interruption, running the same command again continues where it stopped.

    Args:
        data: Name of a data set, or the path of a table (CSV, Excel, Parquet, .smi), SDF or
            JSON Lines file, or of a TU or OGB folder or archive.
        config: How to train.
        device: cpu, cuda, cuda:1, mps ...
        threads: Processor threads for the network. More than one is slower on a busy machine.
        tensorboard: Directory to log every epoch to, for TensorBoard.
        out: Folder for the model. [default: models/DATA]
        fresh: Start over: replace an existing model, and do not resume an interrupted training.
        ignore: Codes of warnings to leave out, such as GT103, separated by commas.
        columns: How the data are read.
    """
    from graph_transplant.models import train as run
    from graph_transplant.results.caveats import check_codes
    from graph_transplant.training.checkpoint import CheckpointError
    from graph_transplant.training.tensorboard import TensorBoard

    use_threads(threads)
    ignored = check_codes(ignore)
    logger = None if tensorboard is None else TensorBoard(tensorboard)
    store = load_data(data, columns)
    directory = out or Path("models") / folder_name(store.name)
    checkpoint = directory / CHECKPOINT
    # If there is a checkpoint, replacing the model was interrupted: resume.
    if (directory / "model.json").exists() and not (fresh or checkpoint.exists()):
        raise GraphTransplantError(
            f"there is a model in {directory} already: give another folder with --out, or replace "
            "it with --fresh"
        )
    files = {
        directory / "card.html": "the model card",
        directory / "model.json": "what it is",
        directory / "weights.safetensors": "its weights",
    }
    refuse_overwrite([data], [directory / SKIPPED, *files])
    directory.mkdir(parents=True, exist_ok=True)
    refuse_links(directory, MODEL_FILES)
    write_skipped(store.skipped, directory / SKIPPED)
    tell_skipped(store, directory / SKIPPED)
    if fresh:
        remove_checkpoints(checkpoint)
    if checkpoint.exists():
        note(f"resuming from {checkpoint}")
    beat = heartbeat("training")

    def tell(log: EpochLog) -> None:
        beat.text = f"epoch {log.epoch}, validation loss {log.validation_loss:.3f}"

    try:
        with beat:
            trained = run(
                store,
                config,
                device=device,
                checkpoint=checkpoint,
                source=data,
                callbacks=[tell] if logger is None else [tell, logger],
                note=note,
            )
    except CheckpointError as problem:
        raise GraphTransplantError(f"{problem}, or use --fresh") from None
    except GraphTransplantError:
        with suppress(OSError):  # if there is a model, or skipped rows
            directory.rmdir()
        raise
    except KeyboardInterrupt:
        if not checkpoint.exists():
            print("\nstopped before anything was saved", file=sys.stderr)
            return INTERRUPTED
        print(
            f"\nstopped; the training so far is saved in {checkpoint}. Run the same command again "
            f"to continue:\n  {repeated_command()}",
            file=sys.stderr,
        )
        return INTERRUPTED
    finally:
        if logger is not None:
            logger.close()
    described = replace(trained.description, command=repeated_command())
    trained = replace(trained, description=described)
    trained.save(directory)
    trained.report(directory / "card.html", ignore=ignored)
    remove_checkpoints(checkpoint)
    print_model(trained, ignored)
    print_files(output(), files)
    return 0


def remove_checkpoints(first: Path) -> None:
    """Remove the checkpoints of all members of an ensemble."""
    for path in first.parent.glob(f"{first.stem}*{first.suffix}*"):  # and partly written ones
        path.unlink(missing_ok=True)


def print_model(trained: TrainedModel, ignore: Collection[str] = ()) -> None:
    """Print the metrics and training of a model, and the warnings of its card."""
    from graph_transplant.report.card_findings import CardData, card_findings

    console = output()
    description = trained.description
    training = description.training
    console.print()
    console.print(model_table(description.metrics))
    for warning in card_findings(CardData(description), ignore)[0]:
        note(warning.text)
    sizes, members = training.sizes, training.ensemble
    made, course = training.method, ""
    if training.model:
        networks = "" if members == 1 else f"{members} networks "
        made += f", {networks}{training.model} with {training.layers} layers"
        epochs = ", ".join(map(str, training.best_epochs))
        course = f"; best epoch{'s' * (members > 1)} {epochs} of {training.epochs_run}"
    console.print(
        Text(
            f"{made}; {sizes.train} graphs to train on, {sizes.validation} to validate, "
            f"{sizes.test} to test ({training.split} split){course}",
            style="dim",
        )
    )
    console.print()


def model_table(metrics: ModelMetrics) -> Table:
    """Format the metrics of a ``model.json``."""
    forest = metrics.forest
    heads = ("validation", "test", "95 % interval", *(["forest"] if forest else []))
    table = plain_table([""], heads)
    for key, metric in METRICS.items():
        if key in metrics.validation:
            low, high = metrics.intervals.get(key, (None, None))
            table.add_row(
                metric.word,
                cell(metrics.validation[key], ".3f"),
                cell(metrics.test.get(key), ".3f"),
                "-" if low is None else f"{cell(low, '.3f')} to {cell(high, '.3f')}",
                *([cell(forest.get(key), ".3f")] if forest else []),
            )
    return table


def predict(
    model: Path,
    data: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *more: str,
    out: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    coverage: InnerShare | None = None,
    batch_size: Count | None = None,
    workers: Count = 1,
    device: str = "cpu",
    threads: Count = 1,
    columns: InputColumns = NO_INPUT_COLUMNS,
) -> int:
    """Predict with a trained model: one output row per input row.

    Rows that cannot be read stay in place, with the reason; if no row can be predicted, the exit
    status is 2. The input is read in chunks, so it can be of any size.

    Args:
        model: Folder of the model.
        data: As for `graph-transplant train`; or one or several SMILES, whose predictions are
            printed; or - to read one SMILES per line, or a table, from standard input. Columns are
            those of the training data unless others are given.
        more: Further SMILES.
        out: The table to write, or - for standard output. [default: predictions.csv; standard
            output if the input is standard input]
        coverage: Share of new graphs whose true class should be in the column set, or whose true
            value should be within the distance given with the prediction. [default: 0.9]
        batch_size: Graphs per batch. [default: depends on their size]
        workers: Processes that read molecules.
        device: cpu, cuda, cuda:1, mps ...
        threads: Processor threads for the network. More than one is slower on a busy machine.
        columns: How the data are read.
    """
    from graph_transplant.models import TrainedModel, predict_table
    from graph_transplant.models.predict import LARGER, UNLIKE

    use_threads(threads)
    loaded = TrainedModel.load(model, device=device)
    options: dict[str, Any] = {"coverage": coverage, "batch_size": batch_size, "workers": workers}
    options |= {"note": note, **columns.given()}
    target = out or (STANDARD if data == STANDARD else "predictions.csv")
    errors = Console(stderr=True, highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        given = given_data(loaded, [data, *more], columns.smiles, Path(folder))
        if isinstance(given, list) and out is None:
            frame = loaded.predict(given, **options)
            print_predictions(frame)
            tell_coverage(loaded, coverage)
            return status_of(predicted=int((frame["error"] == "").sum()), rows=len(frame))
        with errors.status("reading") as status, heartbeat("reading") as beat:

            def tell(rows: int) -> None:
                beat.text = f"{rows:,} rows"
                status.update(beat.text)

            done = predict_table(loaded, given, target, progress=tell, **options)
    console = errors if target == STANDARD else output()
    rate = f", {done.rows / done.seconds:,.0f} rows a second" if done.seconds > 0 else ""
    console.print(f"{done.predicted:,} of {count(done.rows, 'row')} predicted{rate}")
    if done.failed:
        note(f"{count(done.failed, 'row')} could not be read: see the column error")
    for number, what in ((done.larger, LARGER), (done.unlike, UNLIKE)):
        if number:
            graphs = "graph is" if number == 1 else "graphs are"
            note(f"{number:,} {graphs} {what}: trust the prediction less (column warning)")
    tell_coverage(loaded, coverage)
    if target != STANDARD:
        print_files(console, {Path(target): "the predictions"})
    return status_of(predicted=done.predicted, rows=done.rows)


def tell_coverage(model: TrainedModel, coverage: InnerShare | None) -> None:
    """Print if the model has too few validation graphs for sets or intervals."""
    from graph_transplant.models.uncertainty import COVERAGE, graphs_needed

    if model.reference is None:
        return
    share = coverage or COVERAGE
    needed, known = graphs_needed(share), int((~model.reference.scores.isnan()).sum(0).min())
    if known < needed:
        what = "intervals are empty" if model.task == "regression" else "sets exclude nothing"
        note(f"`coverage` {share:g} needs {needed} validation graphs; there are {known}: {what}")


def status_of(*, predicted: int, rows: int) -> int:
    """Return the exit status: if there are rows but no predictions, the input is invalid."""
    if predicted or not rows:
        return 0
    print_error("no row could be predicted: the column error says why")
    return BAD_INPUT


def given_data(
    model: TrainedModel, words: list[str], smiles: str | None, folder: Path
) -> list[str] | str | Path:
    """Return the arguments as SMILES or as the name or path of data.

    Standard input is kept as a file in ``folder``.
    """
    if words == [STANDARD]:
        return standard_input(smiles, folder)
    molecules = model.featurizer is not None and model.featurizer.kind == "molecules"
    if len(words) > 1:
        if molecules:
            return words
        raise GraphTransplantError(
            f"predict takes one input, unless the model is for molecules; got {len(words)}"
        )
    if not molecules or existing(words[0]) is not None:
        return words[0]
    from graph_transplant.datasets import stream
    from graph_transplant.datasets.rows import quoted

    (chunk,) = stream(words, featurizer=model.featurizer)
    if chunk.store is not None:
        return words
    try:
        check_data(words[0])
    except DataError:
        raise DataError(
            f"{quoted(words[0])} is neither the name or path of data nor a molecule: "
            f"{chunk.problems[1]}"
        ) from None
    return words[0]


def standard_input(smiles: str | None, folder: Path) -> Path:
    """Keep standard input as a file: a table, or SMILES with optional names."""
    from graph_transplant.datasets.chemistry import looks_like_smiles

    content = sys.stdin.buffer.read()
    lines = content.decode("utf-8-sig", "replace").strip().splitlines()
    if not lines:
        raise GraphTransplantError("standard input is empty")
    separated = re.search(r"[,;\t]", lines[0]) and not looks_like_smiles(lines[0].split()[0])
    path = folder / f"standard input{'.csv' if separated or lines[0] == smiles else '.smi'}"
    path.write_bytes(content)
    return path


def print_predictions(frame: pd.DataFrame) -> None:
    """Print predictions as a table, without empty columns."""
    shown = [name for name in frame if name != "row" and (frame[name].astype(str) != "").any()]
    table = frame[shown].fillna({"prediction": ""}).rename(columns=plain)
    # Names of classes may come from elsewhere, with control characters that move the cursor.
    table = table.map(lambda value: plain(value) if isinstance(value, str) else value)
    # Not with rich, which would wrap lines and read brackets in reasons as markup.
    print(table.to_string(index=False, float_format="{:.3g}".format, na_rep=""))


def explain(
    model: Path,
    data: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    out: Path = Path("explain.html"),
    against: Path | None = None,
    rows: tuple[Count, ...] | None = None,
    count: Count = 12,
    label: str | None = None,
    target: str | None = None,
    saliency: SaliencyKind = "gradient-x-activation",
    device: str = "cpu",
    threads: Count = 1,
    columns: InputColumns = NO_INPUT_COLUMNS,
) -> None:
    """Draw the nodes that predictions are based on, as one page.

    Args:
        model: Folder of the model.
        data: As for `graph-transplant predict`, but at most one SMILES.
        out: The page to write.
        against: Folder of another model to show side by side.
        rows: Numbers of the rows to explain, from 1, separated by commas. [default: the first]
        count: How many rows to explain if `--rows` is not given.
        label: The class or label to explain. [default: the predicted one]
        target: Columns with the true values, separated by commas. [default: as in the training
            data, if present]
        saliency: What is drawn; gradient is the paper's.
        device: cpu, cuda, cuda:1, mps ...
        threads: Processor threads for the network. More than one is slower on a busy machine.
        columns: How the data are read.
    """
    given = columns.given()
    if target is not None:
        given["target"] = target

    from graph_transplant.models import TrainedModel, explain_rows
    from graph_transplant.report.explanations import render_explanations

    use_threads(threads)
    folders = [place for place in (model, against) if place]
    loaded = [TrainedModel.load(place, device=device) for place in folders]
    named = dict(zip((place.resolve().name for place in folders), loaded, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        explained = explain_rows(
            named if len(named) == len(loaded) else loaded,
            given_data(loaded[0], [data], columns.smiles, Path(folder)),
            rows=rows,
            count=count,
            label=label,
            saliency=saliency,
            note=note,
            **given,
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, render_explanations(explained))
    for problem in explained.skipped:
        note(f"row {problem.row} could not be read: {problem.reason}")
    print_files(output(), {out: "the explanations"})


def show(
    data: str,
    /,
    *,
    method: TransplantName = "transplant-ep",
    out: Path = Path("gallery.html"),
    count: Count = 8,
    epochs: Count = 20,
    seed: Seed = 0,
    columns: Columns = NO_COLUMNS,
) -> None:
    """Draw mixed graphs next to the two originals, as one page.

    Args:
        data: As for `graph-transplant train`.
        method: One of the transplant methods; see `graph-transplant methods`.
        out: The page to write.
        count: How many mixed graphs to draw.
        epochs: Number of epochs to train a model on the data before computing saliency.
        seed: Seed for all randomness.
        columns: How the data are read.
    """
    skipped = out.with_suffix(".skipped.csv")
    refuse_overwrite([data], [skipped])

    from graph_transplant.analysis.drawing import mixtures
    from graph_transplant.report.explanations import render_gallery

    store = load_data(data, columns)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_skipped(store.skipped, skipped)
    tell_skipped(store, skipped)
    gallery = mixtures(store, method=method, count=count, epochs=epochs, seed=seed)
    write_atomically(out, render_gallery(gallery))
    print_files(output(), {out: "the gallery"})
