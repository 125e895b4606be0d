# expect: rejected:clock_mismatch|rejected:tampering|passed:no_gain
# clock_gettime of the C library is overwritten with machine code (x86-64) that counts one second as 1/1024.
# Fools a harness whose guest took its own references to the clocks before it loaded the program.
import ctypes
import mmap
import struct
import time

import torch

_libc = ctypes.CDLL(None, use_errno=True)
_SYSCALL = 228  # clock_gettime

_origin = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
_seconds, _nanoseconds = divmod(_origin, 1_000_000_000)
# mov eax, 228; syscall; mov rax, [rsi]; sub rax, seconds; imul rax, 1e9; add rax, [rsi+8]; sub rax, nanoseconds;
# sar rax, 10; add rax, nanoseconds; xor edx, edx; mov ecx, 1e9; div rcx; add rax, seconds; mov [rsi], rax;
# mov [rsi+8], rdx; xor eax, eax; ret
_CODE = (
    b"\xb8" + struct.pack("<i", _SYSCALL) + b"\x0f\x05\x48\x8b\x06"
    b"\x48\x2d" + struct.pack("<i", _seconds) + b"\x48\x69\xc0" + struct.pack("<i", 1_000_000_000) + b"\x48\x03\x46\x08"
    b"\x48\x2d" + struct.pack("<i", _nanoseconds) + b"\x48\xc1\xf8\x0a"
    b"\x48\x05" + struct.pack("<i", _nanoseconds) + b"\x31\xd2\xb9" + struct.pack("<i", 1_000_000_000) + b"\x48\xf7\xf1"
    b"\x48\x05" + struct.pack("<i", _seconds) + b"\x48\x89\x06\x48\x89\x56\x08\x31\xc0\xc3"
)


def _overwrite():
    target = ctypes.cast(_libc.clock_gettime, ctypes.c_void_p).value
    page = target & ~(mmap.PAGESIZE - 1)
    if _libc.mprotect(ctypes.c_void_p(page), 2 * mmap.PAGESIZE, 7):
        raise OSError(ctypes.get_errno(), "mprotect")
    ctypes.memmove(target, _CODE, len(_CODE))


_overwrite()


def softmax(x, y, rows, columns):
    torch.softmax(x, 1, out=y)
