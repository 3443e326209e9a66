# SPDX-License-Identifier: GPL-2.0-only
"""Test Anything Protocol, with a time limit."""
import signal
import sys
import traceback

_n = 0
_bad = 0


def ok(good, text):
    global _n, _bad
    _n += 1
    _bad += not good
    print("%sok %d - %s" % ("" if good else "not ", _n, text), flush=True)
    return bool(good)


def skip(text, why):
    global _n
    _n += 1
    print("ok %d - %s # SKIP %s" % (_n, text, why), flush=True)


def same(got, want, text):
    if not ok(got == want, text):
        print("# got  %r\n# want %r" % (got, want), flush=True)


def run(tests, limit=120):
    """run each function as a test with its own time limit; an exception fails the test"""
    def late(*_):
        raise TimeoutError("the limit of %d s" % limit)
    signal.signal(signal.SIGALRM, late)
    for t in tests:
        signal.alarm(limit)
        try:
            t()
        except BaseException as e:          # any error must fail the test
            ok(False, "%s: %s" % (t.__name__, e))
            for line in traceback.format_exc().splitlines():
                print("# " + line)
            if isinstance(e, KeyboardInterrupt):
                break
        signal.alarm(0)
    print("1..%d" % _n)
    sys.exit(_bad != 0)
