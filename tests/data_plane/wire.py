"""The protocol in plain Python, for honest and hostile peers independent of the Rust code."""

import contextlib
import hashlib
import hmac
import os
import socket
import struct
import threading

MAGIC = 0xBADC0FFE
CLIENT = b"headgate client proof, link tcp, tls none\0"
SERVER = b"headgate server proof, link tcp, tls none\0"
FRAMES = b"headgate frame mask\0"
SEGMENT = 65536
VERSION = 2
DATA, EVENT, PAGE, END = 1, 2, 8, 10


def derive(secret, exchange=bytes(16), run=0, epoch=0):
    """Return one block of HKDF-SHA256."""
    pseudo_random = hmac.digest(bytes(32), secret, "sha256")
    info = b"headgate v1" + exchange + struct.pack(">II", run, epoch)
    return hmac.digest(pseudo_random, info + b"\1", "sha256")


def hello(
    *,
    versions=(VERSION, VERSION),
    role=1,
    exchange=bytes(16),
    run=0,
    epoch=0,
    process=None,
    nonce=None,
):
    return (
        b"HDGT\1"
        + struct.pack(">HHB", *versions, role)
        + exchange
        + struct.pack(">II", run, epoch)
        + (process or os.urandom(16))
        + struct.pack(">I", SEGMENT)
        + (nonce or os.urandom(32))
    )


def receive(sock, count):
    """Read exactly `count` bytes, or fewer at the end of the stream."""
    data = b""
    while len(data) < count:
        try:
            more = sock.recv(count - len(data))
        except ConnectionError:
            break
        if not more:
            break
        data += more
    return data


def is_closed(sock, timeout=10.0):
    """Return True once the peer has closed the connection, False on timeout; discards its data."""
    sock.settimeout(timeout)
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def crc32c(data):
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 255] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def _entry(value):
    for _ in range(8):
        value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
    return value


_TABLE = [_entry(byte) for byte in range(256)]


def sealed(head):
    """Append the checksum that ends every frame except a buffer."""
    return head + struct.pack(">I", crc32c(head))


def masked(data, mask):
    """Mask or unmask the checksum of a frame."""
    at = 31 if data[8] == 0 else len(data) - 4
    crc = struct.unpack_from(">I", data, at)[0] ^ mask
    return data[:at] + struct.pack(">I", crc) + data[at + 4 :]


class Link(socket.socket):
    """A connection after its handshake, which masks the checksums of its frames."""

    mask = 0

    @classmethod
    def of(cls, sock, key, transcript):
        """Take over a socket; the handshake goes up to the server's proof."""
        timeout = sock.gettimeout()
        link = cls(fileno=sock.detach())
        link.settimeout(timeout)
        link.mask = struct.unpack(">I", hmac.digest(key, FRAMES + transcript, "sha256")[:4])[0]
        return link

    def send_frames(self, *frames):
        self.sendall(b"".join(masked(each, self.mask) for each in frames))

    def is_sealed(self, data):
        """Return True if a frame without a payload ends with its checksum."""
        return data == masked(sealed(data[:-4]), self.mask)


def frame(kind, body=b"", length=None, magic=MAGIC):
    """Return a frame other than a buffer, with its checksum; `length` replaces the true length."""
    length = 9 + len(body) + 4 if length is None else length
    return sealed(struct.pack(">IIB", length, magic, kind) + body)


def buffer(payload, *, channel, sequence, data_type=PAGE, generation=0, backlog=0, **wrong):
    """Return a buffer frame; `wrong` replaces length, size, crc or compressed."""
    size = wrong.get("size", len(payload))
    body = struct.pack(">IIIIBBI", channel, generation, sequence, backlog, data_type,
                       wrong.get("compressed", 0), size)  # fmt: skip
    head = struct.pack(">IIB", wrong.get("length", 35 + size), MAGIC, 0) + body
    crc = wrong.get("crc", crc32c(head + payload))
    return head + struct.pack(">I", crc) + payload


def buffers(payload, count, *, first=0, **where):
    """Yield frames of buffers that differ in their numbers alone, faster than one by one."""
    if count == 0:
        return
    base = buffer(payload, sequence=0, **where)
    crc = struct.unpack_from(">I", base, 31)[0]
    # The checksum is linear: each bit of the number changes it in the same way.
    changes = []
    for bit in range((first + count - 1).bit_length()):
        other = buffer(payload, sequence=1 << bit, **where)
        changes.append(struct.unpack_from(">I", other, 31)[0] ^ crc)
    for sequence in range(first, first + count):
        sealed = crc
        for bit, change in enumerate(changes):
            sealed ^= change if sequence >> bit & 1 else 0
        number = struct.pack(">I", sequence)
        yield base[:17] + number + base[21:31] + struct.pack(">I", sealed) + base[35:]


