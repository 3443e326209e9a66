// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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

// wallSeconds matches the lines of results.json that do not repeat, or not in other folders.
var wallSeconds = regexp.MustCompile(`"(wall_seconds|folder)": .*`)

// digest returns a digest of all files in the folder of the results, without its name and
// the real time.
func digest(t *testing.T, folder string) string {
	t.Helper()
	h := sha256.New()
	entries, err := os.ReadDir(folder)
	kit.Must(t, err)
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(folder, e.Name()))
		kit.Must(t, err)
		h.Write([]byte(e.Name()))
		h.Write(wallSeconds.ReplaceAll(bytes.ReplaceAll(b, []byte(filepath.Base(folder)+"/"), nil), nil))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// repeats runs v.json several times, half of them on a busy machine, and checks that all
// runs with the same seed are equal and that another seed is not. It leaves the results of
// the file's seed.
func repeats(t *testing.T, u *user, run func(args ...string) kit.Result, runs int) {
	t.Helper()
	results := filepath.Join(u.folder, "v.results")
	if r := run("--seed", "8", "v.json"); r.Status != 0 {
		t.Fatalf("seed 8: %v", r)
	}
	other := digest(t, results)
	digests := map[string]int{}
	for n := range runs {
		if n == runs/2 {
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
		t.Errorf("%d runs with the same seed gave %d results: %v", runs, len(digests), digests)
	}
	if digests[other] != 0 {
		t.Error("another seed gave the same results")
	}
}

// TestVirtualTimeRepeats checks that the same seed gives the same packets, outputs and
// results, also on a busy machine, and that another seed does not.
func TestVirtualTimeRepeats(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	u, run := virtualLab(t, map[string]string{"v.json": virtualFile, "server.py": virtualServer, "client.py": virtualClient})
	results := filepath.Join(u.folder, "v.results")
	repeats(t, u, run, 20)
	var report struct {
		Results map[string]string `json:"results"`
		Virtual float64           `json:"virtual_seconds"`
		Wall    float64           `json:"wall_seconds"`
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
	if report.Virtual < 4000 || report.Virtual > 4100 || report.Wall <= 0 || report.Wall > 120 {
		t.Errorf("the lab took %v s of virtual time and %v s", report.Virtual, report.Wall)
	}
	if st, err := os.Stat(filepath.Join(results, "wires.pcapng")); err != nil || st.Size() < 1_500_000 {
		t.Errorf("wires.pcapng lacks the packets of 1.5 MB: %v, %v", st, err)
	}
}

// virtualSignals prints the times of signals, and of calls that they end.
const virtualSignals = `import os, select, signal, socket, subprocess, threading, time
start = time.monotonic()
def log(*a):
    print(*a, "at %.1f" % (time.monotonic() - start), flush=True)
signal.signal(signal.SIGALRM, lambda *a: log("alarm"))
signal.signal(signal.SIGUSR1, lambda *a: log("usr1"))
signal.setitimer(signal.ITIMER_REAL, 0.5, 1)
time.sleep(3)
log("slept", signal.getitimer(signal.ITIMER_REAL))
signal.setitimer(signal.ITIMER_REAL, 0)
signal.alarm(2)
signal.pause()
signal.alarm(1)
log(select.select([os.pipe()[0]], [], [], 5))
child = os.fork()
if not child:
    time.sleep(1)
    os.kill(os.getppid(), signal.SIGUSR1)
    time.sleep(1000)
time.sleep(2)
os.kill(child, signal.SIGTERM)
log("child", os.waitpid(child, 0)[1])
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
signal.alarm(1)
log(signal.sigtimedwait([signal.SIGUSR2], 3))
os.kill(os.getpid(), signal.SIGUSR2)
log(signal.sigtimedwait([signal.SIGUSR2], 3).si_pid == os.getpid())
thread = threading.Thread(target=lambda: (time.sleep(1), log("thread")))
thread.start()
signal.pthread_kill(thread.ident, signal.SIGUSR1)
thread.join()
sleep = subprocess.Popen(["sleep", "1000"])
try:
    sleep.wait(5)
except subprocess.TimeoutExpired:
    sleep.kill()
log("sleep", sleep.wait())
signal.siginterrupt(signal.SIGALRM, False)
a, b = socket.socketpair()
signal.alarm(1)
threading.Thread(target=lambda: (time.sleep(2), b.send(b"x"))).start()
log("read", os.read(a.fileno(), 1))
mine, theirs = socket.socketpair()
socket.send_fds(mine, [b"x"], [a.fileno()])
a.close()
passed = socket.recv_fds(theirs, 1, 1)[1][0]
os.set_blocking(passed, False)
b.send(b"passed")
log(os.read(passed, 100), socket.socket(fileno=passed).type.name)
`

const virtualSignalsLog = `alarm at 0.5
alarm at 1.5
alarm at 2.5
slept (0.5, 1.0) at 3.0
alarm at 5.0
alarm at 6.0
([], [], []) at 10.0
usr1 at 11.0
child 15 at 12.0
alarm at 13.0
None at 15.0
True at 15.0
thread at 16.0
usr1 at 16.0
sleep -9 at 21.0
alarm at 23.0
read b'x' at 23.0
b'passed' SOCK_STREAM at 23.0
`

// TestVirtualTimeSignals checks signals to other processes and threads, and interval timers.
func TestVirtualTimeSignals(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", "ping", "timeout")
	u, run := virtualLab(t, map[string]string{"signals.py": virtualSignals, "v.json": `{
  "stack": "vanilla", "seed": 7, "wires": {"a": {"delay": "10ms", "loss": "2%"}},
  "nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"]}},
  "steps": [
    {"on": "client", "run": ["/usr/bin/python3", "${dir}/signals.py"]},
    {"on": "client", "run": "timeout 5 sleep 100; echo $?; timeout -k 2 3 sh -c 'trap : TERM; sleep 100; sleep 100' 2>&1; echo $?; date"},
    {"on": "client", "run": "ping -c 20 -i 0.5 server"}
  ]
}`})
	repeats(t, u, run, 20)
	for n, want := range []string{virtualSignalsLog, "124\n", " packets transmitted"} {
		b, err := os.ReadFile(filepath.Join(u.folder, "v.results", fmt.Sprintf("step-%d.log", n+1)))
		kit.Must(t, err)
		if !strings.Contains(string(b), want) || n == 1 && !strings.HasSuffix(string(b), "137\nThu Jan  1 00:00:33 UTC 2026\n") {
			t.Errorf("step %d: %s", n+1, b)
		}
	}
}

// virtualRate prints the rate at which the server has received 5 MB, in Mbit/s.
const virtualRate = `import socket, time
start = time.monotonic()
with socket.create_connection(("server", 80)) as c:
    c.sendall(b"x" * 5000000)
    c.shutdown(socket.SHUT_WR)
    assert c.recv(100) == b"5000000"
print("rate=%.2f" % (40 / (time.monotonic() - start)))
`

// virtualWires is a lab whose steps change a wire.
const virtualWires = `{
  "stack": "vanilla", "seed": 7, "wires": {"a": {"delay": "10ms", "rate": "20mbit"}},
  "nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"], "run": ["/usr/bin/python3", "${dir}/server.py"], "server": true}},
  "steps": [
    {"on": "client", "run": ["/usr/bin/python3", "${dir}/rate.py"]},
    {"wire": "a", "set": "rate 5mbit delay 20ms"},
    {"on": "client", "run": ["/usr/bin/python3", "${dir}/rate.py"]},
    {"wire": "a", "set": "down"},
    {"on": "client", "run": "ping -c 2 -W 1 server", "expect": 1},
    {"wire": "a", "set": "up"},
    {"on": "client", "run": "ping -c 2 server"},
    {"wire": "a", "set": "clear"},
    {"wire": "a", "set": "delay 20ms jitter 10ms reorder 10% duplicate 10% loss 5%"},
    {"on": "client", "run": "ping -c 200 -i 0.01 server"}
  ]
}`

// TestVirtualTimeWires checks rate, jitter, reordering and duplicates of a wire, and steps
// that change it.
func TestVirtualTimeWires(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", "ping")
	u, run := virtualLab(t, map[string]string{"server.py": virtualServer, "rate.py": virtualRate, "v.json": virtualWires})
	repeats(t, u, run, 6)
	for step, want := range map[int]string{
		1:  `rate=1[789]\.`,
		3:  `rate=4\.[5-8]`,
		7:  `icmp_seq=2 ttl=64 time=40\.3 ms`,
		10: `\(DUP!\)(.|\n)* [1-9][0-9]?(\.[0-9]+)?% packet loss`,
	} {
		b, err := os.ReadFile(filepath.Join(u.folder, "v.results", fmt.Sprintf("step-%d.log", step)))
		kit.Must(t, err)
		if !regexp.MustCompile(want).Match(b) {
			t.Errorf("step %d: no %q: %s", step, want, b)
		}
	}
}

// virtualClocks reads clocks with and without calls, in threads and processes.
const virtualClocks = `import ctypes, os, threading, time
libc = ctypes.CDLL(None)
class Pair(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("part", ctypes.c_long)]
def read(clock):
    p = Pair()
    assert not libc.syscall(228, clock, ctypes.byref(p))
    return p.s * 10**9 + p.part
def check(where):
    p = Pair()
    libc.gettimeofday(ctypes.byref(p), None)
    assert p.s * 10**6 + p.part == read(0) // 1000, where
    for clock in 0, 1, 2, 3, 4, 5, 6, 7, 11:
        assert time.clock_gettime_ns(clock) == read(clock), (where, clock)
check("start")
time.sleep(1.5)
check("after a sleep")
start = time.monotonic()
for _ in range(100000):
    time.monotonic()
print("%.1f ms" % (1000 * (time.monotonic() - start)))
for name in "child", "vfork":
    pid = os.fork() if name == "child" else os.posix_spawn("/bin/true", ["true"], {})
    if not pid:
        check("in a child")
        time.sleep(0.5)
        check("in a child after a sleep")
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    check("after a " + name)
counts = []
def poll(seconds):
    n, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        n += 1
    counts.append(n)
threads = [threading.Thread(target=poll, args=(s,)) for s in (0.01, 0.02, 0.03)]
[t.start() for t in threads]
[t.join() for t in threads]
check("after threads")
print(counts)
`

// TestVirtualTimeClocks checks that clocks read without calls have the time of those read
// with calls, that time passes for a program that only reads them, and that it repeats.
func TestVirtualTimeClocks(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	u, run := virtualLab(t, map[string]string{"clocks.py": virtualClocks, "v.json": `{
  "stack": "vanilla", "seed": 7, "wires": {"a": {"delay": "20ms", "loss": "2%"}},
  "nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"]}},
  "steps": [{"on": "client", "run": ["/usr/bin/python3", "${dir}/clocks.py"]}, {"on": "client", "run": "ping -c 2 server"}]
}`})
	repeats(t, u, run, 10)
	b, err := os.ReadFile(filepath.Join(u.folder, "v.results", "step-1.log"))
	kit.Must(t, err)
	// 64 microseconds for each 4096 reads; with a call for each read, it would be 100 ms
	if !regexp.MustCompile(`^1\.[5-6] ms\n\[[0-9]+, [0-9]+, [0-9]+\]\n$`).Match(b) {
		t.Errorf("%s", b)
	}
}

// TestVirtualTimeManyNodes checks a lab with more nodes than one in real time can have.
func TestVirtualTimeManyNodes(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", "curl")
	var nodes, steps strings.Builder
	const clients = 66
	for n := range clients {
		fmt.Fprintf(&nodes, `, "c%d": {"wires": ["a"]}`, n)
		fmt.Fprintf(&steps, `, {"on": "c%d", "run": "curl -sSf http://server/", "background": true}`, n)
	}
	u, run := virtualLab(t, map[string]string{"server.py": `import http.server
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 256
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.client_address[0].encode())
Server(("", 80), Handler).serve_forever()
`, "v.json": `{
  "stack": "vanilla", "wires": {"a": {"delay": "5ms"}},
  "nodes": {"server": {"wires": ["a"], "run": ["/usr/bin/python3", "${dir}/server.py"], "server": true}` + nodes.String() + `},
  "steps": [{"wait": "1ms"}` + steps.String() + `]
}`})
	if r := run("v.json"); r.Status != 0 {
		t.Fatal(r)
	}
	answers := map[string]bool{}
	for n := range clients {
		b, err := os.ReadFile(filepath.Join(u.folder, "v.results", fmt.Sprintf("step-%d.log", n+2)))
		kit.Must(t, err)
		answers[string(b)] = strings.HasPrefix(string(b), "10.0.1.")
	}
	if len(answers) != clients {
		t.Errorf("%d different answers: %v", len(answers), answers)
	}
	if r := kit.Run(t, kit.Limit, u.lab("run", "v.json")); r.Status != 2 || !strings.Contains(r.Stderr, "nodes: 67 nodes; the limit in real time is 64") {
		t.Errorf("in real time: %v", r)
	}
}

// TestVirtualTimeSeed checks that a seed loses and duplicates the same packets in virtual
// and in real time.
func TestVirtualTimeSeed(t *testing.T) {
	kit.Need(t, "ping")
	u, run := virtualLab(t, map[string]string{"v.json": `{
  "stack": "vanilla", "seed": 3, "wires": {"a": {"delay": "20ms", "loss": "20%", "duplicate": "10%"}},
  "nodes": {
    "client": {"wires": ["a"], "sysctl": {"net.ipv6.conf.all.disable_ipv6": "1"}},
    "server": {"wires": ["a"], "sysctl": {"net.ipv6.conf.all.disable_ipv6": "1"}}
  },
  "steps": [{"on": "client", "run": "ping -c 50 -i 0.1 server"}]
}`})
	answers := func(r kit.Result) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(u.folder, "v.results", "step-1.log"))
		kit.Must(t, err)
		lines := regexp.MustCompile(`icmp_seq=[0-9]+|DUP`).FindAllString(string(b), -1)
		if len(lines) < 20 {
			t.Fatalf("%v: %s", r, b)
		}
		return strings.Join(lines, " ")
	}
	virtual := answers(run("v.json"))
	if real := answers(kit.Run(t, kit.Limit, u.lab("run", "v.json"))); real != virtual {
		t.Errorf("in real time:\n%s\nin virtual time:\n%s", real, virtual)
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
		{lab(``, `open("/proc/loadavg")`), 1, "node client: /usr/bin/python3: the file /proc/loadavg is not supported in virtual time"},
		{lab(``, `import ctypes; ctypes.CDLL(None).inotify_init1(0)`), 1, "node client: /usr/bin/python3: the system call inotify_init1 is not supported in virtual time"},
		{lab(``, `import os, signal; os.kill(os.getpid(), signal.SIGSTOP)`), 1, "node client: /usr/bin/python3: stops processes by the signal STOP, which is not supported in virtual time"},
		{lab(``, `import signal; signal.setitimer(signal.ITIMER_PROF, 1)`), 1, "node client: /usr/bin/python3: the system call setitimer is not supported in virtual time"},
		{lab(``, `import socket; a, b = socket.socketpair(); socket.send_fds(a, [b"x"], [1])`), 1, "passes a descriptor of a file"},
		{lab(``, "while True: pass"), 1, "node client: /usr/bin/python3 runs for 30 s without a system call"},
		{lab(``, `import time; time.sleep(61)`), 1, "not done after 1m0s"},
		{strings.Replace(lab(``, `pass`), `"steps": [`, `"steps": [{"wire": "a", "set": "up delay 5ms"}, `, 1), 1, "must be a step of its own"},
	} {
		kit.Must(t, os.WriteFile(filepath.Join(u.folder, "v.json"), []byte(c.file), 0o644))
		r := run("v.json")
		if r.Status != c.status || !strings.Contains(r.Stderr, c.want) || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("expected status %d and one line with %q: %v", c.status, c.want, r)
		}
	}
	before.Settles(10 * time.Second)
	kit.Must(t, os.WriteFile(filepath.Join(u.folder, "v.json"), []byte(lab(``, `import time; print("begun", flush=True); time.sleep(50); print("late")`)), 0o644))
	if r := run("--until", "40s", "-o", "json", "v.json"); r.Status != 0 || !strings.Contains(r.Stdout, `"steps": []`) || !strings.Contains(r.Stdout, `"virtual_seconds": 40,`) {
		t.Errorf("--until: %v", r)
	}
	if b, err := os.ReadFile(filepath.Join(u.folder, "v.results", "step-1.log")); string(b) != "begun\n" {
		t.Errorf("--until: the step printed %q, %v", b, err)
	}
	if r := run("--until", "0s", "v.json"); r.Status != 2 || !strings.Contains(r.Stderr, "--until 0s; expected a time after the start") {
		t.Errorf("--until 0s: %v", r)
	}
	if r := kit.Run(t, kit.Limit, u.lab("run", "--until", "1s", "v.json")); r.Status != 2 || !strings.Contains(r.Stderr, "--until: requires --time virtual") {
		t.Errorf("--until in real time: %v", r)
	}
}

