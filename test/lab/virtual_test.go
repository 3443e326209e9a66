// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// virtualFile is a lab whose programs wait, use threads and processes, and lose packets.
const virtualFile = `{
  "stack": "vanilla", "seed": 7,
  "wires": {"a": {"delay": "20ms", "loss": "2%"}, "b": {"network": ["10.7.0.0/24", "fd00:7::/64"]}},
  "nodes": {
    "client": {"wires": ["a"]},
    "router": {"wires": ["a", "b"], "router": true},
    "server": {"wires": ["b"], "run": "exec /usr/bin/python3 -u ${dir}/server.py", "server": true}
  },
  "steps": [
    {"on": "client", "run": ["/usr/bin/python3", "${dir}/client.py"], "timeout": "2h", "report": "waited"},
    {"wait": "10m", "timeout": "2h"},
    {"on": "client", "run": "for i in 3 1 2; do (sleep $i; echo $i) & done; wait; ls ${dir} | sort | sha256sum; date"}
  ]
}`

const virtualServer = `import os, socket, threading, time
s = socket.create_server(("", 80))
def serve(c, n):
    got = 0
    while b := c.recv(65536):
        got += len(b)
    c.sendall(b"%d" % got)
    print(n, got, time.monotonic(), os.urandom(4).hex(), flush=True)
    c.close()
n = 0
while True:
    c, a = s.accept()
    n += 1
    threading.Thread(target=serve, args=(c, n)).start()
`

const virtualClient = `import random, socket, subprocess, threading, time
start = time.monotonic()
def talk(n):
    time.sleep(n * 100)
    with socket.create_connection(("server", 80)) as c:
        c.sendall(b"x" * (n + 1) * 100000)
        c.shutdown(socket.SHUT_WR)
        assert c.recv(100) == b"%d" % ((n + 1) * 100000)
threads = [threading.Thread(target=talk, args=(n,)) for n in range(5)]
[t.start() for t in threads]
[t.join() for t in threads]
subprocess.run(["sleep", "3000"], check=True)
print(random.random(), time.time())
print("waited=%.9f" % (time.monotonic() - start))
`

// virtualLab writes the files of a lab, and returns a function that runs it in virtual time.
func virtualLab(t *testing.T, files map[string]string) (*user, func(args ...string) kit.Result) {
	u := newUser(t)
	for name, text := range files {
		kit.Must(t, os.WriteFile(filepath.Join(u.folder, name), []byte(text), 0o644))
	}
	return u, func(args ...string) kit.Result {
		return kit.Run(t, 2*time.Minute, u.lab(append([]string{"run", "--time", "virtual"}, args...)...))
	}
}

