// SPDX-License-Identifier: Apache-2.0

package link

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/internal/diag/egress"
	"github.com/lklrun/lklrun/test/kit"
)

// A policySite is an egressSite with servers on several addresses, and a policy.
type policySite struct {
	*testing.T
	host, net *kit.Netns
	command   func(args ...string) *exec.Cmd
	dir       string
}

func newPolicySite(t *testing.T) *policySite {
	t.Helper()
	kit.Need(t, "curl", "dig")
	s := &policySite{T: t, dir: kit.Dir(t)}
	s.host, s.net, s.command = egressSite(t, map[string]string{
		"good.test": egressGood, "evil.test": egressEvil, "a.wild.test": egressGood, "rebind.wild.test": egressHost,
	})
	s.host.Addr(t, "v0", "fd71::1/64")
	s.net.Addr(t, "n0", "fd71::2/64", "fd71::3/64")
	kit.WriteFile(t, filepath.Join(s.dir, "www/hello"), "hello\n")
	for _, port := range []int{80, 81, 8080} {
		s.net.PythonHTTP(t, port, filepath.Join(s.dir, "www"))
	}
	s.net.EchoTCP(t, "[fd71::2]:80")
	s.net.EchoTCP(t, "[fd71::3]:80")
	s.net.EchoUDP(t, egressGood+":9")
	s.net.EchoUDP(t, egressGood+":10")
	return s
}

// try prints the result of a connection by TCP or UDP, as program of its own or with exec.
const try = `
import errno, os, socket, sys
for arg in sys.argv[1:]:
    kind, host, port = arg.split(",")
    try:
        family, _, _, _, to = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
        s.settimeout(10)
        s.connect(to)
        if kind == "udp":
            s.send(b"x"); s.recv(9)
        print(arg, "reached")
    except socket.gaierror as e:
        print(arg, "unknown" if e.errno == socket.EAI_NONAME else e)
    except OSError as e:
        print(arg, "refused" if e.errno in (errno.EHOSTUNREACH, errno.EACCES) or kind == "udp" and e.errno == errno.ECONNRESET else e)
`

// run runs try with flags and returns the result of each argument.
func (s *policySite) run(t *testing.T, flags []string, tries ...string) (map[string]string, kit.Result) {
	t.Helper()
	args := slices.Concat([]string{kit.Bin("lklrun"), "--name", kit.NewName()}, flags, []string{"--", "/usr/bin/python3", "-c", try}, tries)
	r := kit.Run(t, 2*kit.Limit, s.command(args...))
	results := map[string]string{}
	for line := range strings.Lines(r.Stdout) {
		arg, result, _ := strings.Cut(strings.TrimSpace(line), " ")
		results[arg] = result
	}
	if len(results) != len(tries) {
		t.Errorf("%d results of %d: %v", len(results), len(tries), r)
	}
	return results, r
}

// decisions reads a log of decisions.
func decisions(t *testing.T, file string) (all []egress.Decision) {
	t.Helper()
	f, err := os.Open(file)
	kit.Must(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var d egress.Decision
		if err := json.Unmarshal(lines.Bytes(), &d); err != nil || d.Time.IsZero() {
			t.Errorf("%s: %v", lines.Text(), err)
		}
		all = append(all, d)
	}
	return all
}

// TestEgressPolicy checks that a policy permits its destinations and nothing else: neither
// other ports, protocols and addresses nor names that resolve to other places. The log has
// each decision.
func TestEgressPolicy(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	policy := kit.WriteFile(t, filepath.Join(s.dir, "policy.json"), `{
  // two names, one network
  "allow": [
    {"to": ["good.test", "*.wild.test"], "ports": [80, "8080-8090"], "protocol": "tcp"},
    {"to": "10.71.8.2/32", "ports": 9, "protocol": "udp"},
    "[fd71::2]:80",
  ],
}`)
	log := filepath.Join(s.dir, "log.json")
	want := map[string]string{
		"tcp,good.test,80": "reached", "tcp,good.test,8080": "reached", "tcp,a.wild.test,80": "reached",
		"udp," + egressGood + ",9": "reached", "tcp,fd71::2,80": "reached",
		"tcp,good.test,81": "refused", "udp,good.test,10": "refused", "udp,good.test,80": "refused", "tcp," + egressGood + ",9": "refused",
		"tcp," + egressEvil + ",80": "refused", "tcp,fd71::3,80": "refused", "tcp,::ffff:" + egressEvil + ",80": "refused", "udp,fd71::2,9": "refused",
		"tcp,evil.test,80": "unknown", "tcp,wild.test,80": "unknown", "tcp,rebind.wild.test,80": "refused", "udp," + egressGood + ",53": "refused",
	}
	tries := slices.Sorted(maps.Keys(want))
	got, r := s.run(t, []string{"--egress", policy, "--egress-log", log}, tries...)
	for arg, result := range want {
		if got[arg] != result {
			t.Errorf("%s: %s, want %s", arg, got[arg], result)
		}
	}
	seen := map[string]egress.Decision{}
	for _, d := range decisions(t, log) {
		seen[fmt.Sprintf("%s %s%s %d %s", d.Protocol, d.Name, d.Address, d.Port, d.Verdict)] = d
	}
	for key, text := range map[string]string{
		"dns good.test 0 allowed":                 "good.test:80/tcp",
		"dns evil.test 0 refused":                 "no rule names it",
		"tcp good.test10.71.8.2 8080 allowed":     "good.test:8080-8090/tcp",
		"udp 10.71.8.2 9 allowed":                 "10.71.8.2:9/udp",
		"tcp fd71::2 80 allowed":                  "[fd71::2]:80",
		"tcp 10.71.8.3 80 refused":                "no allowed name has resolved to this address",
		"udp 10.71.8.2 10 refused":                "is only allowed on ports 8080-8090 of tcp",
		"dns rebind.wild.test10.71.8.1 0 refused": "it is an address of this machine",
	} {
		if d, found := seen[key]; !found || !strings.Contains(d.Rule+d.Reason, text) {
			t.Errorf("%s: %+v, want %s", key, d, text)
		}
	}
	if t.Failed() {
		t.Errorf("%v\n%s", r, kit.ReadFile(t, log))
	}
}