// TestVirtualTimePrograms checks servers and runtimes: nginx with two workers and a reload,
// redis with a background save, Node and Java.
func TestVirtualTimePrograms(t *testing.T) {
	kit.Need(t, "nginx", "curl", "redis-server", "redis-cli", "node", "java", "javac")
	u, run := virtualLab(t, map[string]string{
		"nginx.conf": `daemon off; worker_processes 2; pid nginx.pid; error_log stderr info;
events {}
http {
  access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
  server { listen 80; location / { return 200 "hello\n"; } }
}
`,
		"server.js": `const child = require("child_process").spawn("sleep", ["1000"]);
child.on("exit", (code, signal) => console.log(code, signal, Date.now()));
setTimeout(() => child.kill(), 5000);
require("net").createServer({allowHalfOpen: true}, c => {
  let n = 0;
  c.on("data", d => n += d.length);
  c.on("end", () => setTimeout(() => c.end("got " + n), 500));
}).listen(80);
`,
		"Waiter.java": `import java.net.*;
import java.util.concurrent.*;
public class Waiter {
  public static void main(String[] args) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(4);
    for (int i = 0; i < 4; i++) {
      final int n = i;
      pool.submit(() -> {
        try (Socket s = new Socket("js", 80)) {
          Thread.sleep(1000 * n);
          s.getOutputStream().write(new byte[n]);
          s.shutdownOutput();
          System.out.println(new String(s.getInputStream().readAllBytes()) + " " + System.nanoTime());
        }
        return n;
      });
    }
    pool.shutdown();
    System.out.println(pool.awaitTermination(1, TimeUnit.HOURS));
    System.gc();
    Process p = new ProcessBuilder("sleep", "1000").start();
    System.out.println(p.waitFor(2, TimeUnit.SECONDS));
    p.destroy();
    System.out.println(p.waitFor());
  }
}
`,
		"v.json": `{
  "stack": "vanilla", "seed": 7, "wires": {"a": {"delay": "10ms", "loss": "2%"}},
  "nodes": {
    "client": {"wires": ["a"]},
    "web": {"wires": ["a"], "run": "exec nginx -e stderr -p ${dir}/ -c nginx.conf", "server": true},
    "db": {"wires": ["a"], "run": "exec redis-server --protected-mode no --save '' --dir ${dir}", "server": true},
    "js": {"wires": ["a"], "run": "exec node ${dir}/server.js", "server": true}
  },
  "steps": [
    {"on": "client", "run": "java -XX:TieredStopAtLevel=1 -cp ${dir} Waiter", "timeout": "1h"},
    {"on": "client", "run": "for i in 1 2 3; do curl -sS http://web/; done"},
    {"on": "web", "run": "kill -HUP $(cat ${dir}/nginx.pid)"},
    {"on": "client", "run": "curl -sSf http://web/; redis-cli -h db set a 1; redis-cli -h db bgsave; sleep 5; redis-cli -h db shutdown"},
    {"on": "web", "run": "kill -QUIT $(cat ${dir}/nginx.pid); sleep 1"},
    {"on": "client", "run": "curl -sS http://web/", "expect": 7}
  ]
}`,
	})
	kit.Host.Run(t, "javac", "-d", u.folder, filepath.Join(u.folder, "Waiter.java"))
	repeats(t, u, run, 6)
	for name, want := range map[string]string{
		"step-1.log": "true\nfalse\n143\n",
		"web.log":    "reconfiguring",
		"db.log":     "Background saving terminated with success",
		"js.log":     "null SIGTERM 17672256",
	} {
		b, err := os.ReadFile(filepath.Join(u.folder, "v.results", name))
		kit.Must(t, err)
		if !strings.Contains(string(b), want) {
			t.Errorf("%s: no %q: %s", name, want, b)
		}
	}
}

