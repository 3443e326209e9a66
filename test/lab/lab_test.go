// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// user runs the programs in bin/ as an ordinary user, in a folder of its own.
type user struct {
	t           *testing.T
	bin, folder string
}

func newUser(t *testing.T) *user {
	u := &user{t, kit.PublicBin(t), kit.Dir(t)}
	kit.Must(t, os.Chown(u.folder, kit.OrdinaryUID, kit.OrdinaryUID))
	return u
}

func (u *user) command(program string, args ...string) *exec.Cmd {
	cmd := kit.AsUser(exec.Command(program, args...), u.folder)
	cmd.Dir = u.folder
	return cmd
}

// lab is the command line of a verb of lklrun lab.
func (u *user) lab(args ...string) *exec.Cmd {
	return u.command(u.bin+"/lklrun", append([]string{"lab"}, args...)...)
}

// list returns the names of the running instances.
func (u *user) list() []string {
	u.t.Helper()
	var all []struct {
		Name string `json:"name"`
		PID  int    `json:"pid"`
	}
	r := kit.Run(u.t, kit.Limit, u.command(u.bin+"/lklctl", "list", "-o", "json"))
	kit.Must(u.t, json.Unmarshal([]byte(r.Stdout), &all))
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names
}

// TestExamples runs the examples of pkg/lab.
func TestExamples(t *testing.T) {
	kit.Need(t, "iperf3", "python3", "curl", "ping")
	u := newUser(t)
	program := filepath.Join(filepath.Dir(u.bin), examples)
	kit.Host.Run(t, "install", "-m", "755", kit.Program(examples), program)
	before := kit.Take(t)
	cmd := u.command(program, "-test.v", "-test.run", "^Example")
	cmd.Env = append(cmd.Env, "LKLRUN_BIN="+u.bin)
	r := kit.Run(t, 2*time.Minute, cmd)
	if n := strings.Count(r.Stdout, "--- PASS: Example"); r.Status != 0 || n < 3 {
		t.Errorf("%d examples: %v", n, r)
	}
	before.Settles(5 * time.Second)
}

// TestClient checks the shorthand: its exit status, the names of the nodes, and the known
// pairs of client and server.
func TestClient(t *testing.T) {
	kit.Need(t, "iperf3", "ping", "curl", "python3")
	u := newUser(t)
	before := kit.Take(t)
	for _, c := range []struct {
		args   string
		status int
		want   string
	}{
		{"-- ping -c 1 server", 0, `bytes from server \(10\.0\.1\.2\)`},
		{"--paths 2 --delay 5ms -- ping -c 2 -i 0.1 server.b", 0, `10\.0\.2\.2.* icmp_seq=2 ttl=64 time=1\d`},
		{"--chain 2 -- ping -c 1 server", 0, `10\.0\.3\.2.* ttl=62`},
		{"-- iperf3 -n 100K", 0, `iperf Done`},
		{"--stack bbr --server-stack vanilla --mem 64M -- iperf3 --json -n 100K", 0, `"cpu_utilization_percent"`},
		{"--stack vanilla --sysctl net.ipv4.tcp_congestion_control=bbr -- iperf3 --json -n 100K", 0, `"sender_tcp_congestion":\s+"bbr"`},
		{"--name mine -- sh -c 'echo here; exit 7'", 7, `^here\n$`},
		{"--server 'exec python3 -m http.server 80' -- curl -sS -o /dev/null -w %{http_code} http://server/", 0, `^200$`},
		{"-- sh -c 'kill -TERM $$'", 143, `^$`},
		{"--paths 2 --rate 50mbit --require mptcp -- iperf3 -n 5M 2>&1", 0, `lklrun: iperf3: 2 MPTCP with 10\.0\.1\.2:5201; [1-9]\d* additional subflows?; wire a: \S+MB sent, \S+ received; wire b: \S+MB sent, \S+ received\n$`},
		{"--stack vanilla --require mptcp -- iperf3 -n 100K 2>&1", 123, `: 2 TCP with .*\n.*--require mptcp: 2 connections by TCP\n$`},
		{"--server-stack vanilla --require mptcp -- iperf3 -n 100K 2>&1", 123, `2 TCP \(peer without MPTCP\).*\n.*fell back to TCP`},
		{"--require stack -- true 2>&1", 123, `no connection; wire a: .*\n.*used no socket of the stack`},
		{"--require mptcp -- sh -c 'exit 7' 2>&1", 7, `no connection; wire a: .* received\n$`},
		{"--require tcp -- true 2>&1", 2, `--require "tcp"; expected stack or mptcp`},
	} {
		cmd := u.command("sh", "-c", u.bin+"/lklrun lab "+c.args)
		r := kit.Run(t, kit.Limit, cmd)
		if r.Status != c.status || !regexp.MustCompile(c.want).MatchString(r.Stdout) {
			t.Errorf("lab %s: %v", c.args, r)
		}
		before.Settles(5 * time.Second)
	}
}

