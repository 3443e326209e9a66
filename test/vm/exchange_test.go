// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/vm"
)

// witness is the machine's listener, and starts the accomplice, which connects first. It
// prints what else it hears.
const witness = `
import os, socket, subprocess, threading
def hear(c):
    print("heard", c.recv(100), flush=True)
l = socket.create_server(("127.0.0.1", int(os.environ["EXCHANGE_PORT"])))
accomplice = subprocess.Popen(["/srv/exchange/exchange", "outside"], stdin=subprocess.PIPE)
threading.Thread(target=hear, args=(l.accept()[0],)).start()
while True:
    threading.Thread(target=hear, args=(l.accept()[0],)).start()
    print("a connection", flush=True)
`

// testExchange tries findings 1 and 2 on arm64: with the engine trace, a program exchanges
// instructions, descriptors and memory while it makes calls, or leaves them in other ways
// (csrc/tests/exchange).
func testExchange(t *testing.T, m *vm.Machine) {
	kit.Need(t, "aarch64-linux-gnu-gcc")
	dir := kit.Dir(t)
	sources, err := filepath.Glob(filepath.Join(kit.Root(), "csrc", "tests", "exchange", "*.c"))
	kit.Must(t, err)
	kit.OK(t, limit, exec.Command("aarch64-linux-gnu-gcc", append([]string{"-O2", "-static", "-pthread", "-o", filepath.Join(dir, "exchange")}, sources...)...))
	kit.WriteFile(t, filepath.Join(dir, "witness.py"), witness)
	m.Put(t, "/srv/exchange", dir, "exchange", "witness.py")
	env := []string{"env", "EXCHANGE_OUTSIDE=/tmp/exchange.sock", "EXCHANGE_PORT=4711"}
	outside := kit.Start(t, m.Command(strings.Join(env, " ")+" python3 /srv/exchange/witness.py"))
	heard := func() string { out, _ := outside.Output(); return out }
	kit.WaitFor(t, "the accomplice", limit, func() bool { return heard() == "ready\n" })
	args := append([]string{"--engine", "trace", "--"}, env...)
	for _, kinds := range [][]string{{"instructions", "loop"}, {"rseq"}, {"descriptors", "memory", "exec", "shared-exec", "vfork", "signals", "filter"}} {
		r := kit.Run(t, suiteLimit, device(m, append(slices.Concat(args, []string{"/srv/exchange/exchange", "20", "1"}), kinds...)...))
		t.Log(r.Stdout)
		if r.Status != 0 || !strings.Contains(r.Stdout, "calls ") || strings.Contains(r.Stdout, "escaped") || heard() != "ready\n" {
			t.Errorf("%v: the machine heard %q: %v", kinds, heard(), r)
		}
		for how, by := range map[string]string{"made another system call": "instructions rseq", "ran too long": "instructions"} {
			if strings.Contains(by, kinds[0]) && !strings.Contains(r.Stderr, how+" while lklhost executed a system call in it") {
				t.Errorf("no process %s: %s", how, r.Stderr)
			}
		}
	}
}
