"""Connections under TLS: rows pass, nothing goes in the clear, and whoever stands between gets nothing."""

import contextlib
import dataclasses
import select
import socket
import ssl
import struct
import threading

import pyarrow as pa
import pytest
from plane import SECRET, Task, drain
from tests.kit.fault_proxy import FaultProxy
from tests.kit.faults import DAMAGES, TO_CLIENT, TO_TARGET, Fault
from wire import hello, is_closed

import headgate as hg

errors = hg.errors
#: Words that a capture of rows in the clear would show.
MARK = "seen in the clear"
BATCH = pa.record_batch({"text": [MARK] * 1000, "n": range(1000)})
BATCHES = 60
#: First bytes of the records of TLS: change of cipher, alert, handshake, data.
RECORDS = {20, 21, 22, 23}
TLS = {"same_host_link": "off", "tls": "require"}


class Served:
    """A partition of many batches, which a task writes while it is read."""

    def __init__(self, environment):
        self.environment = environment
        self.partition = environment.create_result_partition(1, schema=BATCH.schema)
        self._task = Task(self._write)

    @property
    def address(self):
        return self.partition.address(0)

    def _write(self):
        # The reader has the cause of an error.
        with contextlib.suppress(errors.HeadgateError), hg.RecordWriter(self.partition) as writer:
            for _ in range(BATCHES):
                writer.emit(BATCH)

    def proxy(self, fault=None):
        return FaultProxy(self.address.host, self.address.port, fault)


@pytest.fixture
def served(environment):
    """Make a served partition; TLS is required if no options say otherwise."""

    def make(**options):
        return Served(environment(**{**TLS, "listen": "127.0.0.1:0", **options}))

    return make


def read(environment, address, **options):
    """Return the task that reads all rows at an address."""
    return Task(drain, environment(**{**TLS, **options}).create_input_gate([address]))


def assert_all(table):
    assert table.equals(pa.Table.from_batches([BATCH] * BATCHES))


def records_of(stream):
    """Return the type and the length of each record of TLS in a stream of bytes."""
    found, offset = [], 0
    while offset + 5 <= len(stream):
        kind, _, length = struct.unpack_from(">BHH", stream, offset)
        found.append((kind, length))
        offset += 5 + length
    return found


def test_rows_pass_and_no_byte_goes_in_the_clear(environment, served):
    producer = served()
    with producer.proxy() as proxy:
        assert_all(read(environment, proxy.address(producer.address)).result())
        for way in (TO_TARGET, TO_CLIENT):
            stream = bytes(proxy.recorded[way])
            assert MARK.encode() not in stream
            assert b"HDGT" not in stream
            # All of it is records of TLS, from the first byte on.
            assert {kind for kind, _ in records_of(stream)} <= RECORDS
            assert all(length <= 2**14 + 256 for _, length in records_of(stream))
        assert sum(length for _, length in records_of(proxy.recorded[TO_CLIENT])) > BATCH.nbytes


def test_without_tls_the_same_capture_shows_the_rows(environment, served):
    producer = served(tls="off")
    with producer.proxy() as proxy:
        assert_all(read(environment, proxy.address(producer.address), tls="off").result())
        assert MARK.encode() in bytes(proxy.recorded[TO_CLIENT])


@pytest.mark.soak
def test_one_side_without_tls_gets_an_error_and_no_row(environment, served):
    """Both sides at the same time, since each consumer dials again until its deadline."""
    ways = [("require", "off"), ("off", "require")]
    producers = [served(tls=theirs) for _, theirs in ways]
    proxies = [producer.proxy() for producer in producers]
    readings = [
        read(environment, proxy.address(producer.address), tls=ours)
        for (ours, _), producer, proxy in zip(ways, producers, proxies, strict=True)
    ]
    for (_, theirs), producer, proxy, reading in zip(
        ways, producers, proxies, readings, strict=True
    ):
        with proxy:
            error = reading.error()
            assert type(error) is errors.TlsError
            assert "give both processes the same tls option" in str(error)
            assert MARK.encode() not in bytes(proxy.recorded[TO_CLIENT])
        assert_all(read(environment, producer.address, tls=theirs).result())


