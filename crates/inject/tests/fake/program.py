"""A Python program that "initialises CUDA" and makes two calls in a capture, one of them from another thread."""

import ctypes
import os
import threading

cupti = ctypes.CDLL(os.environ["PHONOGRAPH_CUPTI"], ctypes.RTLD_GLOBAL)
library = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"])
assert library.InitializeInjection() == 1


def call(number, *words):
    cupti.fake_call(number, (ctypes.c_uint64 * len(words))(*words), 0, None)


class Größe:
    def step(self):
        call(442, 1, 0, 0, 0, 0, 0xAA1000)


call(540, 0xAA1000, 0)
Größe().step()
worker = threading.Thread(target=lambda: call(442, 1, 0, 0, 0, 0, 0xAA1000))
worker.start()
worker.join()
