# SPDX-License-Identifier: Apache-2.0
"""Run unittest tests one by one and say what became of each.

usage: runner.py REPORT LIMIT MODULE... [-- ID...]

For each test a line "start ID" and then "pass|fail|skip ID" go to the file
REPORT, so that it is known which one was running when the process hangs, which
ends it after LIMIT seconds (exit status 3, after the stacks of all threads), or
when it dies. What stands behind "--" is not run: it was before. With LIMIT 0 nothing is
run, and the tests' names go to REPORT.
"""

import faulthandler
import os
import sys
import threading
import unittest


MAX_TEXT = 3000  # characters reported about one failure


class Report(unittest.TestResult):
    def __init__(self, path, limit):
        super().__init__()
        self.out = open(path, "a", buffering=1)
        self.limit = limit
        self.outcome = None
        self.timer = None

    def line(self, word, test):
        self.out.write(f"{word} {test.id()}\n")

    def hung(self, test):
        print(f"hang: {test.id()}", file=sys.stderr)
        faulthandler.dump_traceback(file=sys.stderr)
        sys.stderr.flush()
        os._exit(3)

    def startTest(self, test):
        super().startTest(test)
        self.outcome = "pass"
        self.line("start", test)
        self.timer = threading.Timer(self.limit, self.hung, [test])
        self.timer.daemon = True
        self.timer.start()

    def stopTest(self, test):
        super().stopTest(test)
        self.timer.cancel()
        self.timer.join()
        self.line(self.outcome, test)

    def bad(self, test, err):
        self.outcome = "fail"
        text = self._exc_info_to_string(err, test)
        print(f"FAIL {test.id()}\n{text[:MAX_TEXT]}", file=sys.stderr)
        if not isinstance(test, unittest.TestCase):
            # setUpClass or setUpModule failed: startTest was not called.
            self.line("start", test)
            self.line("fail", test)

    def addError(self, test, err):
        self.bad(test, err)

    def addFailure(self, test, err):
        self.bad(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.bad(test, err)

    def addUnexpectedSuccess(self, test):
        self.outcome = "fail"
        print(f"FAIL {test.id()}: unexpected success", file=sys.stderr)

    def addSkip(self, test, reason):
        self.outcome = "skip"
        if not hasattr(test, "_testMethodName"):
            self.line("start", test)
            self.line("skip", test)


def flat(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from flat(t)
        else:
            yield t


def main():
    report, limit, rest = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    done = set()
    if "--" in rest:
        at = rest.index("--")
        done = set(rest[at + 1 :])
        rest = rest[:at]
    faulthandler.enable()
    from test import support

    support.use_resources = ["network"]
    # Classes keep their order and their set-up: finished tests are removed from
    # a suite that otherwise stays as it is.
    suite = unittest.TestSuite()
    if not limit:
        with open(report, "w") as out:
            for t in flat(unittest.defaultTestLoader.loadTestsFromNames(rest)):
                out.write(t.id() + "\n")
        return
    for t in flat(unittest.defaultTestLoader.loadTestsFromNames(rest)):
        if t.id() not in done:
            suite.addTest(t)
    result = Report(report, limit)
    suite.run(result)
    result.out.write("end\n")


main()