// processTries tries each way to be refused or permitted, and prints its PID.
const processTries = `
import os, socket, sys
for kind, to in (socket.SOCK_STREAM, ("10.71.8.3", 80)), (socket.SOCK_DGRAM, ("10.71.8.3", 9)), (socket.SOCK_STREAM, ("10.71.8.2", 8080)), (socket.SOCK_DGRAM, ("10.71.8.2", 9)):
    s = socket.socket(socket.AF_INET, kind)
    s.settimeout(10)
    try:
        s.connect(to)
        if kind == socket.SOCK_DGRAM:
            s.send(b"x"); s.recv(9)
    except OSError as e:
        print(e, file=sys.stderr)
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.sendto(b"x", ("10.71.8.3", 10))
s.close()
print(os.getpid(), flush=True)
if sys.argv[1] != "preload":
    os.execvp("curl", ["curl", "-sS", "-m", "20", "-o", "/dev/null", "http://good.test/hello"])
`

// TestEgressProcesses checks that the log names the process of each decision, or says that it
// does not know it.
func TestEgressProcesses(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	for _, engine := range []string{"supervise", "trace", "preload"} {
		t.Run(engine, func(t *testing.T) {
			log := filepath.Join(s.dir, engine)
			r := kit.Run(t, 2*kit.Limit, s.command(kit.Bin("lklrun"), "--name", kit.NewName(), "--engine", engine, "--allow", egressGood+":8080", "--allow", egressGood+":9", "--allow", "good.test:80", "--egress-log", log, "--",
				"/usr/bin/python3", "-c", processTries, engine))
			if r.Status != 0 {
				t.Fatal(r)
			}
			pid, names := strings.TrimSpace(r.Stdout), map[string]string{}
			for _, d := range decisions(t, log) {
				key := fmt.Sprintf("%s %s%s %d %s", d.Protocol, d.Name, d.Address, d.Port, d.Verdict)
				if (len(d.Processes) == 0) != (d.Unknown != "") {
					t.Errorf("%s: %+v", key, d)
				}
				for _, p := range d.Processes {
					if names[key] = p.Comm; fmt.Sprint(p.PID) != pid {
						t.Errorf("%s: PID %d, want %s", key, p.PID, pid)
					}
				}
			}
			for key, want := range map[string]string{
				"dns good.test 0 allowed":           "curl",
				"tcp good.test10.71.8.2 80 allowed": "curl",
				"tcp 10.71.8.2 8080 allowed":        "python3",
				"tcp 10.71.8.3 80 refused":          "python3",
				"udp 10.71.8.3 9 refused":           "python3",
				"udp 10.71.8.2 9 allowed":           "python3",
			} {
				if got := names[key]; got != want && engine != "preload" || got != "" && got != want {
					t.Errorf("%s: %q, want %q", key, got, want)
				}
			}
			if got := names["udp 10.71.8.3 10 refused"]; got != "" && got != "python3" {
				t.Errorf("a closed socket: %q", got)
			}
			if t.Failed() {
				t.Errorf("%v\n%s", r, kit.ReadFile(t, log))
			}
		})
	}
}

