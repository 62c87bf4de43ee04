"""The matrix of nvidia-smi topo: parsed from any text, one print however cards are numbered."""

import random

from hypothesis import given
from hypothesis import strategies as st

from runbook.probe.topology import fingerprint, parse_matrix, topology_class

WORDS = ["PIX", "PXB", "PHB", "NODE", "SYS", "NV4"]


def text_of(cells, ends="\n"):
    names = [f"GPU{number}" for number in range(len(cells))]
    rows = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    rows += [
        "\t".join([name, *row, "0-63", "0", "", "N/A"])
        for name, row in zip(names, cells, strict=True)
    ]
    return ends.join([*rows, "", "Legend:", "", "  X    = Self", "  NV#  = bonded", ""])


def grouped(sizes, near="PIX", far="SYS"):
    """Cards in groups: near one another inside, far outside."""
    of = [group for group, size in enumerate(sizes) for _ in range(size)]
    return [
        [" X " if a == b else near if of[a] == of[b] else far for b in range(len(of))]
        for a in range(len(of))
    ]


def renumbered(cells, order):
    return [[cells[a][b] for b in order] for a in order]


def print_of(cells):
    return fingerprint(parse_matrix(text_of(cells)))


@st.composite
def matrices(draw):
    size = draw(st.integers(1, 8))
    cells = [[" X "] * size for _ in range(size)]
    for one in range(size):
        for other in range(one):
            cells[one][other] = cells[other][one] = draw(st.sampled_from(WORDS))
    return cells


@given(matrices(), st.randoms(use_true_random=False))
def test_the_fingerprint_does_not_know_numbers(cells, chance: random.Random):
    order = list(range(len(cells)))
    chance.shuffle(order)
    assert print_of(cells) == print_of(renumbered(cells, order)) is not None


@given(matrices().filter(lambda cells: len(cells) > 1), st.data())
def test_the_fingerprint_knows_every_link(cells, data):
    one = data.draw(st.integers(1, len(cells) - 1))
    other = data.draw(st.integers(0, one - 1))
    before = print_of(cells)
    word = data.draw(st.sampled_from([word for word in WORDS if word != cells[one][other]]))
    cells[one][other] = cells[other][one] = word
    assert print_of(cells) != before


def test_the_same_links_in_other_places_differ():
    """A ring of eight near links and two rings of four count alike everywhere."""
    ring = [[(a - b) % 8 in (1, 7) for b in range(8)] for a in range(8)]
    rings = [[(a - b) % 4 in (1, 3) and a // 4 == b // 4 for b in range(8)] for a in range(8)]
    as_links = [
        [
            [" X " if a == b else "NV4" if near else "SYS" for b, near in enumerate(row)]
            for a, row in enumerate(cells)
        ]
        for cells in (ring, rings)
    ]
    assert print_of(as_links[0]) != print_of(as_links[1])
    prints = [print_of(grouped(s)) for s in ([4, 4], [2, 2, 2, 2], [5, 3], [6, 2], [3, 3, 2])]
    assert len(set(prints)) == len(prints)


def test_sixteen_cards_are_quick():
    assert print_of(grouped([2] * 8)) == print_of(renumbered(grouped([2] * 8), range(15, -1, -1)))


def test_classes():
    cases = {
        "single": grouped([1]),
        "switch": grouped([4]),
        "root": grouped([2, 2], far="PHB"),
        "node": grouped([2, 2], far="NODE"),
        "system": grouped([2, 2]),
        "all-system": grouped([1, 1, 1]),
        "nvlink": grouped([2, 2], near="NV18"),
    }
    for name, cells in cases.items():
        assert topology_class(parse_matrix(text_of(cells))) == name


def test_spellings_give_the_same_matrix():
    plain = text_of(grouped([2, 2]))
    header, *rows = plain.splitlines()
    glued = header.replace("\t", "").replace("CPU Affinity", " CPU Affinity ")
    wrapped = header.replace("\tGPU2", "\n\tGPU2")
    names = [header.replace("\tCPU", "\tNIC0\tCPU"), *rows]
    with_nic = "\n".join(
        line.replace("\t0-63", "\tNODE\t0-63") if line.startswith("GPU") else line for line in names
    ).replace("\n\nLegend", "\nNIC0\tNODE\tNODE\tSYS\tSYS\t X \t\t\t\t\n\nLegend")
    spaced = "\n".join(line.replace("\t", "     ") for line in plain.splitlines())
    for text in (
        *(plain.replace("\n", "\r\n"), f"\x1b[4m{header}\x1b[0m\n" + "\n".join(rows)),
        *("\n".join([glued, *rows]), "\n".join([wrapped, *rows]), with_nic, spaced),
        "root@host:~# nvidia-smi topo -m\n" + plain,
    ):
        assert parse_matrix(text) == parse_matrix(plain), text


def test_without_affinity_columns_the_links_are_the_same():
    plain = parse_matrix(text_of(grouped([2, 2])))
    bare = "\tGPU0\tGPU1\tGPU2\tGPU3\n" + "\n".join(
        "\t".join([f"GPU{at}", *row]) for at, row in enumerate(grouped([2, 2]))
    )
    found = parse_matrix(bare)
    assert found["cells"] == plain["cells"] and fingerprint(found) == fingerprint(plain)
    assert (plain["cpus"], plain["numa"]) == (["0-63"] * 4, ["0"] * 4)
    assert (found["cpus"], found["numa"]) == ([None] * 4, [None] * 4)


@given(st.integers(0, 400))
def test_cut_off_it_is_never_whole(at):
    text = text_of(grouped([4, 4]))
    rows_end = text.index("\tPIX\tPIX\tPIX\t X \t0-63", text.index("GPU7\t")) + 20
    found = parse_matrix(text[: min(at, rows_end - 20)])
    assert fingerprint(found) is None or len(found["gpus"]) < 8


@given(st.text())
def test_any_text_is_parsed(text):
    for found in (parse_matrix(text), parse_matrix("\tGPU0\tGPU1\nGPU0\t" + text)):
        fingerprint(found)
        assert len(found["gpus"]) == len(found["cells"]) == len(found["numa"])


def test_one_direction_that_differs_is_a_fault():
    cells = grouped([2, 2])
    cells[3][0] = "NODE"
    found = parse_matrix(text_of(cells))
    assert found["faults"] == ["GPU3 to GPU0: NODE, but back: SYS"]
    assert topology_class(found) is None
