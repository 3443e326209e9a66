// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// preloadFlags returns the beginning of a command line that runs the kernel inside the
// program.
func preloadFlags(s *kit.Site, flags ...string) []string {
	return append([]string{"--name", kit.NewName(), "--engine", "preload"}, flags...)
}

// loaded runs a target on the tap with the kernel inside it.
func loaded(s *kit.Site, args ...string) *exec.Cmd {
	return kit.Lklrun(append(preloadFlags(s, "--if", s.TapIf(), "--"), args...)...)
}

// TestPreloadWithoutLklrun starts a program with the library but without lklrun. It must
// end with a message instead of using the host's network. This must not affect a run
// whose command preloads other libraries or starts children.
func TestPreloadWithoutLklrun(t *testing.T) {
	s := kit.NewSite(t)
	l := kit.Host.Listen(t, "127.0.0.1:0")
	for _, variable := range []string{"", "LKLRUN_PRELOAD_LINK=", "LKLRUN_PRELOAD_LINK=7:8"} {
		cmd := exec.Command("curl", "-sS", "http://"+l.Addr().String()+"/")
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+kit.Bin("liblklpreload.so"), variable)
		kit.OneLine(t, kit.Run(t, kit.Limit, cmd), 127, `^lklrun: curl was started with liblklpreload.so but without lklrun, and would use the host's network; use lklrun --engine preload -- curl$`)
	}
	r := kit.Run(t, kit.Limit, kit.Lklrun(append(preloadFlags(s, "-q", "--if", "user", "--"), "/usr/bin/python3", "-c", `import os, subprocess
print(subprocess.run(["sh", "-c", "echo child $LD_PRELOAD; exec env true"]).returncode, flush=True)
os.execvp("echo", ["echo", "exec"])`)...))
	if r.Status != 0 || r.Stdout != "child\n0\nexec\n" {
		t.Errorf("children of a run: %v", r)
	}
}

// TestSpin checks that packets arrive, whatever the polling time before a sleep.
func TestSpin(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	for _, engine := range []string{"supervise", "preload"} {
		for _, spin := range []string{"0", "1000"} {
			r := kit.Run(t, kit.Limit, kit.Lklrun("--engine", engine, "--spin", spin, "--if", s.TapIf(), "--", "curl", "-s", kit.ServerURL+"/hello"))
			if r.Status != 0 || r.Stdout != "hello\n" || r.Stderr != "" {
				t.Errorf("--engine %s --spin %s: %v", engine, spin, r)
			}
		}
	}
	kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun("--spin", "-1", "--", "true")), 2, "--spin \"-1\"; expected microseconds")
}

// TestPreloadMPTCP checks that a large file keeps its checksum, that MPTCP carries it,
// and that the account shows this.
func TestPreloadMPTCP(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{MPTCP: true})
	s.Web(kit.Nginx{Port: 81})
	kit.Random(t, s.Dir+"/file", 50<<20)
	want := strings.Fields(kit.OK(t, kit.Limit, exec.Command("sha256sum", s.Dir+"/file")))[0]
	out := filepath.Join(kit.Dir(t), "file")
	before := kit.Take(t, s.Server)
	for _, url := range []string{kit.ServerURL, "http://[" + kit.ServerAddr6 + "]"} {
		args := preloadFlags(s, "-v", "--require", "mptcp", "--if", s.TapIf(), "--", "curl", "-sSf", "-o", out, url+"/file")
		r := kit.Run(t, kit.Limit, kit.Lklrun(args...))
		if r.Status != 0 {
			t.Fatalf("%s: %v", url, r)
		}
		if got := kit.OK(t, kit.Limit, exec.Command("sha256sum", out)); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
		if !strings.Contains(r.Stderr, "curl(") || !strings.Contains(r.Stderr, "1 connection over MPTCP") {
			t.Errorf("-v gives no account: %s", r.Stderr)
		}
		m := regexp.MustCompile(`(\d+) bytes received`).FindStringSubmatch(r.Stderr)
		if m == nil {
			t.Fatalf("no bytes in the account: %s", r.Stderr)
		}
		if n, _ := strconv.Atoi(m[1]); n < 50<<20 || n > 51<<20 {
			t.Errorf("%s bytes received of 50 MiB", m[1])
		}
	}
	if got := s.Server.Run(t, "nstat", "-asz", "MPTcpExtMPCapableACKRX"); !strings.Contains(got, " 2 ") {
		t.Errorf("the server counted no two MPTCP connections: %s", got)
	}
	for _, tt := range []struct {
		require, says string
		args          []string
	}{
		{"stack", "the program used no socket of the stack", []string{"true"}},
		{"stack", "1 socket of a type that the stack does not support", []string{"/usr/bin/python3", "-c", `import socket
socket.socket()
try: socket.socket(socket.AF_BLUETOOTH)
except OSError as e: assert e.errno == 97, e
socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15) # NETLINK_KOBJECT_UEVENT`}},
		// No server listens on this port. A failed attempt does not count as a
		// connection.
		{"mptcp", "there was no MPTCP connection", []string{"/usr/bin/python3", "-c", "import socket; socket.socket().connect_ex(('" + kit.ServerAddr + "', 82))"}},
		{"mptcp", "MPTCP fell back to TCP (MPCapableFallbackSYNACK 1)", []string{"curl", "-sSo", "/dev/null", kit.ServerURL + ":81/hello"}},
	} {
		args := append(preloadFlags(s, "--require", tt.require, "--if", s.TapIf(), "--"), tt.args...)
		kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun(args...)), 123, regexp.QuoteMeta("--require "+tt.require+": "+tt.says))
	}
	if err := os.Remove(out); err != nil {
		t.Fatal(err)
	}
	before.Same()
}