// virtualPaths is a lab with two paths, one of which is cut during a transfer and comes
// back.
const virtualPaths = `{
  "stack": "mptcp", "seed": 7,
  "wires": {"a": {"delay": "10ms", "rate": "10mbit"}, "b": {"delay": "30ms", "rate": "10mbit", "loss": "0.1%"}},
  "nodes": {
    "client": {"wires": ["a", "b"]},
    "server": {"wires": ["a", "b"], "run": ["/usr/bin/python3", "-u", "${dir}/server.py"], "server": true}
  },
  "steps": [
    {"on": "client", "run": ["/usr/bin/python3", "${dir}/client.py"], "background": true, "report": ["seconds", "sent"]},
    {"wait": "3s"},
    {"wire": "a", "set": "down"},
    {"wait": "3s"},
    {"wire": "a", "set": "up"}
  ]
}`

// TestVirtualTimePaths checks that MPTCP uses two paths, survives the cut of one, uses it
// again when it is back, and that all of this repeats.
func TestVirtualTimePaths(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	u, run := virtualLab(t, map[string]string{"v.json": virtualPaths,
		"server.py": `import hashlib, socket
s = socket.create_server(("", 80))
while True:
    c, a = s.accept()
    h = hashlib.sha256()
    while b := c.recv(65536):
        h.update(b)
    c.sendall(h.hexdigest().encode())
    c.close()
`, "client.py": `import hashlib, random, socket, time
data = random.Random(1).randbytes(15000000)
start = time.monotonic()
with socket.create_connection(("server", 80)) as c:
    c.sendall(data)
    c.shutdown(socket.SHUT_WR)
    assert c.recv(100).decode() == hashlib.sha256(data).hexdigest()
print("seconds=%.3f" % (time.monotonic() - start))
print("sent=%d" % len(data))
`})
	repeats(t, u, run, 20)
	var report struct {
		Results struct {
			Seconds float64 `json:"seconds,string"`
		} `json:"results"`
	}
	text, err := os.ReadFile(filepath.Join(u.folder, "v.results", "results.json"))
	kit.Must(t, err)
	kit.Must(t, json.Unmarshal(text, &report))
	// 120 Mbit: 12 s over one path, 6 s over two, 7.5 s with the cut. The seeds 1 to 20 need
	// 8.4 to 10.3 s.
	if s := report.Results.Seconds; s < 7 || s > 11 {
		t.Errorf("the transfer took %v s", s)
	}
}