def end(rows, size, buffers, **where):
    """Return the end of a partition, with its totals."""
    payload = bytes(4) + struct.pack(">QQQ", rows, size, buffers)
    return buffer(payload, data_type=END, **where)


def partition_request(address, *, channel=0, generation=0, credit=2, schema=bytes(32), **other):
    return frame(
        2,
        other.get("partition", address.partition_id)
        + struct.pack(
            ">IIII", other.get("subpartition", address.subpartition), channel, generation, credit
        )
        + schema,
    )


def add_credit(credit, channel):
    return frame(6, struct.pack(">II", credit, channel))


def backlog(count, channel):
    return frame(9, struct.pack(">II", count, channel))


def error(code, text, channel):
    return frame(1, struct.pack(">IHH", channel, code, len(text)) + text)


def task_event(payload, channel):
    """Return a task event; its checksum is masked by :func:`masked_payload`."""
    head = struct.pack(">IIBII", 21 + len(payload), MAGIC, 3, channel, len(payload))
    return head + struct.pack(">I", crc32c(head + payload)) + payload


def masked_payload(data, mask):
    """Mask the checksum of a task event, which is before its payload."""
    crc = struct.unpack_from(">I", data, 17)[0] ^ mask
    return data[:17] + struct.pack(">I", crc) + data[21:]


def cancel(channel):
    return frame(4, struct.pack(">I", channel))


def lease():
    return frame(13)


def region(name, size):
    return frame(14, struct.pack(">IQ", name, size))


def lent_buffer(channel, sequence, size, loan, region, offset, data_type=DATA):
    """Return the frame of a buffer that is lent."""
    return frame(
        15,
        struct.pack(">IIIIBIQIQ", channel, 0, sequence, 0, data_type, size, loan, region, offset),
    )


def give_back(loan):
    return frame(16, struct.pack(">Q", loan))


def connect(address, timeout=10.0):
    return socket.create_connection((address.host, address.port), timeout=timeout)


def consumer(address, secret, **claims):
    """Connect as a consumer and shake hands; returns the link and the recorded transcript."""
    key_claims = {k: v for k, v in claims.items() if k in {"exchange", "run", "epoch"}}
    sock = connect(address)
    greeting = hello(**claims)
    sock.sendall(greeting)
    challenge = receive(sock, 91)
    if len(challenge) < 91:
        return sock, [greeting, challenge]
    key = derive(secret, **key_claims)
    proof = b"HDGT\3" + hmac.digest(key, CLIENT + greeting + challenge, "sha256")
    sock.sendall(proof)
    accept = receive(sock, 5)
    return Link.of(sock, key, greeting + challenge), [greeting, challenge, proof, accept]


class Producer:
    """A listening fake producer: shakes hands, reads one partition request, then plays a part."""

    def __init__(self, secret, part):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._beside = self._listen_beside()
        self.process = os.urandom(16)
        self.request = None
        self._secret = secret
        self._part = part
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _listen_beside(self):
        """Return the socket to listen on for processes of this host, instead of TCP."""

    def _serve(self):
        sock, _ = (self._beside or self._listener).accept()
        with sock:
            sock.settimeout(20)
            greeting = receive(sock, 86)
            unproved = b"HDGT\2" + struct.pack(">H", VERSION) + self.process
            unproved += struct.pack(">I", SEGMENT) + os.urandom(32)
            key = derive(self._secret)
            challenge = unproved + hmac.digest(key, SERVER + greeting + unproved, "sha256")
            sock.sendall(challenge)
            receive(sock, 37)
            sock.sendall(b"HDGT\4")
            with Link.of(sock, key, greeting + challenge) as link:
                self._play(link)

    def _play(self, link):
        self.request = receive(link, 77)
        if len(self.request) < 77:
            return  # the consumer refused the handshake
        if not link.is_sealed(self.request):
            return  # tests of honest consumers then fail, because the part does not run
        with contextlib.suppress(ConnectionError):  # the peer disconnects a hostile producer
            self._part(link, struct.unpack(">I", self.request[29:33])[0])
        link.settimeout(10)
        receive(link, 1 << 20)

    def close(self):
        self._listener.close()
        if self._beside:
            self._beside.close()
        self._thread.join(20)


class NearProducer(Producer):
    """A fake producer that consumers of this host reach without TCP."""

    def _listen_beside(self):
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(near(self))
        listener.listen()
        return listener


def near(address):
    """Return the name of the abstract Unix socket beside this TCP address."""
    return f"\0headgate {address.host}:{address.port}"


def fingerprint(*columns):
    """Return the schema hash that pages with these columns (pairs of name and type) have."""
    lines = [f"{len(name.encode())}:{name} {kind}\n" for name, kind in columns]
    text = "headgate page schema 1\n" + "".join(lines)
    return hashlib.sha256(text.encode()).digest()[:4]


def digest(data):
    return hashlib.sha256(data).hexdigest()