// digest returns a digest of all files in the folder of the results.
func digest(t *testing.T, folder string) string {
	t.Helper()
	h := sha256.New()
	entries, err := os.ReadDir(folder)
	kit.Must(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(folder, e.Name()))
		kit.Must(t, err)
		h.Write([]byte(e.Name()))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestVirtualTimeRepeats checks that the same seed gives the same packets, outputs and
// results, also on a busy machine, and that another seed does not.
func TestVirtualTimeRepeats(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	u, run := virtualLab(t, map[string]string{"v.json": virtualFile, "server.py": virtualServer, "client.py": virtualClient})
	results := filepath.Join(u.folder, "v.results")
	digests := map[string]int{}
	for n := range 20 {
		if n == 10 {
			for range 2 {
				busy := exec.Command("sh", "-c", "while :; do :; done")
				kit.Must(t, busy.Start())
				defer func() { _ = busy.Process.Kill(); _ = busy.Wait() }()
			}
		}
		if r := run("v.json"); r.Status != 0 {
			t.Fatalf("run %d: %v", n, r)
		}
		digests[digest(t, results)]++
	}
	if len(digests) != 1 {
		t.Errorf("20 runs with the same seed gave %d results: %v", len(digests), digests)
	}
	var report struct {
		Results map[string]string `json:"results"`
		Steps   []struct {
			Seconds float64 `json:"seconds"`
		} `json:"steps"`
	}
	text, err := os.ReadFile(filepath.Join(results, "results.json"))
	kit.Must(t, err)
	kit.Must(t, json.Unmarshal(text, &report))
	if w := report.Results["waited"]; !strings.HasPrefix(w, "34") {
		t.Errorf("the client waited %q s, expected 400 and 3000 s", w)
	}
	if len(report.Steps) != 3 || report.Steps[1].Seconds != 600 {
		t.Errorf("steps: %+v", report.Steps)
	}
	if st, err := os.Stat(filepath.Join(results, "wires.pcapng")); err != nil || st.Size() < 1_500_000 {
		t.Errorf("wires.pcapng lacks the packets of 1.5 MB: %v, %v", st, err)
	}
	if r := run("--seed", "8", "v.json"); r.Status != 0 {
		t.Fatalf("seed 8: %v", r)
	}
	if d := digest(t, results); digests[d] != 0 {
		t.Error("another seed gave the same results")
	}
}

// TestVirtualTimeHasNoNoise checks times to the millisecond: a connection takes ARP and one
// round trip, and an hour takes less than a minute.
func TestVirtualTimeHasNoNoise(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	_, run := virtualLab(t, map[string]string{"v.json": `{
  "stack": "mptcp", "wires": {"a": {"delay": "100ms"}},
  "nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"], "run": ["/usr/bin/python3", "${dir}/server.py"], "server": true}},
  "steps": [{"on": "client", "run": ["/usr/bin/python3", "${dir}/client.py"], "timeout": "2h", "report": ["cold", "warm", "slept"]}]
}`, "server.py": virtualServer, "client.py": `import socket, time
def connect():
    start = time.monotonic()
    socket.create_connection(("10.0.1.2", 80)).close()
    return time.monotonic() - start
print("cold=%.3f" % connect())
print("warm=%.3f" % connect())
start = time.monotonic()
time.sleep(3600)
print("slept=%.3f" % (time.monotonic() - start))
`})
	began := time.Now()
	r := run("v.json")
	if took := time.Since(began); took > time.Minute {
		t.Errorf("an hour took %v", took)
	}
	for _, want := range []string{"cold=0.400\n", "warm=0.200\n", "slept=3600.000\n"} {
		if r.Status != 0 || !strings.Contains(r.Stdout, want) {
			t.Errorf("no line %q: %v", want, r)
		}
	}
}

// TestVirtualTimeRefuses checks that what depends on the host's time ends the lab with a
// line that names it.
func TestVirtualTimeRefuses(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	u, run := virtualLab(t, nil)
	lab := func(wire, program string) string {
		word, err := json.Marshal(program)
		kit.Must(t, err)
		return `{"stack": "vanilla", "wires": {"a": {` + wire + `}}, "nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"]}},
			"steps": [{"on": "client", "run": ["/usr/bin/python3", "-c", ` + string(word) + `]}]}`
	}
	kit.Must(t, os.WriteFile(filepath.Join(u.folder, "v.json"), []byte(lab(``, `pass`)), 0o644))
	if r := run("v.json"); r.Status != 0 {
		t.Fatal(r)
	}
	before := kit.Take(t)
	for _, c := range []struct {
		file   string
		status int
		want   string
	}{
		{lab(``, `open("/proc/uptime")`), 1, "node client: /usr/bin/python3: the file /proc/uptime is not supported in virtual time"},
		{lab(``, `import ctypes; ctypes.CDLL(None).inotify_init1(0)`), 1, "node client: /usr/bin/python3: the system call inotify_init1 is not supported in virtual time"},
		{lab(``, `import socket, array; a, b = socket.socketpair(); socket.send_fds(a, [b"x"], [1])`), 1, "passes descriptors"},
		{lab(``, "while True: pass"), 1, "node client: /usr/bin/python3 runs for 30 s without a system call"},
		{lab(``, `import time; time.sleep(61)`), 1, "not done after 1m0s"},
		{lab(`"jitter": "1ms", "delay": "5ms"`, `pass`), 2, "wires.a.jitter: is not supported in virtual time"},
	} {
		kit.Must(t, os.WriteFile(filepath.Join(u.folder, "v.json"), []byte(c.file), 0o644))
		r := run("v.json")
		if r.Status != c.status || !strings.Contains(r.Stderr, c.want) || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("expected status %d and one line with %q: %v", c.status, c.want, r)
		}
	}
	before.Settles(10 * time.Second)
}