// virtualFault is a server with a fault that needs one lost packet: it fails at the end of
// a transfer if the begin was lost 10 ms before. The client repeats what is lost otherwise,
// also during an outage.
var virtualFault = map[string]string{
	"server.py": `import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 80))
begun = {}
while True:
    data, peer = s.recvfrom(100)
    word, n = data.split()
    if word == b"begin":
        begun[n] = True
    else:
        begun[n]  # the fault
        s.sendto(b"done " + n, peer)
`, "client.py": `import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("server", 80))
s.settimeout(1)
for n in range(20):
    for tries in range(1000):
        try:
            s.send(b"begin %d" % n)
            time.sleep(0.01)
            s.send(b"end %d" % n)
            while s.recv(100) != b"done %d" % n:
                pass
            break
        except TimeoutError:
            pass
        except ConnectionRefusedError:
            sys.exit("the server has ended at transfer %d" % n)
    time.sleep(30)
`,
	"fault.json": `{
  "stack": "vanilla", "vars": {"loss": "1%"},
  "wires": {"a": {"delay": "10ms", "loss": "${loss}"}},
  "nodes": {
    "client": {"wires": ["a"]},
    "server": {"wires": ["a"], "run": ["/usr/bin/python3", "-u", "${dir}/server.py"], "server": true}
  },
  "steps": [
    {"on": "client", "run": ["/usr/bin/python3", "${dir}/client.py"], "background": true, "timeout": "1h"},
    {"wait": "2m", "timeout": "1h"},
    {"wire": "a", "set": "down"},
    {"wait": "10m", "timeout": "1h"},
    {"wire": "a", "set": "up"}
  ]
}`,
}

// TestVirtualTimeSeeds checks that matrix finds the seeds with which a program fails, and
// that each of them fails alone in the same way.
func TestVirtualTimeSeeds(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	u, run := virtualLab(t, virtualFault)
	before := kit.Take(t)
	r := u.matrix("--time", "virtual", "--seeds", "101..140", "-o", "json", "-q", "fault.json")
	var report struct {
		Cells []struct {
			Runs []struct {
				OK            bool
				Seed          uint64
				Error, Folder string
			}
		}
	}
	kit.Must(t, json.Unmarshal([]byte(r.Stdout), &report))
	if r.Status != 1 || len(report.Cells) != 1 || len(report.Cells[0].Runs) != 40 {
		t.Fatal(r)
	}
	failed := 0
	alone := map[bool]bool{}
	for n, m := range report.Cells[0].Runs {
		if m.Seed != uint64(101+n) || m.OK != (m.Folder == "") {
			t.Errorf("run %d: %+v", n, m)
		}
		if !m.OK {
			failed++
			if !strings.Contains(m.Error, "the server has ended at transfer") {
				t.Errorf("seed %d: %s", m.Seed, m.Error)
			}
		}
		if alone[m.OK] { // one of each is enough
			continue
		}
		alone[m.OK] = true
		again := run("--seed", fmt.Sprint(m.Seed), "fault.json")
		if again.Status == 0 != m.OK {
			t.Errorf("seed %d: ok %v in the matrix, alone: %v", m.Seed, m.OK, again)
		}
		for _, log := range []string{"server.log", "step-1.log"} {
			a, err := os.ReadFile(filepath.Join(u.folder, m.Folder, log))
			b, err2 := os.ReadFile(filepath.Join(u.folder, "fault.results", log))
			if !m.OK && (err != nil || err2 != nil || !bytes.Equal(a, b)) {
				t.Errorf("seed %d: %s differs from that in the matrix: %v, %v: %s, alone: %s", m.Seed, log, err, err2, a, b)
			}
		}
	}
	// Without the fault, no seed fails; each transfer has one packet that must not be lost.
	if failed == 0 || failed > 20 {
		t.Errorf("%d of 40 seeds fail", failed)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--seeds", "1..2", "fault.json"}, "--seeds: requires --time virtual"},
		{[]string{"--time", "virtual", "fault.json"}, "--time virtual: requires --seeds"},
		{[]string{"--time", "virtual", "--seeds", "2..1", "fault.json"}, `--seeds "2..1"; expected FIRST..LAST`},
		{[]string{"--time", "virtual", "--seeds", "1..2", "-n", "2", "fault.json"}, "-n: cannot be used with --seeds"},
		{[]string{"--time", "soon", "fault.json"}, `--time "soon"; expected real or virtual`},
	} {
		if r := u.matrix(c.args...); r.Status != 2 || !strings.Contains(r.Stderr, c.want) || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("expected status 2 and one line with %q: %v", c.want, r)
		}
	}
	// Counters of nodes are results, too.
	if r := u.matrix("--time", "virtual", "--seeds", "1..2", "--var", "size=500000", "-o", "json", "goodput"); r.Status != 0 ||
		!regexp.MustCompile(`"retransmitted": "[1-9]`).MatchString(r.Stdout) {
		t.Errorf("no counter of a node: %v", r)
	}
	for _, name := range []string{"fault.matrix", "fault.results", "goodput.matrix"} {
		kit.Must(t, os.RemoveAll(filepath.Join(u.folder, name)))
	}
	before.Settles(10 * time.Second)
}