// TestChain starts 32 routers in a chain, and then kills lklrun.
func TestChain(t *testing.T) {
	kit.Need(t, "ping")
	u := newUser(t)
	before := kit.Take(t)
	began := time.Now()
	p := kit.Start(t, u.lab("--chain", "32", "--", "ping", "-i", "0.2", "server"))
	kit.WaitFor(t, "an answer over 32 routers", kit.Limit, func() bool {
		out, _ := p.Output()
		return strings.Contains(out, "ttl=32") || !p.Running()
	})
	took := time.Since(began)
	if t.Logf("34 nodes are up after %v", took); took > 15*time.Second {
		t.Errorf("34 nodes took %v", took)
	}
	if n := len(u.list()); n != 34 {
		t.Errorf("%d instances", n)
	}
	p.Signal(unix.SIGKILL)
	p.Wait(kit.Limit)
	before.Settles(15 * time.Second)
}

const twoPaths = `{
  // Two paths of different delays.
  "wires": {"a": {"delay": "2ms", "rate": "20mbit"}, "b": {"delay": "4ms", "rate": "20mbit"}},
  "nodes": {
    "client": {"wires": ["a", "b"]},
    "server": {"wires": ["a", "b"], "server": true, "run": ["iperf3", "-s"], "stack": "vanilla"},
  },
  "steps": [%s],
}`

// write writes a topology file with these steps.
func (u *user) write(steps string) string {
	path := filepath.Join(u.folder, "two.json")
	kit.Must(u.t, os.WriteFile(path, fmt.Appendf(nil, twoPaths, steps), 0o644))
	return "two.json"
}

// TestUp keeps a lab in the background, changes it, kills one of its nodes, and ends it.
func TestUp(t *testing.T) {
	kit.Need(t, "ping", "iperf3")
	u := newUser(t)
	file := u.write(`{"wait": "1s"}`)
	before := kit.Take(t)
	if got := kit.OK(t, kit.Limit, u.lab("up", file)); got != "two\n" {
		t.Errorf("lab up: %q", got)
	}
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("up", file)), 2, `lab "two" is already running`)
	table := kit.OK(t, kit.Limit, u.lab("status"))
	if !regexp.MustCompile(`(?m)^two +server +vanilla +a 10\.0\.1\.2/24, b 10\.0\.2\.2/24$`).MatchString(table) {
		t.Errorf("lab status: %s", table)
	}
	kit.OK(t, kit.Limit, u.lab("exec", "client", "--", "iperf3", "-c", "server", "-n", "100K"))
	if r := kit.Run(t, kit.Limit, u.lab("exec", "-n", "two", "client", "--", "sh", "-c", "exit 9")); r.Status != 9 {
		t.Errorf("lab exec: %v", r)
	}
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("exec", "clint", "--", "true")), 2, `no node "clint"; did you mean client\?`)
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("set", "c", "down")), 2, `no wire "c"; it has a, b`)
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("set", "a", "dwn")), 2, `dwn`)

	ping := func() bool {
		return kit.Run(t, kit.Limit, u.lab("exec", "client", "--", "ping", "-c", "1", "-W", "1", "server.a")).Status == 0
	}
	kit.OK(t, kit.Limit, u.lab("set", "a", "down"))
	if ping() {
		t.Error("the wire a carries packets after it was cut")
	}
	kit.OK(t, kit.Limit, u.lab("set", "a", "up"))
	kit.WaitFor(t, "the wire a", kit.Limit, ping)
	out := kit.OK(t, kit.Limit, u.lab("exec", "client", "--", "ping", "-c", "1", "server.b"))
	if !regexp.MustCompile(`time=([89]|[1-9]\d)`).MatchString(out) {
		t.Errorf("the delay of wire b: %s", out)
	}

	var labs []struct {
		Nodes []struct{ Instance string }
	}
	kit.Must(t, json.Unmarshal([]byte(kit.OK(t, kit.Limit, u.lab("status", "-o", "json"))), &labs))
	if len(labs) != 1 || len(labs[0].Nodes) != 2 {
		t.Fatalf("lab status -o json: %+v", labs)
	}
	var all []struct {
		Name    string
		PID     int
		Command []string
	}
	kit.Must(t, json.Unmarshal([]byte(kit.OK(t, kit.Limit, u.command(u.bin+"/lklctl", "list", "-o", "json"))), &all))
	for _, i := range all {
		if want := map[string]string{"two.client": "sleep infinity", "two.server": "iperf3 -s"}[i.Name]; strings.Join(i.Command, " ") != want {
			t.Errorf("the command of %s is %q, want %s", i.Name, i.Command, want)
		}
	}
	kit.Must(t, unix.Kill(all[0].PID, unix.SIGKILL))
	kit.WaitFor(t, "the end of the killed node", kit.Limit, func() bool { return len(u.list()) == 1 })
	if got := kit.OK(t, kit.Limit, u.lab("down")); got != "two: 1 node ended\n" {
		t.Errorf("lab down: %q", got)
	}
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("down")), 2, `no lab is running`)
	kit.OK(t, kit.Limit, u.lab("down", "--all"))
	kit.OK(t, kit.Limit, u.command(u.bin+"/lklctl", "rm", "two.client")) // the record of the killed node
	kit.Must(t, os.RemoveAll(filepath.Join(u.folder, "lklrun", ".ended")))
	before.Settles(5 * time.Second)
}