// TestEgressPolicyIsReadOnce checks that a program that replaces the policy and its links gains
// nothing, and neither does one that replaces the file of the log or of an audit.
func TestEgressPolicyIsReadOnce(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	policy, other := filepath.Join(s.dir, "policy.json"), kit.WriteFile(t, filepath.Join(s.dir, "other"), "other\n")
	kit.WriteFile(t, filepath.Join(s.dir, "real.json"), `{"allow": []}`)
	kit.Must(t, os.Symlink("real.json", policy))
	script := `cd "$1" && echo '{"allow": ["0.0.0.0/0"]}' >real.json && ln -sf other "$2" && ln -sf real.json policy.json
curl -s -m 20 http://` + egressGood + `/hello || echo refused; curl -s -m 20 http://good.test/hello || echo unknown`
	for flags, want := range map[string]string{"--egress=" + policy + " --egress-log=" + s.dir + "/log": "refused\nunknown\n", "--egress=audit:" + s.dir + "/log": "hello\nhello\n"} {
		kit.Must(t, os.WriteFile(filepath.Join(s.dir, "real.json"), []byte(`{"allow": []}`), 0o600))
		r := kit.Run(t, 2*kit.Limit, s.command(slices.Concat([]string{kit.Bin("lklrun"), "--name", kit.NewName()}, strings.Fields(flags), []string{"--", "sh", "-c", script, "sh", s.dir, "log"})...))
		if r.Status != 0 || r.Stdout != want || kit.ReadFile(t, other) != "other\n" {
			t.Errorf("%s: %v", flags, r)
		}
		kit.Must(t, os.Remove(filepath.Join(s.dir, "log")))
	}
}

// TestEgressAudit checks that an audit permits everything, and that the policy that it writes
// permits the same command, and nothing else.
func TestEgressAudit(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	s.host.EchoTCP(t, "127.0.0.1:7777")
	for name, script := range map[string]string{
		"nothing":       "true",
		"curl":          "curl -sS -m 20 http://good.test/hello",
		"names":         "dig +short good.test; dig +tcp +short a.wild.test; curl -sS http://a.wild.test:8080/hello; dig +short nowhere.test",
		"addresses":     `curl -sS http://` + egressGood + `:81/hello; dig +short +tries=1 @` + egressGood + ` good.test; /usr/bin/python3 -c "$TRY" tcp,fd71::2,80 udp,` + egressGood + `,9`,
		"the host":      `/usr/bin/python3 -c "$TRY" tcp,192.168.127.254,7777 tcp,rebind.wild.test,80`,
		"a closed port": `/usr/bin/python3 -c "$TRY" tcp,good.test,82`,
		"fronting":      `curl -sS -m 20 -H "Host: evil.test" http://good.test/hello`,
		"other kinds":   "ping -c 1 -W 10 " + egressGood + " >/dev/null; dig +short TXT good.test >/dev/null",
	} {
		t.Run(name, func(t *testing.T) {
			policy := filepath.Join(s.dir, name+".json")
			run := func(flag string) kit.Result {
				cmd := s.command(kit.Bin("lklrun"), "--name", kit.NewName(), "--egress", flag, "--", "sh", "-c", script)
				cmd.Env = append(cmd.Environ(), "TRY="+try)
				return kit.Run(t, 2*kit.Limit, cmd)
			}
			first := run("audit:" + policy)
			text := kit.ReadFile(t, policy)
			second := run(policy)
			if strings.Contains(first.Stderr, "refused ") || !strings.Contains(first.Stderr, "review it before use") || first.Status != 0 {
				t.Errorf("audit: %v", first)
			}
			if name == "other kinds" {
				for _, line := range []string{"// No policy permits this: icmp " + egressGood, "// No policy permits this: a query for the name good.test", "{\n  \"allow\": [\n  ]"} {
					if !strings.Contains(text, line) {
						t.Errorf("the policy lacks %q:\n%s", line, text)
					}
				}
				return
			}
			if second.Status != 0 || second.Stdout != first.Stdout || strings.Contains(first.Stdout, "unknown") || strings.Contains(second.Stderr, "refused ") && name != "names" {
				t.Errorf("first %v\nsecond %v\n%s", first, second, text)
			}
			for name, lines := range map[string]string{
				"names":    "\n    \"a.wild.test:8080/tcp\",\n    \"good.test/dns\",\n  ]", // by the Host that curl sent
				"fronting": "\n    \"10.71.8.2:80/tcp\",\n    \"good.test/dns\",\n  ]",
			} {
				if t.Name() == "TestEgressAudit/"+name && !strings.Contains(text, lines) {
					t.Errorf("the policy lacks %s:\n%s", lines, text)
				}
			}
			got, _ := s.run(t, []string{"--egress", policy}, "tcp,evil.test,80", "tcp,"+egressEvil+",80", "udp,"+egressEvil+",9", "tcp,fd71::3,80")
			for arg, result := range got {
				if result != "refused" && result != "unknown" {
					t.Errorf("%s: %s\n%s", arg, result, text)
				}
			}
		})
	}
}

