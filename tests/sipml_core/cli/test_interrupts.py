"""Ctrl-C is noticed whatever becomes of it."""

import signal

import pytest

from sipml_core.cli.interrupts import interrupts_noticed
from sipml_core.plugin.signals import interrupts_blocked


@pytest.fixture(autouse=True)
def interrupts_as_usual():
    """A shell's background job, as a test run may be, starts with interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt():
    signal.raise_signal(signal.SIGINT)


def an_extension_that_is_interrupted():
    try:
        interrupt()
    except KeyboardInterrupt:
        raise ImportError("initialization failed") from None


def test_an_interrupt_is_noticed_even_where_it_becomes_another_error():
    """And the handler that was there is there again afterwards."""
    before = signal.getsignal(signal.SIGINT)
    with interrupts_noticed() as seen:
        with pytest.raises(ImportError):
            an_extension_that_is_interrupted()
        assert seen == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is before


def test_ignored_interrupts_stay_ignored():
    """A command under nohup, or in the background of a script, goes on."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts_noticed() as seen:
            interrupt()
        assert seen == []
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_blocked_interrupt_comes_afterwards():
    done = []

    def both():
        with interrupts_blocked():
            interrupt()
            done.append("the block")
        done.append("what follows")

    with pytest.raises(KeyboardInterrupt):
        both()
    assert done == ["the block"]