// TestVirtualTimeTransfers checks transfers by a static C program, by coroutines, by static Go
// over QUIC, and by iperf3 over TCP and UDP.
func TestVirtualTimeTransfers(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", "gcc", "iperf3")
	u, run := virtualLab(t, map[string]string{"fetch.c": `#include <arpa/inet.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(81), .sin_addr.s_addr = inet_addr("10.0.1.2") };
	int s = socket(AF_INET, SOCK_STREAM, 0);
	struct timespec ts;
	char b[4096];
	long sum = 0, n;

	if (connect(s, (void *)&a, sizeof(a)))
		return 1;
	while ((n = read(s, b, sizeof(b))) > 0)
		sum += n;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	printf("%ld bytes, %ld.%09ld\n", sum, (long)ts.tv_sec, ts.tv_nsec);
	return sum != 1000000;
}
`, "server.py": `import asyncio, os
async def serve(r, w):
    for n in range(10):
        w.write(b"x" * 100000)
        await w.drain()
        await asyncio.sleep(0.1)
    w.close()
async def main():
    async with await asyncio.start_server(serve, "", 81) as s:
        p = await asyncio.create_subprocess_exec("sleep", "7")
        print(await p.wait(), os.urandom(4).hex(), flush=True)
        await s.serve_forever()
asyncio.run(main())
`, "v.json": `{
  "stack": "vanilla", "seed": 7, "wires": {"a": {"delay": "10ms", "rate": "100mbit", "loss": "0.5%"}},
  "nodes": {
    "client": {"wires": ["a"]},
    "server": {"wires": ["a"], "run": "(cd ${dir}; exec ` + kit.Program("http3") + ` serve 10.0.1.2 443) & iperf3 -s & exec /usr/bin/python3 ${dir}/server.py", "server": true}
  },
  "steps": [
    {"on": "client", "run": "${dir}/fetch && ${dir}/fetch"},
    {"on": "client", "run": "` + kit.Program("http3") + ` get 10.0.1.2 443 3000000"},
    {"on": "client", "run": "iperf3 -c server -t 3"},
    {"on": "client", "run": "iperf3 -c server -u -b 20M -t 3", "retry": true},
    {"on": "client", "run": "exec /usr/bin/python3 ${dir}/whole.py"}
  ]
}`, "whole.py": `import os, socket
with open("/proc/sys/net/ipv4/tcp_rmem", "w") as f:
    f.write("4096 4000000 4000000")
with socket.create_server(("127.0.0.1", 99)) as s, socket.create_connection(("127.0.0.1", 99)) as c:
    a, _ = s.accept()
    c.sendall(bytes(800000))
    print(len(a.recv(100000)), len(a.recv(1 << 20)))
    c.send(b"12", socket.MSG_OOB)
    r, w = os.pipe()
    print(os.splice(a.fileno(), w, 9), os.splice(a.fileno(), w, 9))
`})
	kit.Host.Run(t, "gcc", "-static", "-O2", "-o", filepath.Join(u.folder, "fetch"), filepath.Join(u.folder, "fetch.c"))
	repeats(t, u, run, 6)
	for name, want := range map[string]string{
		"step-1.log": `1000000 bytes, [0-9.]+\n1000000 bytes, `,
		"step-2.log": `.`,
		"step-3.log": `receiver`,
		"step-4.log": `20\.[01] Mbits/sec`,
		"step-5.log": "^100000 700000\n1 0\n$",
		"server.log": `0 [0-9a-f]{8}\n`,
	} {
		b, err := os.ReadFile(filepath.Join(u.folder, "v.results", name))
		kit.Must(t, err)
		if !regexp.MustCompile(want).Match(b) {
			t.Errorf("%s: no %q: %s", name, want, b)
		}
	}
}

// descendant returns a process below pid whose program has this name, or 0.
func descendant(pid int, name string) int {
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // it may have ended
		for word := range strings.FieldsSeq(string(text)) {
			child, _ := strconv.Atoi(word)
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child))
			program, _, _ := strings.Cut(string(line), "\x00")
			if filepath.Base(program) == name {
				return child
			}
			if found := descendant(child, name); found != 0 {
				return found
			}
		}
	}
	return 0
}

// TestVirtualTimeDisturbed checks that a lab is the same on one CPU, beside another lab, and
// if one of its processes stops for five seconds.
func TestVirtualTimeDisturbed(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", "taskset")
	u, run := virtualLab(t, map[string]string{"server.py": virtualServer, "client.py": virtualClient, "v.json": `{
  "stack": "vanilla", "seed": 7, "wires": {"a": {"delay": "20ms", "loss": "2%"}},
  "nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"], "run": ["/usr/bin/python3", "-u", "${dir}/server.py"], "server": true}},
  "steps": [{"on": "client", "run": ["/usr/bin/python3", "${dir}/client.py"], "timeout": "2h"}]
}`})
	if r := run("v.json"); r.Status != 0 {
		t.Fatal(r)
	}
	want := digest(t, filepath.Join(u.folder, "v.results"))
	start := func(folder string, wrapper ...string) *exec.Cmd {
		line := append(wrapper, u.bin+"/lklrun", "lab", "run", "-q", "--time", "virtual", "--results", folder, "v.json")
		cmd := u.command(line[0], line[1:]...)
		kit.Must(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has usually ended
		return cmd
	}
	check := func(what string, cmd *exec.Cmd, folder string) {
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", what, err)
		} else if digest(t, filepath.Join(u.folder, folder)) != want {
			t.Errorf("%s: other results", what)
		}
	}
	check("on one CPU", start("one", "taskset", "-c", "0"), "one")
	first, second := start("first"), start("second")
	check("beside another lab", first, "first")
	check("beside another lab", second, "second")
	for _, name := range []string{"lklvirtual", "python3"} {
		cmd, pid := start(name), 0
		kit.WaitFor(t, name, kit.Limit, func() bool { pid = descendant(cmd.Process.Pid, name); return pid != 0 })
		kit.Must(t, unix.Kill(pid, unix.SIGSTOP))
		time.Sleep(5 * time.Second)
		kit.Must(t, unix.Kill(pid, unix.SIGCONT))
		check(name+" stops", cmd, name)
	}
}