// TestEgressFlags checks that a bad policy ends lklrun with one line that names the place.
func TestEgressFlags(t *testing.T) {
	t.Parallel()
	dir := kit.Dir(t)
	bad := kit.WriteFile(t, filepath.Join(dir, "bad.json"), "{\n  // names\n  \"allow\": [\n    \"a b\"\n  ]\n}\n")
	good := kit.WriteFile(t, filepath.Join(dir, "good.json"), `{"allow": []}`)
	pipe := filepath.Join(dir, "pipe")
	kit.Must(t, unix.Mkfifo(pipe, 0o600))
	for names, args := range map[string][]string{
		"bad.json:4: allow[0]: \"a b\"|expected NAME": {"--egress", bad},
		"--egress: " + dir + "/none: no such file":    {"--egress", dir + "/none"},
		"audit:FILE":                           {"--egress", "audit"},
		"--egress: " + dir + "/no/p: no such":  {"--egress", "audit:" + dir + "/no/p"},
		"--egress-log: " + dir + ": is a dire": {"--egress", good, "--egress-log", dir},
		"no process reads this pipe":           {"--egress", good, "--egress-log", pipe},
		"no decisions to log":                  {"--egress-log", dir + "/log"},
		"permits everything":                   {"--egress", "audit:" + dir + "/x", "--allow", "a.test"},
		"with --egress|remove --host-net":      {"--egress", good, "--host-net", "127.0.0.1"},
		"with --egress|remove --publish":       {"--egress", "audit:" + dir + "/x", "--publish", "8080:80"},
		"use --if user":                        {"--egress", good, "--if", "tap:tap0,ip=10.0.0.1/24"},
	} {
		kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun(append(args, "--", "true")...)), 2, names)
	}
	out := kit.OK(t, kit.Limit, kit.Lklrun("--dry-run", "--egress", good, "--", "true"))
	if !strings.Contains(out, "egress    "+good+"\n") || !strings.Contains(out, "only to allowed destinations") {
		t.Error(out)
	}
}

// tlsServer answers each TLS connection with the name that its client said.
const tlsServer = `
import os, socket, ssl, subprocess, sys, threading
os.chdir(sys.argv[1])
subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "k", "-out", "c", "-subj", "/CN=x", "-days", "2"], check=True, stderr=subprocess.DEVNULL)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("c", "k")
context.sni_callback = lambda s, name, _: setattr(s, "said", name)
def serve(conn):
    try:
        s = context.wrap_socket(conn, server_side=True)
        s.recv(9999)
        s.sendall(b"HTTP/1.0 200 OK\r\n\r\nTLS for %s\n" % str(getattr(s, "said", None)).encode())
        s.close()
    except OSError:
        pass
l = socket.create_server(("0.0.0.0", 443))
while True:
    threading.Thread(target=serve, args=(l.accept()[0],), daemon=True).start()
`

// slowHello sends a ClientHello, or other bytes, one by one, and prints the answer.
const slowHello = `
import socket, ssl, sys
sent = sys.argv[3].encode().decode("unicode_escape").encode("latin-1")
if not sent:
    out = ssl.MemoryBIO()
    c = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE
    try: c.wrap_bio(ssl.MemoryBIO(), out, server_hostname=sys.argv[4]).do_handshake()
    except ssl.SSLWantReadError: pass
    sent = out.read()
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
try:
    for n in range(len(sent)): s.send(sent[n:n+1])
    got = s.recv(9999)
    print("answer" if got else "end")
except ConnectionError: print("reset")
`

