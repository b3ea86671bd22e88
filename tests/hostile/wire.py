"""What ranks say to each other over TCP, spoken by hand: with the key or without, and in the dialect that had neither keys nor
seals (`old`), in which the attacks of network.py were first found."""
import ctypes
import hashlib
import hmac
import os
import socket
import struct
import time

MAGIC = {False: 0x4C534E37, True: 0x4C534E32}  # By whether the dialect is old.
KINDS = {False: "hello challenge proof welcome refused beat here post ended failed part taken".split(),
         True: "hello welcome refused beat here post ended failed".split()}
HEAD = struct.Struct("<IIiIQ")  # Magic, kind, from, number, size of the body; a call and a seal come behind it.
CALL = struct.Struct("<qiiQ24s24sQ")  # Sequence, kind, unit, bytes, purpose, stream, documents.
CALL_SIZE = {False: CALL.size, True: CALL.size - 8}  # An old call has no documents.
SEAL = 16


def a_call(sequence=0, kind=0, purpose=b""):
    return CALL.pack(sequence, kind, -1, 0, purpose, b"", 0)


class Gmac:
    """The tag of AES-256-GCM over all that is said; its nonce counts the frames."""

    GET_TAG = 0x10

    def __init__(self, key):
        self.crypto = ctypes.CDLL("libcrypto.so.3")
        for name in ("EVP_CIPHER_CTX_new", "EVP_aes_256_gcm"):
            getattr(self.crypto, name).restype = ctypes.c_void_p
        self.key, self.count = key, 0

    def next(self, data):
        crypto, written, tag = self.crypto, ctypes.c_int(), ctypes.create_string_buffer(16)
        context = ctypes.c_void_p(crypto.EVP_CIPHER_CTX_new())
        nonce = struct.pack("<QI", self.count, 0)
        self.count += 1
        crypto.EVP_EncryptInit_ex(context, ctypes.c_void_p(crypto.EVP_aes_256_gcm()), None, self.key, nonce)
        crypto.EVP_EncryptUpdate(context, None, ctypes.byref(written), data, len(data))
        crypto.EVP_EncryptFinal_ex(context, tag, ctypes.byref(written))
        crypto.EVP_CIPHER_CTX_ctrl(context, self.GET_TAG, 16, tag)
        crypto.EVP_CIPHER_CTX_free(context)
        return tag.raw


def mac(key, *parts):
    return hmac.new(key, b"".join(parts), hashlib.sha256).digest()


def secret_of(key, rank, ranks, of_rank, of_rank_0):
    return mac(key or b"lockstep without a key", b"lockstep rendezvous 1", struct.pack("<iI", rank, ranks), of_rank, of_rank_0)


class Frame:
    def __init__(self, kind, origin, number, call, body):
        self.kind, self.origin, self.number, self.call, self.body = kind, origin, number, call, body


class Peer:
    """One connection. What it is told to say need not be what a rank says."""

    def __init__(self, connection, old):
        self.connection, self.old, self.seal = connection, old, None
        connection.settimeout(5)

    @staticmethod
    def connected(port, old, host="127.0.0.1", seconds=5):
        """None where nobody listens within that time."""
        end = time.monotonic() + seconds
        while True:
            try:
                return Peer(socket.create_connection((host, port), timeout=2), old)
            except OSError:
                if time.monotonic() >= end:
                    return None
                time.sleep(0.01)

    # Each returns whether the other side takes it.
    def raw(self, data):
        try:
            self.connection.sendall(data)
            return True
        except OSError:
            return False

    def say(self, kind, origin=0, number=0, body=b"", call=None, announced=None):
        head = HEAD.pack(MAGIC[self.old], KINDS[self.old].index(kind), origin, number, len(body) if announced is None else announced)
        head += (call or a_call(-1))[:CALL_SIZE[self.old]]
        if not self.old:
            head += self.seal.next(head + body) if self.seal else bytes(SEAL)
        return self.raw(head + body)

    def hear(self):
        """The next frame; None at the end of the connection, or after five seconds of silence."""
        call = HEAD.size + CALL_SIZE[self.old]
        head = self._read(call + (0 if self.old else SEAL))
        if head is None:
            return None
        _, kind, origin, number, size = HEAD.unpack(head[:HEAD.size])
        body = self._read(size)
        return body if body is None else Frame(KINDS[self.old][kind], origin, number, head[HEAD.size:call], body)

    def hear_until(self, *kinds):
        while (frame := self.hear()) and frame.kind not in kinds:
            pass
        return frame

    def _read(self, size):
        data = b""
        try:
            while len(data) < size:
                more = self.connection.recv(size - len(data))
                if not more:
                    return None
                data += more
        except OSError:
            return None
        return data

    def close(self):
        self.connection.close()

    def ask_to_join(self, rank, ranks, run, key=b""):
        """The answer of rank 0, a frame of kind welcome or refused, or None."""
        if self.old:
            self.say("hello", rank, ranks, run)
            return self.hear_until("welcome", "refused")
        own = os.urandom(32)
        self.say("hello", rank, ranks, own)
        challenge = self.hear_until("challenge")
        if challenge is None:
            return None
        secret = secret_of(key, rank, ranks, own, challenge.body[:32])
        self.say("proof", rank, 0, mac(secret, b"a rank has the key, and is of run ", run) + run)
        self.seal = Gmac(mac(secret, b"frames of rank"))
        return self.hear_until("welcome", "refused")

    def answer_one_who_joins(self, answer="welcome", body=b"", key=b""):
        """In the place of rank 0. All that the rank says before it is welcome, and whether it went on to that."""
        hello = self.hear_until("hello")
        if hello is None:
            return b"", False
        said = hello.body
        if not self.old:
            own = os.urandom(32)
            secret = secret_of(key, hello.origin, hello.number, hello.body, own)
            self.say("challenge", body=own + mac(secret, b"rank 0 has the key"))
            proof = self.hear_until("proof")
            if proof is None:
                return said, False
            said += proof.body
            self.seal = Gmac(mac(secret, b"frames of rank 0"))
        return said, self.say(answer, body=body)
