"""What methods and files are called: colours, short names that stay apart, stems of files."""

from __future__ import annotations

import re
from collections.abc import Iterable

COLOURS = 8
"""Number of colours for methods beside the baseline; with more methods they come round again."""

_PARTS = re.compile(r"[:,]")


def palette(names: Iterable[str], baseline: str) -> dict[str, str]:
    """Give each name a colour: grey for the baseline, then eight that come round again.

    Example:
        >>> palette(["a", "vanilla", "b", "a"], "vanilla")
        {'a': 'c1', 'vanilla': 'c0', 'b': 'c2'}
    """
    found: dict[str, str] = {}
    number = 0
    for name in dict.fromkeys(names):
        if name == baseline:
            found[name] = "c0"
        else:
            found[name] = f"c{number % COLOURS + 1}"
            number += 1
    return found


def slug(*words: str, most: int = 60) -> str:
    """Make the stem of a file's name of some words; two texts may well have the same.

    Args:
        *words: The words.
        most: Number of characters that are kept.

    Example:
        >>> slug("transplant-dp:anchor_ratio=0.05"), slug("GCS", "3"), slug("<>")
        ('transplant-dp-anchor-ratio-0-05', 'gcs-3', 'x')
    """
    text = "-".join(word[: 4 * most] for word in words).lower()
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:most].strip("-") or "x"


class Names:
    """Names that were given away: whoever asks for one again gets it with a number behind.

    Args:
        taken: Names that nobody may have.

    Example:
        >>> names = Names(["words"])
        >>> [names.claim(name) for name in ("map", "map", "map-2", "words")]
        ['map', 'map-2', 'map-2-2', 'words-2']
    """

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def claim(self, wanted: str) -> str:
        """Give the wanted name, or the first free one with a number behind."""
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}-{number}", number + 1
        self._taken.add(name)
        return name


def short_names(names: Iterable[str], most: int) -> dict[str, str]:
    """Shorten names so that they fit and no two of them read the same.

    Of a method with parameters the value is kept: it is what variants differ in. Where two texts
    would be the same, both are shortened in another way, and at the worst they are numbered.

    Args:
        names: The names that stand together.
        most: Number of characters that fit, at least 4.

    Returns:
        The text of each name, as it is where it fits.

    Example:
        >>> short_names(["vanilla", "transplant-dp:anchor_ratio=0.05"], 25)
        {'vanilla': 'vanilla', 'transplant-dp:anchor_ratio=0.05': 'transplant-dp:…ratio=0.05'}
        >>> list(short_names([f"transplant-dp:anchor_ratio={v}" for v in (0.05, 0.2)], 18).values())
        ['…anchor_ratio=0.05', '…anchor_ratio=0.2']
        >>> list(short_names([f"transplant-{k}p:anchor_ratio=0.2" for k in "de"], 14).values())
        ['…dp:…ratio=0.2', '…ep:…ratio=0.2']
    """
    forms = {name: _forms(name, most) for name in names}
    level = dict.fromkeys(forms, 0)
    while True:
        texts: dict[str, list[str]] = {}
        for name, given in forms.items():
            texts.setdefault(given[level[name]], []).append(name)
        alike = [name for own in texts.values() if len(own) > 1 for name in own]
        movable = [name for name in alike if level[name] + 1 < len(forms[name])]
        if not movable:
            break
        for name in movable:
            level[name] += 1
    found = {}
    taken = set(texts)
    for text, own in texts.items():
        found[own[0]] = text
        number = 2
        for name in own[1:]:
            while (numbered := f"{text[: most - 1 - len(str(number))]}~{number}") in taken:
                number += 1
            taken.add(numbered)
            found[name] = numbered
    return {name: found[name] for name in forms}


def _forms(name: str, most: int) -> list[str]:
    """Give the ways to shorten a name, the most telling first."""
    if len(name) <= most:
        return [name]
    found = []
    method, mark, rest = name.partition(":")
    if mark:
        *_, last = _PARTS.split(rest)
        value = last[last.rfind("=") :] if "=" in last else last
        head = f"{method}:"
        short = f"…{method.rpartition('-')[2]}:"
        # Half a word beside the method says less than the parameter by itself.
        word = re.split(r"[_-]", last.rpartition("=")[0])[-1] + value if "=" in last else last
        if len(head) + 1 + len(word) <= most:
            found.append(head + _tail(rest, most - len(head)))
        if len(value) < most:
            found.append(_tail(rest, most, cut=True))
        if len(short) + 1 + len(value) <= most:
            found.append(short + _tail(rest, most - len(short)))
        # Where an earlier parameter makes the difference: all values, without their names.
        values = ",".join(part.rpartition("=")[2] for part in _PARTS.split(rest))
        found += [f"{head}{values}", f"{short}{values}", f"…{values}"]
    else:
        found.append(name[: most - 1] + "…")
    for head_room in (most // 2, most // 3, 2 * most // 3):
        found.append(name[:head_room] + "…" + name[len(name) - (most - 1 - head_room) :])
    found.append("…" + name[len(name) - (most - 1) :])
    return [text for text in dict.fromkeys(found) if len(text) <= most]


def _tail(text: str, room: int, *, cut: bool = False) -> str:
    """Give the end of a text that fits, from the beginning of a word where there is one."""
    if len(text) + cut <= room:
        return "…" * cut + text
    kept = text[len(text) - (room - 1) :]
    if text[len(text) - room] not in "_:,-":
        word = re.search(r"[_:,-](?=[^=]*=)", kept.rpartition("=")[0] + "=")
        if word and "=" in kept:
            kept = kept[word.end() :]
    return f"…{kept}"