// TestEgressSharedAddress checks that a program reaches only permitted names at an address that
// they share with others, whatever it says first.
func TestEgressSharedAddress(t *testing.T) {
	t.Parallel()
	kit.Need(t, "openssl")
	s := newPolicySite(t)
	server := kit.Start(t, s.net.Command("/usr/bin/python3", "-c", tlsServer, s.dir))
	kit.WaitFor(t, "the TLS server", kit.Limit, func() bool { return s.net.Listening(t, "t", 443) || !server.Running() })
	s.net.EchoTCP(t, "0.0.0.0:2222")
	curl := func(args ...string) []string { return append([]string{"curl", "-sSk", "-m", "20"}, args...) }
	python := func(args ...string) []string {
		return append([]string{"/usr/bin/python3", "-c", slowHello}, args...)
	}
	byName := []string{"--allow", "good.test:80", "--allow", "good.test:443", "--allow", "good.test:2222", "--allow", "a.wild.test:8080"}
	const evil = "GET /hello HTTP/1.1\\r\\nHost: evil.test\\r\\n\\r\\n"
	for name, tt := range map[string]struct {
		flags, command []string
		stdout, stderr string
	}{
		"TLS":                    {byName, curl("https://good.test/"), "TLS for good.test\n", ""},
		"TLS 1.2":                {byName, curl("--tls-max", "1.2", "https://good.test/"), "TLS for good.test\n", ""},
		"fronting by TLS":        {byName, curl("--connect-to", "evil.test:443:good.test:443", "https://evil.test/"), "", `refused tcp 10.71.8.2:443: the program asks TLS for "evil.test", which no rule permits at this address`},
		"fronting by TLS 1.2":    {byName, curl("--tls-max", "1.2", "--connect-to", "evil.test:443:good.test:443", "https://evil.test/"), "", `asks TLS for "evil.test"`},
		"a name on another port": {byName, curl("--connect-to", "a.wild.test:443:good.test:443", "https://a.wild.test/"), "", `asks TLS for "a.wild.test"`},
		"TLS without a name":     {byName, []string{"sh", "-c", "openssl s_client -quiet -noservername -connect good.test:443 </dev/null 2>/dev/null; true"}, "", "asks TLS for no name; only --allow 10.71.8.2 permits that"},
		"bytes of a hello":       {byName, python("good.test", "443", "", "good.test"), "answer\n", ""},
		"bytes of another hello": {byName, python("good.test", "443", "", "evil.test"), "reset\n", `asks TLS for "evil.test"`},
		"a rule for the address": {[]string{"--allow", egressGood}, curl("--connect-to", "evil.test:443:"+egressGood+":443", "https://evil.test/"), "TLS for evil.test\n", ""},
		"HTTP":                   {byName, curl("http://good.test/hello"), "hello\n", ""},
		"fronting by HTTP":       {byName, curl("-H", "Host: evil.test", "http://good.test/hello"), "", `refused tcp 10.71.8.2:80: the program asks HTTP for "evil.test"`},
		"an absolute target":     {byName, curl("--proxy", "http://good.test:80", "http://evil.test/hello"), "", `asks HTTP for "evil.test"`},
		"a tunnel":               {byName, curl("--proxytunnel", "--proxy", "http://good.test:80", "http://evil.test/hello"), "", `asks HTTP for "evil.test"`},
		"bytes of a request":     {byName, python("good.test", "80", strings.ReplaceAll(evil, "evil", "good")), "answer\n", ""},
		"bytes of another":       {byName, python("good.test", "80", evil), "reset\n", `asks HTTP for "evil.test"`},
		"two hosts":              {byName, python("good.test", "80", "GET /hello HTTP/1.1\\r\\nHost: good.test\\r\\nhost : evil.test\\r\\n\\r\\n"), "reset\n", `asks HTTP for "evil.test"`},
		"another protocol":       {byName, python("good.test", "2222", "ping"), "answer\n", ""},
		"the engine preload":     {append(byName, "--engine", "preload"), curl("-H", "Host: evil.test", "http://good.test/hello"), "", `asks HTTP for "evil.test"`},
	} {
		for _, iface := range gateways {
			t.Run(iface+"/"+name, func(t *testing.T) {
				r := kit.Run(t, 2*kit.Limit, s.command(slices.Concat([]string{kit.Bin("lklrun"), "--name", kit.NewName(), "--if", iface}, tt.flags, []string{"--"}, tt.command)...))
				refusals := strings.Count(r.Stderr, "lklrun: eth0: refused tcp ")
				if r.Stdout != tt.stdout || !strings.Contains(r.Stderr, tt.stderr) || (refusals == 1) != (tt.stderr != "") {
					t.Errorf("want %q and %q: %v", tt.stdout, tt.stderr, r)
				}
			})
		}
	}
}

// TestEgressQUIC checks that the name in the first packets of QUIC must be permitted, with the
// hello of quic-go, which spans two datagrams and is out of order.
func TestEgressQUIC(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	server := kit.Start(t, s.net.Command(kit.Program("http3"), "serve", "0.0.0.0", "443"))
	kit.WaitFor(t, "the HTTP/3 server", kit.Limit, func() bool { return s.net.Listening(t, "u", 443) || !server.Running() })
	byName := []string{"--allow", "good.test:443", "--allow", "a.wild.test:443/tcp"}
	for name, tt := range map[string]struct {
		flags []string
		args  []string
		line  string
	}{
		"the name":               {byName, []string{"good.test", "443", "3000000"}, ""},
		"another name":           {byName, []string{"good.test", "443", "1000", "evil.test"}, `refused udp 10.71.8.2:443: the program asks QUIC for "evil.test", which no rule permits at this address`},
		"a name of TCP":          {byName, []string{"good.test", "443", "1000", "a.wild.test"}, `asks QUIC for "a.wild.test"`},
		"no name":                {byName, []string{"good.test", "443", "1000", egressGood}, "asks QUIC for no name; only --allow 10.71.8.2 permits that"},
		"a rule for the address": {[]string{"--allow", egressGood}, []string{egressGood, "443", "1000", "evil.test"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			args := slices.Concat([]string{kit.Bin("lklrun"), "--name", kit.NewName()}, tt.flags, []string{"--", kit.Program("http3"), "get"}, tt.args)
			r := kit.Run(t, 2*kit.Limit, s.command(args...))
			if (r.Status == 0) != (tt.line == "") || strings.Contains(r.Stdout, "Gbit/s") != (tt.line == "") || !strings.Contains(r.Stderr, tt.line) || tt.line != "" && strings.Count(r.Stderr, "refused udp 10.71.8.2:443: ") != 1 {
				t.Errorf("want %q: %v", tt.line, r)
			}
		})
	}
}