// virtualStop is a lab that loses packets and has a datagram for which there is no socket.
var virtualStop = map[string]string{"server.py": virtualServer, "client.py": `import os, socket, time
for n in range(5):
    with socket.create_connection(("server", 80)) as c:
        c.sendall(b"x" * 300000)
        c.shutdown(socket.SHUT_WR)
        assert c.recv(100) == b"300000"
    time.sleep(10)
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.sendto(b"x", ("server", 999))
n = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
n.bind((0, 0))
time.sleep(1)
print(time.time(), os.urandom(8), os.fstat(n.fileno()).st_ino, n.getsockname())
`, "v.json": `{
  "stack": "vanilla", "seed": 7, "wires": {"a": {"delay": "20ms", "loss": "2%"}},
  "nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"], "run": ["/usr/bin/python3", "-u", "${dir}/server.py"], "server": true}},
  "steps": [
    {"on": "client", "run": ["/usr/bin/python3", "${dir}/client.py"]},
    {"on": "client", "run": "ping -c 5 server"}
  ]
}`}

// stopReport is the part of results.json about a stop.
type stopReport struct {
	Virtual float64 `json:"virtual_seconds"`
	Stop    *struct {
		Condition, Node string
		Value           int64
		Seconds         float64
	}
}

func readStop(t *testing.T, folder string) (r stopReport) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "results.json"))
	kit.Must(t, err)
	kit.Must(t, json.Unmarshal(text, &r))
	return r
}

// TestVirtualTimeStop checks that a lab stops when a condition holds, that it is the same until
// then as without the condition, and that lklctl sees the stopped nodes.
func TestVirtualTimeStop(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", "ping")
	u, run := virtualLab(t, virtualStop)
	results := filepath.Join(u.folder, "v.results")
	if r := run("v.json"); r.Status != 0 {
		t.Fatal(r)
	}
	want := digest(t, results)
	whole, err := os.ReadFile(filepath.Join(results, "wires.pcapng"))
	kit.Must(t, err)
	never := run("--stop-at", "TcpRetransSegs>100000", "v.json")
	if never.Status != 0 || !strings.Contains(never.Stderr, "TcpRetransSegs>100000 did not hold") || digest(t, results) != want {
		t.Errorf("other results with a condition that never holds: %v", never)
	}
	for condition, node := range map[string]string{
		"drops.NO_SOCKET>0": "server", "client:retransmits>=2": "client", "server:eth0.rx_bytes>500000": "server", "TcpActiveOpens=3": "client",
	} {
		r := run("--stop-at", condition, "v.json")
		got := readStop(t, results)
		part, err := os.ReadFile(filepath.Join(results, "wires.pcapng"))
		kit.Must(t, err)
		s := got.Stop
		if r.Status != 0 || s == nil || s.Condition != condition || s.Node != node || s.Value < 1 || s.Seconds < 0.04 || s.Seconds != got.Virtual {
			t.Errorf("%s: %v, %+v", condition, r, s)
		}
		if len(part) < 1000 || len(part) >= len(whole) || !bytes.HasPrefix(whole, part) {
			t.Errorf("%s: the capture of %d bytes is not the begin of that of the whole lab (%d bytes)", condition, len(part), len(whole))
		}
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{`--stop-at "drops": expected [NODE:]COUNTER`, []string{"--stop-at", "drops"}},
		{`--stop-at "drops > 0": expected`, []string{"--stop-at", "drops > 0"}},
		{`--stop-at "drops>-1": expected`, []string{"--stop-at", "drops>-1"}},
		{`--stop-at "drops>1k": expected`, []string{"--stop-at", "drops>1k"}},
		{`--stop-at "drops!=0": expected`, []string{"--stop-at", "drops!=0"}},
		{`--stop-at: the value is empty`, []string{"--stop-at", ""}},
		{`--stop-at "drps>0": no counter "drps"; did you mean drops?`, []string{"--stop-at", "drps>0"}},
		{`--stop-at "drops.NO_SUCH>0": no counter "drops.NO_SUCH"`, []string{"--stop-at", "drops.NO_SUCH>0"}},
		{`--stop-at "client:eth1.rx_bytes>0": no counter "eth1.rx_bytes"; did you mean eth0.rx_bytes?`, []string{"--stop-at", "client:eth1.rx_bytes>0"}},
		{`--stop-at "cliend:drops>0": the lab has no node "cliend"`, []string{"--stop-at", "cliend:drops>0"}},
		{`--hold: requires --stop-at`, []string{"--hold"}},
		{`--stop-at and --hold: require --time virtual`, []string{"--time", "real", "--stop-at", "drops>0"}},
	} {
		if r := run(append(c.args, "v.json")...); r.Status != 2 || !strings.Contains(r.Stderr, c.want) || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("expected status 2 and one line with %q: %v", c.want, r)
		}
	}
}

// TestVirtualTimeHold looks at a stopped lab with lklctl, and ends it in both ways.
func TestVirtualTimeHold(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	u, _ := virtualLab(t, virtualStop)
	before := kit.Take(t)
	ctl := func(args ...string) kit.Result { return kit.Run(t, kit.Limit, u.command(u.bin+"/lklctl", args...)) }
	for _, way := range []string{"stop", "interrupt", "kill", "stop"} {
		p := kit.Start(t, u.lab("run", "--time", "virtual", "--stop-at", "client:retransmits>=2", "--hold", "v.json"))
		kit.WaitFor(t, "the stop", kit.Limit, func() bool {
			_, stderr := p.Output()
			return strings.Contains(stderr, "lklctl sees v.client, v.server")
		})
		st, err := os.Stat(filepath.Join(u.folder, "v.results", "wires.pcapng"))
		kit.Must(t, err)
		var shown []string
		for range 2 {
			all := ""
			for _, c := range []struct{ verb, want string }{
				{"list", "v.server"},
				{"-n v.client netstat -ti", "congestion  cubic"},
				{"-n v.client drops -r", "10.0.1.2:80"},
				{"-n v.server resets", "has no matching TCP resets"},
				{"-n v.client counters retransmits", "retransmits."},
				{"-n v.server sysctl net.ipv4.tcp_congestion_control", "= cubic"},
				{"-n v.client link", "10.0.1.1/24"},
				{"-n v.client explain", "time stands still"},
				{"-n v.client exec -- true", "lklctl: "},
			} {
				r := ctl(strings.Fields(c.verb)...)
				if text := r.Stdout + r.Stderr; !strings.Contains(text, c.want) {
					t.Errorf("lklctl %s: no %q: %v", c.verb, c.want, r)
				}
				if c.verb != "list" { // which shows an age
					all += r.Stdout
				}
			}
			shown = append(shown, all)
		}
		if shown[0] != shown[1] {
			t.Errorf("time does not stand still: lklctl shows %s, then %s", shown[0], shown[1])
		}
		if now, err := os.Stat(filepath.Join(u.folder, "v.results", "wires.pcapng")); err != nil || now.Size() != st.Size() {
			t.Errorf("packets were sent after the stop: %v, %v", now, err)
		}
		if r := kit.Run(t, kit.Limit, u.lab("run", "--time", "virtual", "--stop-at", "drops>0", "--hold", "v.json")); r.Status != 2 ||
			!strings.Contains(r.Stderr, `--hold: instance "v.client" is running`) || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("a second lab of this name: %v", r)
		}
		if way == "stop" {
			if r := ctl("stop", "-n", "v.server"); r.Status != 0 {
				t.Error(r)
			}
		} else if way == "kill" { // the next lab takes over the folders that are left
			p.Signal(unix.SIGKILL)
			p.Wait(kit.Limit)
			continue
		} else {
			p.Signal(unix.SIGINT)
		}
		if r := p.Wait(kit.Limit); r.Status != 0 {
			t.Errorf("%s: %v", way, r)
		}
		if s := readStop(t, filepath.Join(u.folder, "v.results")).Stop; s == nil || s.Value < 2 {
			t.Errorf("%s: %+v", way, s)
		}
		kit.Must(t, os.RemoveAll(filepath.Join(u.folder, "v.results")))
	}
	before.Settles(10 * time.Second)
}