//go:embed testdata/tell_address.py
var tellAddress string

// TestPreloadServers runs servers of one process, with the host's own clients.
func TestPreloadServers(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "iperf3")
	kit.Random(t, s.Dir+"/file", 5<<20)
	want := strings.Fields(kit.OK(t, kit.Limit, exec.Command("sha256sum", s.Dir+"/file")))[0]
	before := kit.Take(t, s.Server)

	t.Run("nginx", func(t *testing.T) {
		dir := kit.Dir(t)
		p := kit.Start(t, loaded(s, kit.Nginx{Root: s.Dir}.Config(t, dir)...))
		kit.Answers(t, p, "http://"+kit.StackAddr+"/hello")
		for i, host := range []string{kit.StackAddr, "[" + kit.StackAddr6 + "]", kit.StackAddr, "[" + kit.StackAddr6 + "]"} {
			got := kit.OK(t, kit.Limit, exec.Command("sh", "-c", "curl -sf http://"+host+"/file | sha256sum"))
			if !strings.HasPrefix(got, want) {
				t.Fatalf("fetch %d by %s: %s, want %s", i, host, got, want)
			}
		}
		p.Signal(unix.SIGQUIT) // nginx: graceful shutdown
		if r := p.Wait(kit.Limit); r.Status != 0 {
			t.Errorf("nginx: %v", r)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("python3 asyncio", func(t *testing.T) {
		p := kit.Start(t, loaded(s, "/usr/bin/python3", "-uc", tellAddress))
		kit.Answers(t, p, "http://"+kit.StackAddr+"/")
		for host, peer := range map[string]string{kit.StackAddr: kit.HostAddr, "[" + kit.StackAddr6 + "]": kit.HostAddr6} {
			if got := kit.OK(t, kit.Limit, exec.Command("curl", "-sf", "http://"+host+"/")); got != "you are "+peer {
				t.Errorf("the server says %q, want %s", got, peer)
			}
		}
		p.Signal(unix.SIGTERM)
		if r := p.Wait(kit.Limit); kit.ShellStatus(r) != 143 {
			t.Errorf("SIGTERM ended it with %v", r)
		}
	})
	t.Run("iperf3", func(t *testing.T) {
		s.Server.Iperf3(t)
		for _, direction := range [][]string{nil, {"-R"}} {
			args := append([]string{"iperf3", "-c", kit.ServerAddr, "-n", "20M", "-P", "2", "-J"}, direction...)
			r := kit.Run(t, kit.Limit, loaded(s, args...))
			if r.Status != 0 || received(t, r.Stdout) < 5e6 { // see below
				t.Errorf("the client, %v: %v", direction, r)
			}
		}
		p := kit.Start(t, loaded(s, "iperf3", "-s"))
		for _, direction := range [][]string{nil, {"-R"}} {
			args := append([]string{"iperf3", "-c", kit.StackAddr, "-n", "20M", "-J"}, direction...)
			var said string
			kit.WaitFor(t, "an iperf3 that answers", kit.Limit, func() bool {
				out, err := exec.Command(args[0], args[1:]...).Output()
				said = string(out)
				return err == nil
			})
			// iperf3 ends the test when the sender has sent all data, even if the
			// receiver has not received all of it.
			if received(t, said) < 5e6 {
				t.Errorf("the server, %v: %s", direction, said)
			}
		}
		p.Signal(unix.SIGKILL)
		p.Wait(kit.Limit)
	})
	before.Settles(kit.Limit)
}

// received returns the number of bytes that arrived, from the output of iperf3 -J.
func received(t *testing.T, text string) float64 {
	t.Helper()
	var said struct {
		End struct {
			Received struct {
				Bytes float64 `json:"bytes"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		t.Errorf("iperf3 -J: %v: %s", err, text)
	}
	return said.End.Received.Bytes
}

// TestPreloadLive checks that lklctl shows and changes the kernel inside the program.
func TestPreloadLive(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{MPTCP: true})
	before := kit.Take(t, s.Server)
	k := s.Talk("--engine", "preload", "--stack", "mptcp", "--if", s.TapIf())
	if cc := k.Connect("a", kit.ServerAddr, 80); cc != "cubic" {
		t.Errorf("the first connection has %s, want cubic", cc)
	}
	kit.Lklctl(t, "sysctl", "-w", "net.ipv4.tcp_congestion_control=bbr")
	if cc := k.Connect("b", kit.ServerAddr, 80); cc != "bbr" {
		t.Errorf("the connection after sysctl -w has %s, want bbr", cc)
	}
	k.Say(`keep.__setitem__("l", socket.create_server(("", 8080)))`)
	if got := k.Say(`keep["a"].getsockopt(1, 38)`); got != "6" { // SO_PROTOCOL
		t.Errorf("SO_PROTOCOL says %s, want 6, TCP", got)
	}

	var sockets []struct {
		Local   string `json:"local"`
		Remote  string `json:"remote"`
		Pid     int    `json:"pid"`
		Process string `json:"process"`
	}
	text := kit.Lklctl(t, "-o", "json", "netstat")
	if err := json.Unmarshal([]byte(text), &sockets); err != nil {
		t.Fatalf("netstat -o json: %v\n%s", err, text)
	}
	target, connections := kit.ProcessOf(t, k, "target_pid"), 0
	for _, x := range sockets {
		if strings.HasPrefix(x.Remote, kit.ServerAddr+":80") && x.Process == "python3" && x.Pid == target {
			connections++
		}
	}
	if connections < 2 || !strings.Contains(text, ":8080") {
		t.Errorf("netstat shows %d connections of python3's and its listener, want 2:\n%s", connections, text)
	}
	if shown := kit.Lklctl(t, "mptcp"); strings.Count(shown, kit.ServerAddr+":80") < 2 || !strings.Contains(shown, "eth0") {
		t.Errorf("lklctl mptcp does not show the connections:\n%s", shown)
	}
	if shown := kit.Lklctl(t, "counters"); !strings.Contains(shown, "TcpActiveOpens") || !strings.Contains(shown, "engine.sockets.stack") {
		t.Errorf("counters lack the stack's or the engine's:\n%s", shown)
	}
	k.Say(`keep["a"].close()`) // the account still contains the connection
	var account struct {
		Processes []struct {
			PID   int    `json:"pid"`
			MPTCP int    `json:"connections_mptcp"`
			Peers []any  `json:"peers"`
			Comm  string `json:"command"`
		} `json:"processes"`
	}
	text = kit.Lklctl(t, "-o", "json", "account")
	if err := json.Unmarshal([]byte(text), &account); err != nil || len(account.Processes) != 1 {
		t.Fatalf("account -o json: %v\n%s", err, text)
	}
	if p := account.Processes[0]; p.PID != target || p.Comm != "python3" || p.MPTCP != 2 || len(p.Peers) != 1 || !strings.Contains(text, kit.ServerAddr+":80") {
		t.Errorf("the account of two connections, one of them closed:\n%s", text)
	}
	k.Connect("a", kit.ServerAddr, 80)
	if rows := kit.Lines(kit.Lklctl(t, "cat", "/proc/net/mptcp")); len(rows) < 3 {
		t.Errorf("/proc/net/mptcp does not list two connections: %q", rows)
	}
	if shown := kit.Lklctl(t, "list"); !strings.Contains(shown, k.Name) || !strings.Contains(shown, "python3") {
		t.Errorf("list does not show the run:\n%s", shown)
	}
	r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "exec", "true"))
	if said := kit.Lines(r.Stderr); r.Status != 2 || len(said) != 1 || !strings.Contains(said[0], "--engine preload") {
		t.Errorf("exec in a kernel of one process: %v", r)
	}
	kit.Lklctl(t, "stop")
	if r := k.Proc.Wait(kit.Limit); kit.ShellStatus(r) != 143 {
		t.Errorf("lklctl stop ended the run with %v, want SIGTERM's 143", r)
	}
	before.Same()
}

// TestPreloadExit checks that exit statuses, signals and Ctrl-C are the target's own.
func TestPreloadExit(t *testing.T) {
	s := kit.NewSite(t)
	before := kit.Take(t, s.Server)
	for _, code := range []int{0, 1, 2, 42, 125, 127, 255} {
		r := kit.Run(t, kit.Limit, loaded(s, "sh", "-c", fmt.Sprintf("exit %d", code)))
		if r.Status != code || r.Stdout != "" || r.Stderr != "" {
			t.Errorf("exit %d became %v", code, r)
		}
	}
	for _, sig := range []syscall.Signal{unix.SIGKILL, unix.SIGTERM, unix.SIGSEGV, unix.SIGHUP, unix.SIGINT, unix.SIGABRT} {
		cmd := loaded(s, "sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", sig))
		r := kit.Run(t, kit.Limit, exec.Command("sh", append([]string{"-c", `"$@"; exit $?`, "sh"}, cmd.Args...)...))
		if want := 128 + int(sig); r.Status != want {
			t.Errorf("signal %d: a shell sees %v, want %d", sig, r, want)
		}
	}
	const python = `
import sys, time
try:
    print("ready")
    while True: time.sleep(0.02) # a signal just before a long one would wait for its end
except KeyboardInterrupt:
    print("bye"); sys.exit(7)`
	want, shownWant := interrupted(t, exec.Command("/usr/bin/python3", "-uc", python))
	got, shown := interrupted(t, loaded(s, "/usr/bin/python3", "-uc", python))
	if got.Status != want.Status || got.Signal != want.Signal || shown != shownWant {
		t.Errorf("Ctrl-C: %v, %q\nwithout lklrun: %v, %q", got, shown, want, shownWant)
	}
	before.Same()
}

// TestPreloadRefused checks programs that cannot be preloaded. They must be refused
// before anything is changed, with a remedy.
func TestPreloadRefused(t *testing.T) {
	s := kit.NewSite(t)
	dir := kit.Dir(t)
	i386 := make([]byte, 52) // Elf32_Ehdr: class 32, little-endian, ET_EXEC, EM_386
	copy(i386, "\x7fELF\x01\x01\x01")
	i386[16], i386[18] = 2, 3
	for name, content := range map[string][]byte{
		"i386": i386, "script": []byte("#!" + kit.Probe() + "\n"),
		"envscript": []byte("#!/usr/bin/env " + kit.Probe() + "\n"), "envnone": []byte("#!/usr/bin/env no-such-command\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	kit.Host.Run(t, "cp", "/bin/ls", dir+"/suid")
	kit.Host.Run(t, "chmod", "4755", dir+"/suid")
	before := kit.Take(t, s.Server)
	for _, tt := range []struct {
		names  string
		status int
		args   []string
	}{
		{"static program.*--engine supervise", 2, []string{"--", kit.Probe()}},
		{"probe is a static program.*--engine supervise", 2, []string{"--", dir + "/script"}},
		{"probe is a static program.*--engine supervise", 2, []string{"--", dir + "/envscript"}},
		{"no-such-command: command not found", 127, []string{"--", dir + "/envnone"}},
		{"suid gains privileges.*--engine supervise", 2, []string{"--", dir + "/suid"}},
		{"32-bit", 126, []string{"--", dir + "/i386"}},
		{"not found", 127, []string{"--", "no-such-command"}},
		{"host's own kernel.*--engine supervise", 2, []string{"--stack", "host", "--", "true"}},
		{"--host-net 10.0.0.0/8.*--engine supervise", 2, []string{"--host-net", "10.0.0.0/8", "--", "true"}},
	} {
		kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun(append([]string{"--engine", "preload"}, tt.args...)...)), tt.status, tt.names)
		before.Same()
		if t.Failed() {
			t.Fatalf("lklrun %s", strings.Join(tt.args, " "))
		}
	}
}

//go:embed testdata/calls_after_fork.py
var callsAfterFork string

// TestPreloadOneProcess checks that only one process has the stack. Programs that this
// process starts or executes have no network, and a message explains this.
func TestPreloadOneProcess(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	script := kit.Dir(t) + "/script"
	kit.WriteFile(t, script, `#!/usr/bin/env -S /usr/bin/python3 -u
import sys, urllib.request
print(sys.argv[1:], sys.argv[0] == `+strconv.Quote(script)+`, urllib.request.urlopen("`+kit.ServerURL+`/hello", timeout=10).read())`)
	kit.Host.Run(t, "chmod", "755", script)
	before := kit.Take(t, s.Server)
	r := kit.Run(t, kit.Limit, loaded(s, "/usr/bin/python3", "-c", fmt.Sprintf(`
import socket, subprocess
s = socket.create_connection((%q, 80), 10)
p = subprocess.run(["curl", "-s", "%s/hello"], stdout=subprocess.PIPE)
print(p.returncode != 0, p.stdout)
s.sendall(b"GET /hello HTTP/1.0\r\n\r\n")
print(s.makefile("rb").read().endswith(b"hello\n"))`, kit.ServerAddr, kit.ServerURL)))
	if r.Status != 0 || r.Stdout != "True b''\nTrue\n" {
		t.Errorf("a child without a stack, a parent with one: %v", r)
	}
	r = kit.Run(t, kit.Limit, loaded(s, "sh", "-c", "exec curl -s "+kit.ServerURL+"/hello"))
	kit.OneLine(t, r, max(r.Status, 1), "executed another program.*--engine supervise")
	// If env executes a program for a script, that program uses the stack.
	if r := kit.Run(t, kit.Limit, loaded(s, script, "a b", "")); r.Status != 0 || r.Stdout != "['a b', ''] True b'hello\\n'\n" || r.Stderr != "" {
		t.Errorf("a script for env: %v", r)
	}
	// Only the first child of a server prints the message.
	r = kit.Run(t, kit.Limit, loaded(s, "/usr/bin/python3", "-c", callsAfterFork, kit.ServerAddr))
	kit.OneLine(t, r, 3, "a child after fork.*--engine supervise")
	before.Same()
}

//go:embed testdata/without_notification.py
var withoutNotification string

// TestPreloadAuto checks a host without user notification. There, --engine auto loads the
// kernel into programs that support it and explains the consequences; doctor must print
// the same explanation.
func TestPreloadAuto(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	old := func(args ...string) kit.Result {
		t.Helper()
		args = append([]string{"-c", withoutNotification, kit.Bin("lklrun")}, args...)
		return kit.Run(t, kit.Limit, exec.Command("/usr/bin/python3", args...))
	}
	before := kit.Take(t, s.Server)
	r := old("--if", s.TapIf(), "--", "curl", "-s", kit.ServerURL+"/hello")
	if r.Status != 0 || r.Stdout != "hello\n" || !strings.Contains(r.Stderr, "loaded into the command") || len(kit.Lines(r.Stderr)) != 1 {
		t.Errorf("auto: %v", r)
	}
	kit.OneLine(t, old("--if", s.TapIf(), "--", kit.Probe(), "x"), 2, "user notification.*static program")
	kit.OneLine(t, old("--engine", "supervise", "--if", s.TapIf(), "--", "true"), 2, "user notification")
	for command, want := range map[string]string{"curl": "preload", kit.Probe(): "", "": "preload"} {
		args := []string{"doctor", "-o", "json"}
		if command != "" {
			args = append(args, command)
		}
		r := old(args...)
		var said struct{ Engine string }
		if err := json.Unmarshal([]byte(r.Stdout), &said); err != nil || said.Engine != want {
			t.Errorf("doctor %s: %v, want %q", command, r, want)
		}
	}
	before.Same()
}