// crowd opens 1000 connections at once: a quarter each to a permitted place, to another port,
// to another address, and with another name. It prints how many had each result.
const crowd = `
import asyncio, collections
async def one(n, all):
    host, port, name = [("good.test", 80, "good.test"), ("good.test", 81, "good.test"), ("10.71.8.3", 80, "good.test"), ("good.test", 80, "evil.test")][n % 4]
    try:
        r, w = await asyncio.open_connection(host, port)
        w.write(b"GET /hello HTTP/1.0\r\nHost: %s\r\n\r\n" % name.encode())
        got = await r.read()
        w.close()
        all[(n % 4, "answer" if got.endswith(b"hello\n") else "end")] += 1
    except OSError as e:
        all[(n % 4, "refused")] += 1
async def main():
    all = collections.Counter()
    await asyncio.gather(*(one(n, all) for n in range(1000)))
    print(sorted(all.items()))
asyncio.run(main())
`

// TestEgressCrowd checks that no refused connection gets through among many at once.
func TestEgressCrowd(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	for _, iface := range gateways {
		log := filepath.Join(s.dir, iface)
		r := kit.Run(t, 3*kit.Limit, s.command(kit.Bin("lklrun"), "--name", kit.NewName(), "--if", iface, "--allow", "good.test:80", "--egress-log", log, "--", "/usr/bin/python3", "-c", crowd))
		if want := "[((0, 'answer'), 250), ((1, 'refused'), 250), ((2, 'refused'), 250), ((3, 'refused'), 250)]\n"; r.Status != 0 || r.Stdout != want {
			t.Errorf("%s: want %s: %v", iface, want, r)
		}
		verdicts := map[string]int{}
		for _, d := range decisions(t, log) {
			verdicts[d.Protocol+" "+d.Verdict]++
		}
		if verdicts["tcp allowed"] != 500 || verdicts["tcp refused"] < 750 {
			t.Errorf("%s: the log has %v", iface, verdicts)
		}
	}
}

// bulk sends to a server that does not read, and meanwhile much data both ways to one that
// echoes, with a reset by the server and an end by each side.
const bulk = `
import os, random, socket, sys, threading
mute = socket.create_connection(("good.test", 2223), 20)
mute.setblocking(False)
try:
    while True: mute.send(b"x" * 65536)
except BlockingIOError: pass
def echo(data):
    s = socket.create_connection(("good.test", 2222), 60)
    def send():
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
    t = threading.Thread(target=send)
    t.start()
    got = bytearray()
    while b := s.recv(1 << 20): got += b
    t.join()
    return got == data
print("echo", [echo(os.urandom(n)) for n in (1, 5000000, 30000000)])
bad = [n for n in range(100000, 500000, 6500) if not echo(os.urandom(n))]
print("near the change", bad)
def turns(n):
    s = socket.create_connection(("good.test", 2222), 60)
    for _ in range(n):
        data = os.urandom(random.randrange(1, 3000))
        s.sendall(data)
        if s.recv(len(data), socket.MSG_WAITALL) != data: return False
    s.shutdown(socket.SHUT_WR)
    return s.recv(1) == b""
print("round trips", [n for n in range(1, 33) if not turns(n)])
s = socket.create_connection(("good.test", 2224), 60)
s.sendall(b"go")
got = 0
try:
    while b := s.recv(1 << 20): got += len(b)
    print("end", got)
except ConnectionResetError: print("reset", got > 0)
`

// TestEgressBulk checks the data of connections with rules for names, before and after the
// gateway has checked what the program says, and that a server that does not read delays no
// other connection.
func TestEgressBulk(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	s.net.EchoTCP(t, "0.0.0.0:2222")
	s.net.Listen(t, "0.0.0.0:2223")
	resets := s.net.Listen(t, "0.0.0.0:2224")
	go func() {
		for {
			conn, err := resets.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 9))
			_, _ = conn.Write(make([]byte, 8<<20)) // the client reports what it got
			_ = conn.(*net.TCPConn).SetLinger(0)
			conn.Close()
		}
	}()
	for _, iface := range gateways {
		for _, engine := range []string{"supervise", "preload"} {
			r := kit.Run(t, 3*kit.Limit, s.command(kit.Bin("lklrun"), "--name", kit.NewName(), "--engine", engine, "--if", iface, "--allow", "good.test", "--", "/usr/bin/python3", "-c", bulk))
			if want := "echo [True, True, True]\nnear the change []\nround trips []\nreset True\n"; r.Status != 0 || r.Stdout != want {
				t.Errorf("%s, %s: %v", iface, engine, r)
			}
		}
	}
}