// virtualRecord is a lab that sends a datagram every ten seconds, with a program of its own folder.
var virtualRecord = map[string]string{"server.py": `import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 80))
while True:
    data, peer = s.recvfrom(100)
    print(data, flush=True)
    s.sendto(data, peer)
`, "client.py": `import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(("server", 80))
for word in (b"first", b"second", b"third"):
    print("%.9f" % time.time(), flush=True)
    s.send(word)
    s.recv(100)
    time.sleep(10)
`, "fault.json": `{
  "stack": "vanilla", "vars": {"delay": "20ms"}, "wires": {"a": {"delay": "${delay}"}},
  "nodes": {"client": {"wires": ["a"]}, "server": {"wires": ["a"], "run": ["/usr/bin/python3", "-u", "${dir}/server.py"], "server": true}},
  "steps": [
    {"on": "client", "run": ["/usr/bin/python3", "${dir}/client.py"]},
    {"on": "client", "run": "${dir}/nap 5; echo $SECRET $LC_TEST; ls ${dir}; pwd"},
    {"on": "client", "run": "false"}
  ]
}`}

// TestVirtualTimeRecord checks that a recorded lab repeats in another folder and after the
// originals have gone, and that a changed file, program or result is found.
func TestVirtualTimeRecord(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	u, _ := virtualLab(t, virtualRecord)
	kit.Host.Run(t, "cp", "/usr/bin/sleep", filepath.Join(u.folder, "nap"))
	cmd := u.lab("run", "--time", "virtual", "--seed", "9", "--var", "delay=30ms", "--record", "rec", "fault.json")
	cmd.Env = append(cmd.Env, "SECRET=hidden-word", "LC_TEST=shown-word")
	if r := kit.Run(t, 2*time.Minute, cmd); r.Status != 1 || !strings.Contains(r.Stderr, "step 3 (client: false): exit status 1") {
		t.Fatal(r)
	}
	text, err := os.ReadFile(filepath.Join(u.folder, "rec", "results", "step-2.log"))
	kit.Must(t, err)
	if !strings.HasPrefix(string(text), "shown-word\nclient.py\n") {
		t.Errorf("the environment of the programs: %s", text)
	}
	if out, err := exec.Command("grep", "-r", "hidden-word", filepath.Join(u.folder, "rec")).CombinedOutput(); err == nil {
		t.Errorf("the record has the value of a variable that programs do not get: %s", out)
	}
	// Elsewhere: another folder, and nothing of the first one is left.
	away := kit.Dir(t)
	other := filepath.Join(u.folder, "a", "longer name")
	kit.Must(t, os.MkdirAll(other, 0o777))
	kit.Must(t, os.Rename(filepath.Join(u.folder, "rec"), filepath.Join(other, "rec")))
	kit.Host.Run(t, "chown", "-R", fmt.Sprint(kit.OrdinaryUID), other)
	for _, name := range []string{"server.py", "client.py", "fault.json", "nap"} {
		kit.Must(t, os.Rename(filepath.Join(u.folder, name), filepath.Join(away, name)))
	}
	before := kit.Take(t)
	replay := func() kit.Result {
		cmd := u.lab("replay", "rec")
		cmd.Dir = other
		return kit.Run(t, 2*time.Minute, cmd)
	}
	for range 2 {
		if r := replay(); r.Status != 0 || !regexp.MustCompile(`^identical: \d+ frames, 5 files\n$`).MatchString(r.Stdout) || r.Stderr != "" {
			t.Fatalf("the replay of an unchanged record: %v", r)
		}
	}
	change := func(name, from, to string) func() {
		path := filepath.Join(other, "rec", name)
		old, err := os.ReadFile(path)
		kit.Must(t, err)
		changed := strings.Replace(string(old), from, to, 1)
		if changed == string(old) {
			t.Fatalf("%s has no %q", name, from)
		}
		kit.Must(t, os.WriteFile(path, []byte(changed), 0o755))
		return func() { kit.Must(t, os.WriteFile(path, old, 0o755)) }
	}
	// The second datagram leaves at the second time that the client prints.
	text, err = os.ReadFile(filepath.Join(other, "rec", "results", "step-1.log"))
	kit.Must(t, err)
	at, err := strconv.ParseFloat(strings.Fields(string(text))[1], 64)
	kit.Must(t, err)
	at -= 1767225600
	frame := regexp.MustCompile(`recorded at ([0-9.]+) s on wire a from client, 48 bytes; replayed at ([0-9.]+) s on wire a from client`)
	for _, c := range []struct {
		name, from, to string
		status         int
		want           string
	}{
		{"files/client.py", "second", "sicond", 1, `file "client\.py" differs from the recorded one\n` +
			`.*the replay differs in frame \d+: recorded at .*, 48 bytes, others from byte 4\d\n` +
			`.*the replay differs in server\.log:2: recorded "b'second'"; replayed "b'sicond'"\n$`},
		{"files/client.py", "second", "longer second", 1, `replayed at [0-9.]+ s on wire a from client, 55 bytes\n`},
		{"files/client.py", "import", "# import\nimport", 0, `file "client\.py" differs from the recorded one\n$`},
		{"files/server.py", "print(data,", "print(data, 1,", 1, `file "server\.py" differs.*\n.*the replay differs in server\.log:1: recorded "b'first'"; replayed "b'first' 1"\n$`},
		{"files/nap", "\x00\x00\x00\x00\x00\x00", "\x00\x00\x00\x00\x00\x01", 0, `program "\$\{dir\}/nap" differs from the recorded one\n.*file "nap" differs`},
		{"record.json", `"/usr/bin/`, `"/usr/bin/no-such-`, 0, `program "/usr/bin/no-such-[a-z0-9.]+" is missing\n$`},
		{"record.json", `"vanilla": "`, `"vanilla": "0`, 0, `stack "vanilla" differs from the recorded one\n$`},
		{"record.json", `"lklrun": "`, `"lklrun": "1`, 0, `lklrun is (.*), recorded with 1(.*)\n$`},
		{"record.json", `"seed": 9`, `"seed": 10`, 1, `the replay differs in frame \d+: `},
		{"results/step-2.log", "shown", "other", 1, `^lklrun: the replay differs in step-2\.log:1: recorded "other-word"; replayed "shown-word"\n$`},
		{"results/results.json", `"ok": false`, `"ok": true`, 1, `the replay differs in results\.json:3: recorded "  \\"ok\\": true,"; replayed "  \\"ok\\": false,"\n$`},
	} {
		undo := change(c.name, c.from, c.to)
		if r := replay(); r.Status != c.status || !regexp.MustCompile(c.want).MatchString(r.Stderr) || (r.Stdout == "") != (r.Status == 1) {
			t.Errorf("%s with %q for %q: expected status %d and %s: %v", c.name, c.to, c.from, c.status, c.want, r)
		} else if c.name == "files/client.py" && c.status == 1 {
			m := frame.FindStringSubmatch(r.Stderr)
			if m == nil || m[1] != m[2] {
				t.Fatalf("no frame of the client: %v", r)
			}
			if got, _ := strconv.ParseFloat(m[1], 64); got < at-0.001 || got > at+0.001 {
				t.Errorf("the first frame that differs is at %s s, expected %.9f: %v", m[1], at, r)
			}
		}
		undo()
	}
	kit.Must(t, os.RemoveAll(filepath.Join(other, "fault.replay")))
	before.Settles(10 * time.Second)
	if left, err := filepath.Glob("/tmp/lklrun-record-*"); len(left) > 0 || err != nil {
		t.Errorf("folders are left: %s, %v", left, err)
	}
}