// TestRun performs the steps of a file, and checks the results.
func TestRun(t *testing.T) {
	kit.Need(t, "ping", "iperf3", "tshark")
	u := newUser(t)
	file := u.write(`
    {"on": "client", "run": "ping -c 3 -i 0.1 server.b"},
    {"on": "client", "run": "iperf3 -c server -t 2", "background": true},
    {"wait": "300ms"}, {"wire": "a", "set": "down"}, {"wait": "300ms"}, {"wire": "a", "set": "up"},
    {"on": "client", "run": "exit 3", "expect": 3}`)
	out := kit.OK(t, kit.Limit, u.lab("run", file))
	for _, want := range []string{"1. client: ping -c 3 -i 0.1 server.b: ok, ", "4. wire a: down: ok, ", "7. client: exit 3 (expect status 3): ok, ", "2. client: iperf3 -c server -t 2 (in the background): ok, "} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	results := filepath.Join(u.folder, "two.results")
	if got := kit.ReadFile(t, filepath.Join(results, "step-1.log")); !strings.Contains(got, "3 received") {
		t.Errorf("step-1.log: %s", got)
	}
	if got := kit.ReadFile(t, filepath.Join(results, "server.log")); !strings.Contains(got, "Server listening") {
		t.Errorf("server.log: %s", got)
	}
	packets := kit.PacketFields(t, false, filepath.Join(results, "wires.pcapng"), "frame.interface_name", "icmp.type", "icmp.seq")
	seen := map[string]int{}
	for _, p := range packets {
		seen[strings.Join(p, " ")]++
	}
	echoes := 0
	for what, n := range seen {
		if f := strings.Fields(what); len(f) == 3 {
			if echoes++; n != 1 {
				t.Errorf("%q occurs %d times", what, n)
			}
		}
	}
	if echoes != 6 {
		t.Errorf("%d echo requests and replies in the capture, want 6: %v", echoes, seen)
	}

	var report struct {
		OK    bool
		Error string
		Steps []struct {
			OK     bool
			Status int
		}
	}
	file = u.write(`{"on": "client", "run": "echo why >&2; exit 5"}, {"wait": "10s"}`)
	r := kit.Run(t, kit.Limit, u.lab("run", "-o", "json", "--no-capture", "--results", "out", file))
	kit.Must(t, json.Unmarshal([]byte(r.Stdout), &report))
	const why = "step 1 (client: echo why >&2; exit 5): exit status 5, expected 0; its output is in out/step-1.log"
	if r.Status != 1 || r.Stderr != "lklrun: "+why+"\n" || report.OK || report.Error != why || len(report.Steps) != 1 || report.Steps[0].Status != 5 {
		t.Errorf("%v\n%+v", r, report)
	}
	file = u.write(`{"on": "client", "run": "sleep 60", "timeout": "200ms"}`)
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("run", "-q", file)), 1, `^lklrun: step 1 \(client: sleep 60\): not done after 200ms`)
	if left := u.list(); len(left) > 0 {
		t.Errorf("instances: %v", left)
	}
}

// TestFailedStart checks that one line names the node that does not start, and the reason.
func TestFailedStart(t *testing.T) {
	u := newUser(t)
	before := kit.Take(t)
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("--chain", "6", "--server-stack", "mptpc", "--", "true")), 125, `^lklrun: node server: --stack: no stack "mptpc"; did you mean mptcp\?$`)
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("--server", "exit 4", "--", "true")), 125, `^lklrun: node server: exit 4 ended with status 4, without output`)
	for _, verb := range [][]string{{"--", "true"}, {}} {
		args := append([]string{"--server", "echo 1; echo 2; exit 4"}, verb...)
		if len(verb) == 0 {
			args = append([]string{"up"}, args...)
		}
		kit.OneLine(t, kit.Run(t, kit.Limit, u.lab(args...)), 125, `^lklrun: node server: .*exit 4 ended with status 4; its output: 1; 2$`)
	}
	kit.OneLine(t, kit.Run(t, kit.Limit, u.lab("--sysctl", "net.ipv4.nosuch=1", "--", "true")), 125, `^lklrun: node (client|server): sysctl net.ipv4.nosuch=1: the stack has no such setting`)
	before.Settles(5 * time.Second)
}

// TestInterrupted checks that a signal at any time leaves nothing behind.
func TestInterrupted(t *testing.T) {
	u := newUser(t)
	before := kit.Take(t)
	for n, sig := range []unix.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGKILL, unix.SIGHUP, unix.SIGKILL} {
		p := kit.Start(t, u.lab("--chain", "4", "--", "sleep", "60"))
		if n > 0 {
			kit.WaitFor(t, fmt.Sprintf("%d nodes", n), kit.Limit, func() bool { return len(u.list()) >= min(2*n, 6) })
		}
		p.Signal(sig)
		p.Wait(kit.Limit)
		before.Settles(15 * time.Second)
	}
}