// stuck ends while the gateway has begun to hand a connection over, whose server has stopped to
// read.
const stuck = `
import os, socket
s = socket.create_connection(("good.test", 2222), 20)
for _ in range(7):
    s.sendall(b"x")
    s.recv(1)
s.setblocking(False)
try:
    while True: s.send(b"x" * 65536)
except BlockingIOError: pass
print("full", flush=True)
os._exit(0)
`

// TestEgressStuck checks that a server that does not read cannot delay the end of a run for
// longer than the gateway waits for the last data.
func TestEgressStuck(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	servers := s.net.Listen(t, "0.0.0.0:2222")
	raw, err := servers.(*net.TCPListener).SyscallConn()
	kit.Must(t, err)
	kit.Must(t, raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 4096) }), err)
	go func() {
		for {
			conn, err := servers.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			_, _ = io.CopyN(conn, conn, 7) // the client reports what it got
		}
	}()
	for _, iface := range gateways {
		r := kit.Run(t, kit.Limit, s.command(kit.Bin("lklrun"), "--name", kit.NewName(), "--if", iface, "--allow", "good.test", "--", "/usr/bin/python3", "-c", stuck))
		if r.Status != 0 || r.Stdout != "full\n" {
			t.Errorf("%s: %v", iface, r)
		}
	}
}

// changing waits for a line before each try. A connection stays open all the time.
const changing = `
import socket, sys
def reach(host, port):
    try: return socket.create_connection((host, port), 20)
    except OSError: return None
def ask(s):
    try:
        s.send(b"x")
        return s.recv(1) == b"x"
    except OSError: return False
old = reach("10.71.8.2", 2222)
print("open", ask(old), flush=True)
for line in sys.stdin:
    host, port = line.split()
    s = reach(host, int(port))
    print("new", s is not None, "old", ask(old), flush=True)
`

// TestEgressChange checks that lklctl changes the rules of a run, that existing connections
// continue, and that the program itself can change nothing.
func TestEgressChange(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	s.net.EchoTCP(t, "0.0.0.0:2222")
	name, log := kit.NewName(), filepath.Join(s.dir, "log")
	cmd := s.command(kit.Bin("lklrun"), "--name", name, "--allow", egressGood+":2222", "--egress-log", log, "--", "/usr/bin/python3", "-c", changing)
	stdin, err := cmd.StdinPipe()
	kit.Must(t, err)
	p := kit.Start(t, cmd)
	want := "open True\n"
	expect := func() {
		t.Helper()
		kit.WaitFor(t, want, kit.Limit, func() bool { out, _ := p.Output(); return len(out) >= len(want) || !p.Running() })
	}
	try := func(to, result string) {
		t.Helper()
		_, err := fmt.Fprintln(stdin, to)
		kit.Must(t, err)
		want += "new " + result + " old True\n"
		expect()
	}
	expect()
	try("good.test 80", "False")
	kit.Lklctl(t, "-n", name, "egress", "add", "Good.test:80", egressEvil+":2222")
	try("good.test 80", "True")
	try(egressEvil+" 2222", "True")
	kit.Lklctl(t, "-n", name, "egress", "remove", "good.test:80", egressGood+":2222")
	try("good.test 80", "False")
	try(egressGood+" 80", "False")
	try(egressGood+" 2222", "False")
	try(egressEvil+" 2222", "True")
	for names, args := range map[string][]string{
		"there is no rule good.test:80; lklctl egress lists": {"remove", "good.test:80"},
		"neither a host name":                                {"add", egressGood, "127.1"},
	} {
		r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), append([]string{"-n", name, "egress"}, args...)...))
		if r.Status != 2 || !strings.Contains(r.Stderr, names) || strings.Count(r.Stderr, "\n") != 1 {
			t.Errorf("%s: %v", names, r)
		}
	}
	try(egressGood+" 80", "False")
	inside := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", name, "exec", "--", kit.Bin("lklctl"), "-n", name, "egress", "add", egressGood+":80"))
	if inside.Status == 0 {
		t.Errorf("the program changes its rules: %v", inside)
	}
	try(egressGood+" 80", "False")
	stdin.Close()
	r := p.Wait(kit.Limit)
	if r.Stdout != want || !strings.Contains(r.Stderr, "lklrun: eth0: added the rule good.test:80\n") || !strings.Contains(r.Stderr, "removed the rule "+egressGood+":2222\n") {
		t.Errorf("want %s: %v", want, r)
	}
	if text := kit.ReadFile(t, log); !strings.Contains(text, `"verdict":"added","rule":"good.test:80"}`) || !strings.Contains(text, `"verdict":"removed","rule":"good.test:80"}`) {
		t.Error(text)
	}
}