def stranger(address, **limits):
    """Connect by Python's TLS, which checks no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for name, value in limits.items():
        setattr(context, name, value)
    plain = socket.create_connection((address.host, address.port), timeout=10)
    try:
        return context.wrap_socket(plain)
    except BaseException:
        plain.close()
        raise


def test_older_versions_of_tls_are_refused(environment, served):
    producer = served()
    with pytest.raises(ssl.SSLError):
        stranger(producer.address, maximum_version=ssl.TLSVersion.TLSv1_2)
    assert_all(read(environment, producer.address).result())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_producer_of_an_older_version_hears_nothing_of_a_consumer(environment, tmp_path, version):
    """One of the newest version, as a control, hears its first message."""
    certificate, key = hg._native.self_signed_certificate()
    (tmp_path / "both").write_text(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both")
    context.maximum_version = version
    heard, stop = [], threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def serve():
            while not stop.is_set():
                with contextlib.suppress(OSError):
                    plain, _ = listener.accept()
                    with plain, context.wrap_socket(plain, server_side=True) as sock:
                        heard.append(sock.recv(1000))

        serving = Task(serve)
        address = hg.ChannelAddress(*listener.getsockname(), bytes(16), 0, bytes(16))
        with pytest.raises(errors.HeadgateError):
            read(environment, address).result()
        stop.set()
        serving.result()
    assert any(heard) is (version is ssl.TLSVersion.TLSv1_3)


def test_tls_alone_proves_nothing(environment, served):
    producer = served()
    with stranger(producer.address) as sock:
        assert sock.version() == "TLSv1.3"
        sock.sendall(hello() + bytes(37))
        assert is_closed(sock)
    # A challenge, and the same answer that any stranger gets.
    assert producer.environment.stats()["bytes_sent"] <= 91 + 10
    assert_all(read(environment, producer.address).result())


def test_a_recorded_connection_cannot_be_replayed(environment, served):
    producer = served()
    with producer.proxy() as proxy:
        assert_all(read(environment, proxy.address(producer.address)).result())
        recorded = bytes(proxy.recorded[TO_TARGET])
    again = Served(producer.environment)
    with socket.create_connection((again.address.host, again.address.port)) as sock:
        sock.sendall(recorded)
        sock.settimeout(15)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while more := sock.recv(65536):
                answer += more
    assert MARK.encode() not in answer
    # The server's part of the handshake and an alert: no page came.
    assert len(answer) < 2_000
    assert_all(read(environment, again.address).result())


@pytest.mark.parametrize("seed", range(24))
def test_damage_is_an_error_and_never_a_wrong_row(environment, served, seed):
    fault = Fault.random(seed, DAMAGES, lengths=(400, 60_000))
    producer = served()
    with producer.proxy(fault) as proxy:
        outcome = read(environment, proxy.address(producer.address)).outcome(40)
        if isinstance(outcome, pa.Table):
            assert_all(outcome)
            # A splice of the first connection, and ranges of equal bytes, change nothing. A consumer whose
            # handshake is damaged dials again.
            assert fault.kind in {"splice", "reorder"} or not proxy.struck or proxy.dialed > 1
        else:
            assert isinstance(outcome, errors.HeadgateError)
            assert proxy.struck


@pytest.mark.parametrize("end", ["cut", "reset"])
def test_a_cut_connection_is_no_end(environment, served, end):
    producer = served()
    with producer.proxy(Fault(end, TO_CLIENT, offset=300_000)) as proxy:
        error = read(environment, proxy.address(producer.address)).error()
        assert type(error) is errors.PeerLostError
        assert proxy.struck


class InTheMiddle:
    """Ends the TLS of both sides, each with a session of its own, and forwards what they say."""

    def __init__(self, address, context):
        self.heard = b""
        self._target = address
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        with contextlib.suppress(OSError):
            plain, _ = self._listener.accept()
            with (
                self._context.wrap_socket(plain, server_side=True) as client,
                stranger(self._target) as server,
            ):
                self._forward({client: server, server: client})

    def _forward(self, others):
        while True:
            waiting = [one for one in others if one.pending()]
            for one in waiting or select.select(list(others), [], [], 20)[0]:
                said = one.recv(65536)
                self.heard += said
                if not said:
                    return
                others[one].sendall(said)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._listener.close()
        self._thread.join(20)


@pytest.mark.soak
def test_one_in_the_middle_is_refused_by_both_sides(environment, served, tmp_path):
    certificate, key = hg._native.self_signed_certificate()
    (tmp_path / "pem").write_text(certificate + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    producer = served()
    with InTheMiddle(producer.address, context) as middle:
        address = dataclasses.replace(producer.address, port=middle.port)
        error = read(environment, address).error()
        assert type(error) is errors.HandshakeError
    # It heard the greeting of each side, so it stood between; no proof of the consumer, and no row.
    assert middle.heard.count(b"HDGT") == 2
    assert MARK.encode() not in middle.heard
    assert_all(read(environment, producer.address).result())


@pytest.mark.parametrize("missing", ["tls_ca", "tls_certificate", "tls_key"])
def test_files_are_given_together(environment, tmp_path, missing):
    files = {name: tmp_path / name for name in ("tls_ca", "tls_certificate", "tls_key")}
    del files[missing]
    with pytest.raises(errors.OptionError, match=f"has no effect without {missing}"):
        environment(tls="require", **files)


def test_files_without_tls_are_refused(environment, tmp_path):
    files = dict.fromkeys(("tls_ca", "tls_certificate", "tls_key"), tmp_path / "pem")
    with pytest.raises(errors.OptionError, match=r'tls_ca has no effect without tls="require"'):
        environment(**files)


def test_files_that_cannot_be_used_are_named(environment, tmp_path):
    certificate, key = hg._native.self_signed_certificate()
    (tmp_path / "certificate").write_text(certificate)
    (tmp_path / "key").write_text(key)
    (tmp_path / "words").write_text("no certificate")
    right = {
        "tls_ca": tmp_path / "certificate",
        "tls_certificate": tmp_path / "certificate",
        "tls_key": tmp_path / "key",
    }
    environment(tls="require", **right)
    for name in right:
        for wrong in ("nowhere", "words"):
            with pytest.raises(errors.OptionError, match=f"{wrong} cannot be used"):
                environment(tls="require", **{**right, name: tmp_path / wrong})
    # A key of another certificate.
    (tmp_path / "other").write_text(hg._native.self_signed_certificate()[1])
    with pytest.raises(errors.OptionError, match="cannot be used"):
        environment(tls="require", **{**right, "tls_key": tmp_path / "other"})


def test_changed_files_that_cannot_be_used_are_logged_once(environment, tmp_path, caplog):
    certificate, key = hg._native.self_signed_certificate()
    (tmp_path / "certificate").write_text(certificate)
    (tmp_path / "key").write_text(key)
    files = dict.fromkeys(("tls_ca", "tls_certificate"), tmp_path / "certificate")
    made = environment(tls="require", tls_key=tmp_path / "key", **files)

    def logged(call):
        caplog.clear()
        call()
        return [
            record.getMessage()
            for record in caplog.records
            if record.name == "headgate.environment"
        ]

    assert logged(made.stats) == []
    for wrong, call in (
        ("no key", lambda: made.create_input_gate().close()),
        ("no key either", lambda: made.create_result_partition(1).close()),
        (None, made.stats),
        ("once more", lambda: made.serve(bytes(range(16)), tmp_path / "indexes")),
    ):
        (tmp_path / "key").unlink() if wrong is None else (tmp_path / "key").write_text(wrong)
        (text,) = logged(call)
        assert text.startswith("[HG-3011]")
        assert str(tmp_path / "key") in text
        assert logged(made.stats) == [], "the same files are told of once"
    (tmp_path / "key").write_text(key)
    assert logged(made.stats) == []
    # The same text in a file that was right in between is a new failure.
    (tmp_path / "key").write_text("once more")
    assert len(logged(made.stats)) == 1


def test_a_secret_is_still_needed(environment, served):
    producer = served()
    error = read(environment, producer.address, secret=bytes(32)).error()
    assert type(error) is errors.HandshakeError
    assert bytes(32) != SECRET
