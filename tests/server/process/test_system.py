"""A lifeline, trimmed memory and the description of threads, in real processes and threads."""

import os
import sys
import threading

from ors.server.episodes.threads import describe_thread
from ors.server.process.system import FreedMemory, Lifeline


def test_a_lifeline_ends_with_its_other_end() -> None:
    theirs, ours = os.pipe()
    ended = threading.Event()
    try:
        line = Lifeline(theirs)
        line.end = ended.set
        assert not os.get_inheritable(theirs)
        os.close(ours)
        assert ended.wait(10)
    finally:
        os.close(theirs)


def test_memory_is_trimmed_again_only_after_a_pause() -> None:
    memory, trimmed = FreedMemory(), []
    memory._trim = lambda pad: trimmed.append(pad) or 0  # type: ignore[func-returns-value]
    memory.give_back(1.0)
    memory.give_back(1.0)
    assert trimmed == [0]
    memory.give_back(memory._not_before)
    assert trimmed == [0, 0]


def test_a_thread_is_described_by_the_authors_line_and_not_by_ours() -> None:
    gate, waiting = threading.Event(), threading.Event()

    def authors_code() -> None:
        waiting.set()
        gate.wait()

    thread = threading.Thread(target=authors_code, name="worker")
    thread.start()
    try:
        assert waiting.wait(10)
        while "wait" not in (frame := sys._current_frames()[thread.ident or 0]).f_code.co_name:
            pass
        assert describe_thread(thread, frame).startswith(f"thread worker in authors_code ({__file__}:")
    finally:
        gate.set()
        thread.join()