// spending opens many connections at once, sends on each, and prints how many it opened.
const spending = `
import socket, sys, threading
opened = []
def spend(port):
    try:
        s = socket.create_connection(("10.71.8.2", port), 20)
    except OSError:
        return
    opened.append(port)
    try:
        for _ in range(50): s.sendall(b"x" * 1000)
        s.shutdown(socket.SHUT_WR)
        while s.recv(4096): pass
    except OSError:
        pass
def datagrams():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.connect(("10.71.8.2", 9))
    s.settimeout(0.5)
    try:
        for n in range(100):
            s.send(b"x" * 100)
            s.recv(200)
    except OSError: pass
    print("datagrams", n)
all = [threading.Thread(target=spend, args=[port]) for port in (2222, 2223) for _ in range(40)]
for t in all: t.start()
for t in all: t.join()
datagrams()
print("opened", opened.count(2222))
`

// TestEgressLimits checks that a program gets no more connections and sends no more bytes than
// its rules permit, with many connections at once.
func TestEgressLimits(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	s.net.EchoTCP(t, "0.0.0.0:2222")
	sink := s.net.Listen(t, "0.0.0.0:2223")
	var received atomic.Int64
	go func() {
		for {
			conn, err := sink.Accept()
			if err != nil {
				return
			}
			go func() {
				n, _ := io.Copy(io.Discard, conn) // ends with a reset
				received.Add(n)
				conn.Close()
			}()
		}
	}()
	policy := kit.WriteFile(t, filepath.Join(s.dir, "policy.json"), `{"allow": [
  {"to": "10.71.8.2", "ports": 2222, "connections": 7},
  {"to": "10.71.8.2", "ports": 2223, "sent": "100K"},
  "10.71.8.2:9/udp,sent=2000"
]}`)
	for _, iface := range gateways {
		received.Store(0)
		r := kit.Run(t, 3*kit.Limit, s.command(kit.Bin("lklrun"), "--name", kit.NewName(), "--if", iface, "--egress", policy, "--", "/usr/bin/python3", "-c", spending))
		if r.Stdout != "datagrams 20\nopened 7\n" || r.Status != 0 {
			t.Errorf("%s: %v", iface, r)
		}
		for _, line := range []string{
			"refused tcp 10.71.8.2:2222: the rule 10.71.8.2:2222,connections=7 permits no more connections",
			"refused tcp 10.71.8.2:2223: the rule 10.71.8.2:2223,sent=100K permits no more bytes",
			"refused udp 10.71.8.2:9: the rule 10.71.8.2:9/udp,sent=2000 permits no more bytes",
		} {
			if strings.Count(r.Stderr, line+"\n") != 1 {
				t.Errorf("%s: %s: %v", iface, line, r)
			}
		}
		if n := received.Load(); n > 100<<10 || n == 0 {
			t.Errorf("%s: the server received %d bytes, want 102400 at most", iface, n)
		}
	}
}

// TestEgressVerb checks that lklctl egress shows all rules of a long policy with their counts.
func TestEgressVerb(t *testing.T) {
	t.Parallel()
	s := newPolicySite(t)
	var ports []string
	for n := range 250 {
		ports = append(ports, fmt.Sprint(8000+n))
	}
	policy := kit.WriteFile(t, filepath.Join(s.dir, "policy.json"), `{"allow": [{"to": "good.test", "ports": [`+strings.Join(ports, ",")+`]}]}`)
	name := kit.NewName()
	cmd := s.command(kit.Bin("lklrun"), "--name", name, "--egress", policy, "--", "sh", "-c", "curl -sS http://good.test:8080/hello; read x")
	stdin, err := cmd.StdinPipe()
	kit.Must(t, err)
	p := kit.Start(t, cmd)
	kit.WaitFor(t, "the answer", kit.Limit, func() bool { out, _ := p.Output(); return strings.Contains(out, "hello") || !p.Running() })
	var a egress.Account
	kit.Must(t, json.Unmarshal([]byte(kit.Lklctl(t, "-n", name, "egress", "-o", "json")), &a))
	if len(a.Rules) != 250 || a.Policy != policy || a.Rules[249].Rule != "good.test:8249" || a.Rules[80].Connections != 1 || a.Rules[79].Connections != 0 || a.Rules[0].Queries == 0 {
		t.Errorf("%+v", a)
	}
	if table := kit.Lklctl(t, "-n", name, "egress"); !strings.Contains(table, "policy: "+policy) || !strings.Contains(table, "good.test:8249") {
		t.Error(table)
	}
	stdin.Close()
	p.Wait(kit.Limit)
}