// TestVirtualTimeRecordInput checks what --record and replay refuse: a record is untrusted.
func TestVirtualTimeRecordInput(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	u, run := virtualLab(t, virtualRecord)
	kit.Host.Run(t, "cp", "/usr/bin/sleep", filepath.Join(u.folder, "nap"))
	if r := run("--record", "rec", "fault.json"); r.Status != 1 {
		t.Fatal(r)
	}
	refused := func(what, want string, r kit.Result) {
		t.Helper()
		if r.Status != 2 || !strings.Contains(r.Stderr, want) || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("%s: expected status 2 and one line with %q: %v", what, want, r)
		}
	}
	for _, c := range []struct {
		what, want string
		args       []string
	}{
		{"a folder with files", "rec exists and is not empty", []string{"--record", "rec", "fault.json"}},
		{"real time", "--record: requires --time virtual", []string{"--time", "real", "--record", "new", "fault.json"}},
		{"two folders", "remove one of them", []string{"--record", "new", "--results", "out", "fault.json"}},
	} {
		refused(c.what, c.want, run(c.args...))
	}
	record := func() kit.Result { return run("--record", "new", "fault.json") }
	kit.Host.Run(t, "ln", "-s", "/etc/passwd", filepath.Join(u.folder, "link"))
	refused("a link out", "/link: a link that does not stay in the folder", record())
	kit.Host.Run(t, "rm", filepath.Join(u.folder, "link"))
	kit.Host.Run(t, "mkfifo", filepath.Join(u.folder, "pipe"))
	refused("a FIFO", "/pipe: neither a file, a folder nor a link", record())
	kit.Host.Run(t, "rm", filepath.Join(u.folder, "pipe"))
	kit.Host.Run(t, "truncate", "-s", "101M", filepath.Join(u.folder, "large"))
	refused("a large folder", "more than 100 MiB", record())
	kit.Host.Run(t, "rm", filepath.Join(u.folder, "large"))
	cmd := u.lab("run", "--time", "virtual", "--record", filepath.Join(u.folder, "new"), filepath.Join(u.folder, "fault.json"))
	cmd.Dir = "/"
	refused("another working folder", "change to "+u.folder, kit.Run(t, kit.Limit, cmd))
	if _, err := os.Lstat(filepath.Join(u.folder, "new")); err == nil {
		t.Error("what is refused leaves a folder")
	}

	rec := filepath.Join(u.folder, "rec")
	edit := func(from, to string) string {
		return fmt.Sprintf("sed -i 's|%s|%s|' record.json", from, to)
	}
	for _, c := range []struct{ how, want string }{
		{"rm record.json", "expected a folder of lklrun lab run --record"},
		{"rm record.json; ln -s /etc/passwd record.json", "path escapes from parent"},
		{"rm record.json; mkfifo record.json", "not a file"},
		{"echo '{' > record.json", "unexpected end of JSON input"},
		{edit(`"version": 1`, `"version": 2`), "version 2 of the format; this lklrun reads version 1"},
		{edit(`"seed"`, `"sead"`), `unknown field "sead"`},
		{edit(`"seed": 0`, `"seed": -1`), "record.json: json: cannot unmarshal"},
		{edit(`"lab": "`, `"lab": "../`), `lab: "../fault.json" is not the name of a file`},
		{edit(`"lab": ".*",`, `"lab": "/etc/passwd",`), `lab: "/etc/passwd" is not the name of a file`},
		{edit(`"work": "."`, `"work": "../.."`), `work: "../.." leaves the folder`},
		{edit(`"env": \[`, `"env": ["LD_PRELOAD=x",`), `env: "LD_PRELOAD" is not a variable that lklrun records`},
		{edit(`"dir": ".*"`, `"dir": "/"`), `dir: "/" is not an absolute path below /`},
		{"rm -r files; ln -s / files", "path escapes from parent"},
		{"ln -s ../../v files/out", "a link that does not stay in the folder"},
		{"mkdir files/d; ln -s /etc files/d/e", "a link that does not stay in the folder"},
		{"rm files/nap; mkfifo files/nap", "neither a file, a folder nor a link"},
		{"truncate -s 101M files/large", "more than 100 MiB"},
		{"rm files/fault.json", "fault.json: no such file"},
		{"rm files/fault.json; ln -s ../record.json files/fault.json", "a link that does not stay in the folder"},
		{"rm -r results; ln -s / results", "path escapes from parent"},
		{"rm results/wires.pcapng; ln -s /etc/passwd results/wires.pcapng", "path escapes from parent"},
		{"truncate -s -5 results/wires.pcapng", "wires.pcapng: "},
		{"echo not a capture, although it is long enough > results/wires.pcapng", "wires.pcapng: "},
	} {
		kit.Host.Run(t, "rm", "-rf", rec+".bad")
		kit.Host.Run(t, "cp", "-a", rec, rec+".bad")
		kit.Host.Run(t, "sh", "-ec", "cd '"+rec+".bad'; "+c.how)
		refused(c.how, c.want, kit.Run(t, 2*time.Minute, u.lab("replay", "rec.bad")))
	}
	refused("no folder", "no-such: no such file or directory", kit.Run(t, kit.Limit, u.lab("replay", "no-such")))
	refused("no argument", "0 arguments; expected the folder of a record", kit.Run(t, kit.Limit, u.lab("replay")))
}
