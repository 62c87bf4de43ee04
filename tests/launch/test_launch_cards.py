"""Memory that is not free yet and starts that hang, on cards as nvidia-smi would tell them."""

import os

import pytest

from runbook.errors import Blocked, ServerFailed
from runbook.launch import cards
from runbook.launch.cards import Card, HangWatch, parse_cards, read_cards, wait_until_free
from runbook.params import Stack

FREE = "0, 4, 0, 30.1, 600.00\n1, 5, 0, [N/A], 600.00\n"
SPINNING = "0, 80000, 100, 128.4, 600.00\n1, 80000, 100, 131.0, 600.00\n"
AT_WORK = "0, 80000, 100, 128.4, 600.00\n1, 80000, 100, 431.0, 600.00\n"


class Told:
    """Answers on the cards one after the other, the last one again and again; nobody holds them."""

    def __init__(self, *texts):
        self.texts, self.asked = list(texts), 0

    def __call__(self, query):
        if "compute-apps" in query:
            return ""
        self.asked += 1
        return self.texts.pop(0) if len(self.texts) > 1 else self.texts[0]


def test_what_a_card_does_not_tell_is_none_and_other_lines_are_no_card():
    assert parse_cards(FREE + "NVIDIA-SMI has failed\n") == [
        Card("0", 4, 0, 30.1, 600),
        Card("1", 5, 0, None, 600),
    ]


def test_a_machine_without_cards_waits_for_nothing(monkeypatch):
    monkeypatch.setattr("runbook.launch.cards.COMMAND_ENV", {"PATH": "/nonexistent"})
    assert read_cards() == []
    wait_until_free(1024, 5)


def test_memory_is_waited_for(monkeypatch):
    monkeypatch.setattr("runbook.launch.cards._POLL_S", 0.01)
    told = Told(SPINNING, SPINNING, FREE)
    wait_until_free(1024, 30, told)
    assert told.asked == 3


def test_memory_that_stays_held_names_cards_and_asks_for_a_hand():
    with pytest.raises(Blocked) as caught:
        wait_until_free(1024, 0.01, Told(SPINNING))
    assert "GPU 0 80000 MiB, GPU 1 80000 MiB" in caught.value.found
    assert "runbook run PARAMS --resume" in caught.value.do


def hang_watch(told, lines, stack=None):
    settings = "with NCCL_P2P_LEVEL=SYS, topology root"
    return HangWatch(lambda: lines[0], 0.0, settings, stack or Stack(), told)


def test_a_silent_start_on_spinning_cards_is_a_suspected_deadlock():
    watch = hang_watch(Told(SPINNING), ["Init torch distributed begin."])
    with pytest.raises(ServerFailed) as caught:
        watch.look()
        watch.look()
    assert "NCCL deadlock suspected: GPU 0 100 % 128 W, GPU 1 100 % 131 W" in caught.value.found
    assert "NCCL_P2P_LEVEL=SYS" in caught.value.found
    assert "NCCL_P2P_DISABLE=1" in caught.value.do


@pytest.mark.parametrize("stack", [Stack(hang_power=0.2), Stack(busy_percent=100)])
def test_what_counts_as_busy_and_as_little_power_are_parameters(stack):
    half = SPINNING.replace(", 100,", ", 99,")
    watch = hang_watch(Told(half), ["Init torch distributed begin."], stack)
    for _ in range(3):
        watch.look()
    watch = hang_watch(Told(half), ["Init torch distributed begin."])
    with pytest.raises(ServerFailed):
        for _ in range(3):
            watch.look()


def test_who_holds_the_memory_is_named_with_its_unit(monkeypatch):
    def told(query):
        return f"{os.getpid()}, python3, 80000 MiB\n" if "compute-apps" in query else SPINNING

    monkeypatch.setattr(cards, "unit_of", {os.getpid(): "old.service"}.get)
    with pytest.raises(Blocked, match=f"{os.getpid()}, python3, 80000 MiB, unit old.service"):
        wait_until_free(1024, 0.01, told)
    with pytest.raises(Blocked, match=rf"{os.getpid()}, python3, 80000 MiB\)"):
        wait_until_free(1024, 0.01, told, is_far=True)  # the number is of another machine


@pytest.mark.parametrize("text", [AT_WORK, FREE, ""])
def test_cards_at_work_idle_or_untold_are_no_deadlock(text):
    watch = hang_watch(Told(text), ["Load weight begin"])
    for _ in range(3):
        watch.look()


def test_a_log_that_goes_on_is_no_deadlock():
    told, lines = Told(SPINNING), ["one"]
    watch = HangWatch(lambda: lines[0], 60.0, "", Stack(), told)
    watch._looked_at = -1e9
    watch.look()
    assert told.asked == 0
