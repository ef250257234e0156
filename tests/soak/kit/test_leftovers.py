"""The check for leftovers finds each kind of resource, and only until it is released."""

import contextlib
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import pytest
from tests.kit import processes
from tests.kit.leftovers import Leftovers, established

import headgate as hg


@contextlib.contextmanager
def a_socket():
    with socket.socket():
        yield "socket:["


@contextlib.contextmanager
def an_eventfd():
    number = os.eventfd(0)
    yield "eventfd"
    os.close(number)


@contextlib.contextmanager
def a_mapping_of_a_memfd():
    number = os.memfd_create("pool")
    os.ftruncate(number, 65_536)
    mapping = mmap.mmap(number, 65_536)
    os.close(number)
    yield "65536 bytes of /memfd:pool"
    mapping.close()


@contextlib.contextmanager
def a_shared_anonymous_mapping():
    mapping = mmap.mmap(-1, 131_072)
    yield "131072 bytes of /dev/zero"
    mapping.close()


@contextlib.contextmanager
def a_thread():
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="headgate-forgotten")
    thread.start()
    yield "thread headgate-forgotten"
    end.set()
    thread.join()


@contextlib.contextmanager
def a_native_thread():
    with contextlib.closing(hg.ShuffleEnvironment(memory="1m", secret=bytes(32))) as environment:
        environment.create_result_partition(1).address(0)
        yield "thread headgate-io"


@contextlib.contextmanager
def a_child():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as child:
        yield f"process {child.pid} "
        child.kill()


@contextlib.contextmanager
def a_forked_child():
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    yield f"process {child} "
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


@contextlib.contextmanager
def an_orphan():
    code = (
        "import os, time\nchild = os.fork()\nprint(child, flush=True) if child else time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as parent:
        orphan = int(parent.stdout.readline())
        parent.wait()
    assert processes.read(orphan).parent != os.getpid()
    yield f"process {orphan} "
    os.kill(orphan, signal.SIGKILL)


@contextlib.contextmanager
def an_orphan_without_a_mark():
    told, tell = os.pipe()
    parent = os.fork()
    if parent == 0:
        orphan = os.fork()
        if orphan == 0:
            time.sleep(60)
        os.write(tell, str(orphan).encode())
        os._exit(0)
    orphan = int(os.read(told, 20))
    os.waitpid(parent, 0)
    os.close(told)
    os.close(tell)
    yield f"process {orphan} "
    os.kill(orphan, signal.SIGKILL)


@contextlib.contextmanager
def a_file():
    with tempfile.NamedTemporaryFile(prefix="headgate-spill-") as file:
        yield f"file {file.name}"


THINGS = [
    a_socket,
    an_eventfd,
    a_mapping_of_a_memfd,
    a_shared_anonymous_mapping,
    a_thread,
    a_native_thread,
    a_child,
    a_forked_child,
    an_orphan,
    an_orphan_without_a_mark,
    a_file,
]


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.__name__)
def test_what_is_left_is_found_until_it_is_gone(thing):
    leftovers = Leftovers()
    leftovers.check()
    with thing() as line:
        wait_for(line, leftovers)
        with pytest.raises(AssertionError, match="left behind after"):
            leftovers.check(0.1)
    leftovers.check()


def wait_for(line, leftovers, seconds=10):
    """Wait until a leftover is found. A thread gets its name a moment after its start."""
    deadline = time.monotonic() + seconds
    while not any(line in found for found in leftovers.find()):
        assert time.monotonic() < deadline, f"{line} is not in {leftovers.find()}"
        time.sleep(0.05)


def test_segments_of_a_pool_are_found_until_the_environment_is_closed():
    made = []
    leftovers = Leftovers(made)
    environment = hg.ShuffleEnvironment(memory="1m", secret=bytes(32))
    made.append(environment)
    environment.create_result_partition(1)
    assert leftovers.find() == ["segments: {'local_pools': 1}"]
    environment.close()
    leftovers.check()


def test_what_was_there_before_is_nothing_left():
    with a_socket(), a_child(), a_file():
        leftovers = Leftovers()
        leftovers.check()


@pytest.mark.parametrize("loads", ["headgate", "json"])
def test_of_a_stopped_application_only_workers_that_loaded_headgate_are_left(loads):
    leftovers = Leftovers(spark="stopped")
    code = f"import {loads}, time; print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", code, "pyspark.worker"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as worker:
        worker.stdout.readline()
        found = [line for line in leftovers.find() if line.startswith(f"process {worker.pid} ")]
        worker.kill()
    assert bool(found) == (loads == "headgate")
    leftovers.check()


SERVERS = """
from multiprocessing import forkserver, resource_tracker
from tests.kit.leftovers import Leftovers, servers_of_multiprocessing
from tests.kit.processes import family

leftovers = Leftovers()
forkserver.ensure_running()
resource_tracker.ensure_running()
assert set(servers_of_multiprocessing()) <= set(family())
leftovers.check()
"""


def test_servers_of_multiprocessing_stay_with_their_process():
    subprocess.run([sys.executable, "-c", SERVERS], check=True, timeout=60)


def test_the_kernels_tables_show_the_connections_of_a_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert established(port) == []
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            with accepted:
                assert len(established(port)) == 1
        assert established(port) == []
