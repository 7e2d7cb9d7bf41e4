"""Requests of several threads, interrupted requests, forked processes."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import libspin
from support import RULE, SpindTest

INTERRUPTED = """
import libspin, signal, sys
# The signal may be ignored where this program starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
spind = libspin.Client(sys.argv[1])
try:
    spind.list()
except KeyboardInterrupt:
    print("interrupted")
try:
    spind.list()
except libspin.ClosedError:
    print("closed")
"""


class Threads(SpindTest):
    def silent_peer(self) -> tuple[str, socket.socket]:
        """A socket on which nobody answers."""
        path = str(self.folder / f"{self.id()}.sock")
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(path)
        listener.listen()
        return path, listener

    def test_requests_of_threads_take_turns(self) -> None:
        spind = self.connect()

        def work(number: int) -> None:
            for _ in range(10):
                context = spind.install(self.image, [f"udp dport {number}"], name=f"n{number}", host_mem=4096)
                self.assertEqual(spind.find(f"n{number}"), context.id)
                spind.remove(context)

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(1, 9)))
        self.assertEqual(spind.list(), ())

    def test_ctrl_c_interrupts_a_request(self) -> None:
        path, listener = self.silent_peer()
        command = [sys.executable, "-c", INTERRUPTED, path]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
            connection = listener.accept()[0]
            with connection:
                connection.recv(16)
                program.send_signal(signal.SIGINT)
                printed, errors = program.communicate(timeout=20)
        self.assertEqual((printed, errors, program.returncode), ("interrupted\nclosed\n", "", 0))

    def test_signal_handlers_that_return_do_not_interrupt(self) -> None:
        events = (spind := self.connect()).events(spind.install(self.image, [RULE]))
        heard = threading.Event()
        before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())
        self.addCleanup(signal.signal, signal.SIGUSR1, before)
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        while not heard.is_set():
            self.assertFalse(events.wait(0.2))

    def test_a_request_is_closed_by_another_thread(self) -> None:
        path, listener = self.silent_peer()
        client = libspin.Client(path)
        failed: list[str] = []

        def request() -> None:
            try:
                client.list()
            except libspin.ClosedError as error:
                failed.append(str(error))

        threads = [threading.Thread(target=request) for _ in range(3)]
        for thread in threads:
            thread.start()
        connection = listener.accept()[0]
        with connection:
            # This thread runs, so the waiting ones do not hold the GIL.
            connection.recv(16)
            client.close()
            for thread in threads:
                thread.join(20)
        self.assertEqual(len(failed), 3)

    def test_a_forked_process_needs_a_client_of_its_own(self) -> None:
        spind = self.connect()
        context = spind.install(self.image, [RULE])
        queue = multiprocessing.get_context("fork").SimpleQueue()

        def child() -> None:
            try:
                spind.list()
            except libspin.InternalError as error:
                queue.put(str(error))
            spind.close()

        process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
        process.start()
        process.join(20)
        self.assertEqual(process.exitcode, 0)
        self.assertIn("forked process", queue.get())
        self.assertEqual(spind.list()[0].context, context.id, "the parent's connection is open")
