// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/internal/diag/explain"
	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/explain.py
var explainProgram string

// newEnd starts a talker with the functions of testdata/explain.py.
func newEnd(t *testing.T, flags ...string) *kit.Talker {
	t.Helper()
	name := kit.NewName()
	k := kit.StartTalker(t, name, kit.Lklrun(append(append([]string{"--name", name}, flags...), "--", "/usr/bin/python3", "-uc", kit.TalkerProgram)...))
	if got := k.Say("exec(%s)", pythonString(explainProgram)); got != "None" {
		t.Fatal(got)
	}
	return k
}

// pythonString quotes text for Python. JSON strings are Python strings, too.
func pythonString(text string) string {
	b, _ := json.Marshal(text) // a string has no errors
	return string(b)
}

// explained observes an end, and returns its report.
func explained(t *testing.T, k *kit.Talker, args ...string) (r explain.Report) {
	t.Helper()
	text := kit.Lklctl(t, append([]string{"-n", k.Name, "-o", "json", "explain"}, args...)...)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A situation is a transfer between two ends with one limit.
type situation struct {
	name          string
	path          []string // lklctl path at the sender
	far           []string // lklctl path at the receiver
	receive, send string   // arguments of receive and send in testdata/explain.py
	at            string   // the end that is examined: sender or receiver
	want          explain.Code
	text          []string // parts of the explanation
	warm          int      // bytes to wait for before the observation
	over          string   // an interface of the sender that must carry data before it
	loopback      bool     // both ends are one
	discipline    []string // arguments of tc qdisc at the sender, whose engine must be supervise
}

var situations = []situation{
	{name: "a program that sends little", send: "chunk=10000, pause=0.05", want: explain.Program, text: []string{"The program limits", "no data to send"}},
	{name: "requests and answers", far: []string{"delay", "10ms", "--direction", "in"}, receive: "answer=1", send: "chunk=100, answer=1", want: explain.Program, text: []string{"The program limits"}},
	{name: "an idle connection", send: "total=0", warm: -1, want: explain.Idle, text: []string{"Nothing limits"}},
	{name: "a small send buffer", far: []string{"delay", "30ms", "--direction", "in"}, send: "sndbuf=8192", want: explain.SendBuffer, text: []string{"The send buffer limits", "SO_SNDBUF"}},
	{name: "a peer that reads slowly", receive: "chunk=20000, pause=0.1", send: "", want: explain.PeerWindow, text: []string{"reads too slowly"}},
	{name: "a program that reads slowly", receive: "chunk=20000, pause=0.1", send: "", at: "receiver", want: explain.Reader, text: []string{"reads too slowly", "wait for the program"}},
	{name: "a small window of the peer", far: []string{"delay", "30ms", "--direction", "in"}, receive: "rcvbuf=8192", want: explain.PeerWindow, text: []string{"too small for the round-trip time", "SO_RCVBUF"}},
	{name: "a small receive buffer", far: []string{"delay", "30ms", "--direction", "in"}, receive: "rcvbuf=8192", at: "receiver", want: explain.ReceiveBuffer, text: []string{"SO_RCVBUF"}},
	{name: "a rate of the program", send: "pacing=500000", want: explain.Pacing, text: []string{"4.00Mbit/s (SO_MAX_PACING_RATE)"}},
	{name: "loss on the own interface", path: []string{"delay", "20ms", "loss", "1%", "--direction", "out"}, send: "", want: explain.Loss, text: []string{"Packet loss limits", "over eth0", "lklctl path drops 1.0%", "lklctl path eth0 clear"}},
	{name: "loss on the path", far: []string{"delay", "20ms", "loss", "1%", "--direction", "in"}, send: "", want: explain.Loss, text: []string{"lost beyond eth0"}},
	{name: "loss before the receiver", path: []string{"delay", "20ms", "loss", "1%", "--direction", "out"}, at: "receiver", want: explain.Loss, text: []string{"out of order"}},
	{name: "the rate of the own interface", path: []string{"rate", "10mbit", "--direction", "out"}, want: explain.PathRate, text: []string{"lklctl path limits eth0 to 10.0Mbit/s"}},
	{name: "the rate of a queueing discipline", discipline: []string{"tbf", "rate", "8mbit", "burst", "20kb", "latency", "200ms"}, want: explain.PathRate, text: []string{"tbf of eth0 delays packets"}},
	{name: "a long queue on the path", far: []string{"rate", "10mbit", "limit", "1000", "--direction", "in"}, warm: 600000, want: explain.PathRate, text: []string{"(bufferbloat)", "beyond eth0"}},
	{name: "a path with a long round trip", far: []string{"delay", "300ms", "--direction", "in"}, send: "", want: explain.Congestion, text: []string{"Loss is not the cause"}},
}

// TestExplain checks that explain names the right limit first, in transfers that have
// exactly one.
func TestExplain(t *testing.T) {
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			wire := kit.NewName()
			end := func(n int) *kit.Talker {
				return newEnd(t, "--engine", engine, "--stack", "vanilla", "--if", fmt.Sprintf("wire:%s,ip=10.97.0.%d/24", wire, n))
			}
			sender, receiver := end(1), end(2)
			for n, s := range situations {
				if engine == "preload" && len(s.discipline) > 0 {
					continue // lklctl exec requires supervise
				}
				t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
					sender.T, receiver.T = t, t
					s.examine(t, sender, receiver, "10.97.0.2", 5000+n)
				})
			}
			sender.T, receiver.T = t, t
		})
	}
}

// examine makes the situation, examines one of the ends, and ends the situation.
func (s *situation) examine(t *testing.T, sender, receiver *kit.Talker, address string, port int) {
	t.Helper()
	for k, words := range map[*kit.Talker][]string{sender: s.path, receiver: s.far} {
		if len(words) > 0 {
			kit.Lklctl(t, append([]string{"-n", k.Name, "path", "eth0"}, words...)...)
			defer kit.Lklctl(t, "-n", k.Name, "path", "eth0", "clear")
		}
	}
	if len(s.discipline) > 0 {
		kit.OK(t, kit.Limit, sender.Inside(append([]string{"tc", "qdisc", "replace", "dev", "eth0", "root"}, s.discipline...)...))
		defer func() { kit.OK(t, kit.Limit, sender.Inside("tc", "qdisc", "del", "dev", "eth0", "root")) }()
	}
	say := func(k *kit.Talker, format string, args ...any) string {
		t.Helper()
		got := k.Say(format, args...)
		if strings.Contains(got, "Error") {
			t.Fatalf("%s: %s", fmt.Sprintf(format, args...), got)
		}
		return got
	}
	say(receiver, "receive(%d, dict(%s))", port, s.receive)
	say(sender, "send(%q, %d, dict(%s))", address, port, s.send)
	defer func() {
		say(sender, "stop()")
		say(receiver, "stop()")
	}()
	kit.WaitFor(t, "the transfer", kit.Limit, func() bool {
		var n int
		_, err := fmt.Sscan(say(receiver, "got[0]"), &n)
		return err == nil && n > s.warm && (s.over == "" || sent(t, sender, s.over) > 20000)
	})
	k := sender
	if s.at == "receiver" {
		k = receiver
	}
	// On a busy machine, the programs themselves sometimes limit a transfer, because they
	// wait for a core.
	var r explain.Report
	for range attempts {
		if r = s.observe(t, k, port); r.Connections[0].Limits[0].Code == s.want {
			break
		}
	}
	if l := r.Connections[0].Limits[0]; l.Code != s.want {
		t.Errorf("the first limit is %s, want %s: %+v", l.Code, s.want, r.Connections[0].Limits)
	}
	for _, part := range s.text {
		if !strings.Contains(r.Text, part) {
			t.Errorf("the explanation lacks %q", part)
		}
	}
}

// sent returns the bytes that an interface has sent.
func sent(t *testing.T, k *kit.Talker, iface string) int {
	t.Helper()
	_, counters, _ := strings.Cut(kit.Lklctl(t, "-n", k.Name, "cat", "/proc/net/dev"), iface+":")
	n, err := strconv.Atoi(strings.Fields(counters)[8])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// attempts is the largest number of observations of a situation.
const attempts = 5

// observe explains the only connection with a port; in a loopback, the end with more data.
func (s *situation) observe(t *testing.T, k *kit.Talker, port int) explain.Report {
	t.Helper()
	r := explained(t, k, "dport", "=", fmt.Sprintf(":%d", port), "or", "sport", "=", fmt.Sprintf(":%d", port))
	if s.loopback && len(r.Connections) == 2 {
		r.Connections = r.Connections[:1]
	}
	if len(r.Connections) != 1 || len(r.Connections[0].Limits) == 0 {
		t.Fatalf("not one connection with limits: %+v", r)
	}
	t.Log(r.Text)
	return r
}

// TestExplainCPU checks a transfer inside one stack, whose thread serves both ends.
func TestExplainCPU(t *testing.T) {
	k := newEnd(t, "--engine", "supervise", "--stack", "vanilla")
	s := situation{name: "loopback", want: explain.CPU, text: []string{"The CPU limits"}, loopback: true}
	s.examine(t, k, k, "127.0.0.1", 5000)
}

// TestExplainGateway checks a transfer through lklrun's gateway: to a server that reads as
// fast as it can, and to one that reads slowly.
func TestExplainGateway(t *testing.T) {
	for _, tt := range []struct{ name, receive, text string }{
		{"fast", "", "the gateway, in lklrun and a kernel of its own, uses or waits for"},
		{"slow", "chunk=20000, pause=0.1", "The connection behind lklrun's gateway limits"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := newEnd(t, "--stack", "host")
			k := newEnd(t, "--stack", "vanilla")
			s := situation{name: "gateway", receive: tt.receive, want: explain.Gateway, text: []string{tt.text}}
			s.examine(t, k, server, "192.168.127.254", 5000)
		})
	}
}

// TestExplainSlowPath checks an MPTCP connection over two wires, of which one is slow, to a
// receiver whose buffer cannot hold what waits for that path.
func TestExplainSlowPath(t *testing.T) {
	one, two := kit.NewName(), kit.NewName()
	end := func(n int) *kit.Talker {
		return newEnd(t, "--if", fmt.Sprintf("wire:%s,ip=10.97.1.%d/24", one, n), "--if", fmt.Sprintf("wire:%s,ip=10.97.2.%d/24,gw=10.97.2.%d", two, n, 3-n))
	}
	sender, receiver := end(1), end(2)
	kit.Lklctl(t, "-n", receiver.Name, "path", "eth1", "delay", "1500ms", "--direction", "in")
	s := situation{name: "slow path", over: "eth1", receive: "rcvbuf=60000", far: []string{"delay", "10ms", "rate", "20mbit", "--direction", "in"}, want: explain.SlowPath, text: []string{"The slow path over eth1 limits"}}
	s.examine(t, sender, receiver, "10.97.1.2", 5000)
}

// TestExplainRun checks lklrun --explain: the report at the end, and lklctl explain --since
// start before. Without --explain, nothing was recorded.
func TestExplainRun(t *testing.T) {
	k := newEnd(t, "--quiet", "--explain", "--stack", "vanilla")
	k.Say("receive(5000, dict())")
	k.Say(`send("127.0.0.1", 5000, dict(chunk=10000, pause=0.05))`)
	kit.WaitFor(t, "the connection", kit.Limit, func() bool {
		return strings.Contains(kit.Lklctl(t, "-n", k.Name, "explain", "--since", "start", "dport", "=", ":5000"), "The program limits")
	})
	k.Say("stop()")
	r := k.End()
	if r.Status != 0 || !strings.Contains(r.Stderr, "lklrun: what limited the run in ") || !strings.Contains(r.Stderr, "127.0.0.1:5000") {
		t.Errorf("the report at the end: %v", r)
	}
	k = newEnd(t, "--quiet", "--stack", "vanilla")
	k.Refused(2, "start the run with lklrun --explain", "explain", "--since", "start")
	k.Refused(2, "--since", "explain", "--since", "yesterday")
	k.Refused(2, "--for", "explain", "--for", "1ns")
}

// end is one end of a cause: commands in its stack, a program, and what explain must say.
type end struct {
	stack   string       // of both ends, if not the default
	gateway bool         // its interface is the default one, not the wire
	flags   []string     // further flags of lklrun
	inside  []string     // command lines for a shell in the instance, each before the program runs
	path    string       // arguments of lklctl path eth0
	program string       // in Python; the other end is "peer"
	alone   bool         // the program needs a core, so no other cause is made meanwhile
	want    explain.Code // the first cause; empty: the end is not examined
	text    string       // a part of the first sentence
	not     string       // a text that no part of the explanation contains
	shows   []string     // VERB: PATTERN, which the output of lklctl VERB matches
}

// Programs of the ends.
const (
	listens = "\nl = socket.create_server(('', 80), backlog=%d); keep['l'] = l\n"
	accepts = `
def work():
    while True: ends.append(l.accept()[0])
run(work)
`
	reads = `
def serve(c):
    while c.recv(65536): pass
    c.close()
def work():
    while True:
        c, _ = l.accept(); ends.append(c)
        run(serve, c)
run(work)
`
	// Reading lasts long because the program computes, or because it waits.
	readsSlowly = `
def serve(c):
    while c.recv(20000):
        begin = time.monotonic()
        while time.monotonic() < begin + %[1]g: pass
        over.wait(%[2]g)
run(lambda: serve(l.accept()[0]))
`
	computes = `
def compute():
    while not over.is_set(): pass
run(compute)
`
	replies = `
def serve(c):
    n = 0
    while data := c.recv(65536):
        n += len(data)
        if n >= 200: n -= 200; c.sendall(b'x' * 100)
def work():
    while True:
        c, _ = l.accept(); ends.append(c)
        run(serve, c)
run(work)
`
	sends = `
def work():
    while True:
        c, _ = l.accept(); ends.append(c)
        def serve(c=c):
            while True: c.sendall(bytes(65536))
        run(serve)
run(work)
`
	// A program of its own that connects and then does something.
	child = `
import subprocess
subprocess.Popen(['/usr/bin/python3', '-c', """
import os, signal, socket, time
s = socket.create_connection(('%%s', 80))
s.recv(1)
%s
""" %% peer])
`
	connects = `
for i in range(%d):
    s = socket.socket(); s.setblocking(False)
    s.connect_ex((peer, 80)); ends.append(s)
`
	dials = "\ns = socket.create_connection((peer, 80)); ends.append(s)\n"
	bulk  = `
def work():
    while True: s.sendall(bytes(65536))
run(work)
`
	steady   = "def work():\n    while True: s.sendall(bytes(1000)); over.wait(0.02)\nrun(work)\n"
	requests = `
s.setsockopt(6, 1, %d)
def work():
    while True:
        s.sendall(b'x' * 100); over.wait(0.002); s.sendall(b'x' * 100); s.recv(100)
run(work)
`
	// Each connection ends in TIME-WAIT at this end.
	closes = `
for i in range(%d):
    s = socket.create_connection((peer, 80)); s.shutdown(1); s.recv(1); s.close()
`
	// A name server whose answers come late, and with a status.
	names = `
def serve():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('', 53)); ends.append(s)
    while True:
        query, client = s.recvfrom(512)
        threading.Timer(%g, s.sendto, (query[:2] + b'\x81\x8%d' + query[4:6] + bytes(6) + query[12:], client)).start()
run(serve)
`
	misses = `
def miss():
    while True:
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try: u.connect(('192.0.2.9', 123))
        except OSError: over.wait(0.05)
run(miss)
`
	silence  = "\nu = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('', %d)); keep['u'] = u\n"
	resolves = `
def work():
    while True:
        try: socket.getaddrinfo('example.org', 80)
        except OSError: over.wait(0.05)
run(work)
`
	echoes = `
def serve():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('', 123)); ends.append(u)
    while True:
        data, client = u.recvfrom(2000)
        over.wait(%g); u.sendto(data, client)
run(serve)
`
	asks = `
def work():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect((peer, 123)); ends.append(u); u.settimeout(1)
    while True:
        u.send(b'x' * 48)
        try: u.recv(100)
        except OSError: pass
run(work)
`
	tells = `
def work():
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); ends.append(u)
    while True: u.sendto(b'x' * 100, (peer, 123)); over.wait(%g)
run(work)
`
	nftDrop = "nft add table ip f; nft 'add chain ip f i { type filter hook input priority 0; }'; nft add rule ip f i "
)

// explained causes, each with a neighbour that must not be taken for it.
var explainable = []struct {
	name           string
	client, server end
}{
	{"an unanswered SYN", end{program: fmt.Sprintf(connects, 1), want: explain.Unanswered, text: "a firewall drops it"},
		end{inside: []string{nftDrop + "tcp dport 80 drop"}, program: fmt.Sprintf(listens, 9)}},
	{"a slow handshake", end{program: fmt.Sprintf(connects, 1), want: explain.Idle, not: "does not answer"},
		end{path: "delay 200ms --direction in", program: fmt.Sprintf(listens, 9)}},
	{"a full listener", end{program: "for i in range(3): ends.append(socket.create_connection((peer, 80)))\n" + fmt.Sprintf(connects, 5), want: explain.Unanswered, text: "the queue of its listener is full, or a firewall"},
		end{program: fmt.Sprintf(listens, 2), shows: []string{"drops: LISTEN_OVERFLOW", `netstat -l: LISTEN +3 +2 +\S+:80 `}, want: explain.ListenerFull, text: "on port 80 has a full queue: 3 connections wait for accept(), and the backlog is 2"}},
	{"a listener with room", end{program: fmt.Sprintf(connects, 8), want: explain.Idle, not: "listener"},
		end{program: fmt.Sprintf(listens, 8), want: explain.Idle, not: "full"}},
	{"a stopped program", end{program: fmt.Sprintf(child, "os.kill(os.getpid(), signal.SIGSTOP)"), want: explain.Stopped, text: "is stopped, by Ctrl-Z or another signal"},
		end{program: fmt.Sprintf(listens, 9) + sends, want: explain.PeerWindow}},
	{"a program that sleeps", end{program: fmt.Sprintf(child, "time.sleep(600)"), want: explain.Reader, not: "stopped"},
		end{program: fmt.Sprintf(listens, 9) + sends, want: explain.PeerWindow}},
	{"a request at a time over a long path", end{program: dials + "def work():\n    while True: s.sendall(b'x' * 200); s.recv(100)\nrun(work)\n", want: explain.Program, text: "waits for the answer, at least a round trip of"},
		end{path: "delay 25ms --direction in", program: fmt.Sprintf(listens, 9) + replies}},
	{"no answer", end{program: dials + "s.sendall(b'x' * 100)", want: explain.Answer, text: "waits for an answer of the peer"},
		end{program: fmt.Sprintf(listens, 9) + reads, want: explain.Idle}},
	{"an answer", end{program: dials + "s.sendall(b'x' * 200); s.recv(100)", want: explain.Idle, not: "answer"},
		end{program: fmt.Sprintf(listens, 9) + replies, want: explain.Idle}},
	{"a black hole", end{program: dials + bulk, want: explain.PathMTU, text: "drops large packets"},
		end{inside: []string{nftDrop + "ip length '>' 1000 drop"}, program: fmt.Sprintf(listens, 9) + reads}},
	{"small requests, then a black hole", end{program: dials + "for i in range(50): s.sendall(b'x' * 200); s.recv(100)\n" + bulk, want: explain.PathMTU, text: "drops large packets"},
		end{inside: []string{nftDrop + "ip length '>' 1000 drop"}, program: fmt.Sprintf(listens, 9) + replies}},
	{"a rule of this stack", end{inside: []string{strings.ReplaceAll(nftDrop, "input", "output") + "tcp dport 80 drop"}, program: fmt.Sprintf(connects, 1), want: explain.OwnDrop, text: "stack itself drops packets of"},
		end{program: fmt.Sprintf(listens, 9)}},
	{"a rule that drops the answers", end{inside: []string{nftDrop + "tcp sport 80 drop"}, program: fmt.Sprintf(connects, 1), want: explain.OwnDrop, text: "NETFILTER_DROP: a netfilter rule"},
		end{program: fmt.Sprintf(listens, 9), want: explain.Unanswered, text: "does not acknowledge the SYN-ACK"}},
	{"an address without a host", end{program: `
def work():
    while True:
        try: socket.create_connection(('10.97.0.77', 80))
        except OSError: over.wait(0.1)
run(work)
`, want: explain.OwnDrop, text: "does not answer ARP"},
		end{}},
	{"a dead path", end{program: dials + "s.sendall(bytes(100000))\nover.wait(0.2)\nimport os\nfor i in range(3): s.sendall(bytes(1000))\n", want: explain.Silent, text: "the path is down", not: "MTU"},
		end{inside: []string{nftDrop + "tcp dport 80 ct bytes '>' 90000 drop"}, program: fmt.Sprintf(listens, 9) + reads}},
	{"full connection tracking", end{program: fmt.Sprintf(connects, 8)},
		end{inside: []string{nftDrop + "ct state established accept", "sysctl -qw net.netfilter.nf_conntrack_max=4"}, program: fmt.Sprintf(listens, 9) + accepts, shows: []string{`drops: NETFILTER_DROP: the table of connection tracking \(conntrack\) is full`}, want: explain.ConntrackFull, text: "The table of connection tracking (conntrack) in this stack is full"}},
	{"a rule that drops", end{program: fmt.Sprintf(connects, 1), want: explain.Unanswered},
		end{inside: []string{nftDrop + "ct state new drop"}, program: fmt.Sprintf(listens, 9) + accepts, shows: []string{"drops: NETFILTER_DROP: a netfilter rule"}, not: "tracking"}},
	{"a rule that rejects", end{program: fmt.Sprintf(connects, 1)},
		end{inside: []string{nftDrop + "tcp dport 80 reject with tcp reset"}, program: fmt.Sprintf(listens, 9), shows: []string{"resets: NETFILTER_REJECT: a netfilter rule"}}},
	{"a rule that accepts", end{program: dials, want: explain.Idle, not: "firewall"},
		end{inside: []string{nftDrop + "tcp dport 80 accept"}, program: fmt.Sprintf(listens, 9) + reads, want: explain.Idle, not: "firewall"}},
	{"connection tracking with room", end{program: fmt.Sprintf(connects, 8)},
		end{inside: []string{nftDrop + "ct state established accept", "sysctl -qw net.netfilter.nf_conntrack_max=64"}, program: fmt.Sprintf(listens, 9) + accepts, want: explain.Idle, not: "tracking"}},
	{"a wire with delay and no loss", end{program: dials + steady, want: explain.Program, not: "oss"},
		end{path: "delay 20ms --direction in", program: fmt.Sprintf(listens, 9) + reads}},
	{"a large backlog that is in use", end{program: fmt.Sprintf(connects, 5), want: explain.Idle, not: "listener"},
		end{program: fmt.Sprintf(listens, 64) + accepts, want: explain.Idle, not: "full"}},
	{"no free port", end{inside: []string{"sysctl -qw net.ipv4.ip_local_port_range='40000 40009'"}, program: fmt.Sprintf(closes, 10), want: explain.Ports, text: "All 10 ephemeral ports for connections to 10.97.0.2:80 are in use, 10 of them in TIME-WAIT"},
		end{program: fmt.Sprintf(listens, 9) + reads}},
	{"a free port", end{inside: []string{"sysctl -qw net.ipv4.ip_local_port_range='40000 40009'"}, program: fmt.Sprintf(closes, 8) + dials, want: explain.Idle, not: "ports"},
		end{program: fmt.Sprintf(listens, 9) + reads}},
	{"an idle control connection", end{program: "\nc = socket.create_connection((peer, 80)); ends.append(c); c.sendall(b'x')" + dials + "s.sendall(b'x')\ndef work():\n    while True: s.sendall(b'x' * 1000); over.wait(0.05)\nrun(work)\n", want: explain.Program, text: "The program limits"},
		end{program: fmt.Sprintf(listens, 9) + reads, want: explain.Peer, text: "The peer"}},
	{"a lossy wire", end{path: "delay 10ms loss 2% --direction in", program: dials + bulk, want: explain.Loss, text: "Packet loss limits", not: "lklctl path eth0 clear"},
		end{path: "delay 10ms loss 2% --direction in", program: fmt.Sprintf(listens, 9) + reads, want: explain.Loss}},
	{"a radio link", end{program: dials + bulk, want: explain.Loss, text: "eordering limit"},
		end{path: "delay 10ms jitter 5ms loss 1% --direction in", program: fmt.Sprintf(listens, 9) + reads}},
	{"a small maximum of the receive buffer", end{path: "delay 30ms --direction in", program: dials + bulk},
		end{inside: []string{"sysctl -qw net.ipv4.tcp_rmem='4096 16384 32768'"}, program: fmt.Sprintf(listens, 9) + reads, want: explain.ReceiveBuffer, text: "net.ipv4.tcp_rmem limits"}},
	{"pacing by fq", end{inside: []string{"tc qdisc replace dev eth0 root fq maxrate 4mbit"}, program: dials + bulk, want: explain.Pacing, text: "Pacing by fq limits"},
		end{program: fmt.Sprintf(listens, 9) + reads}},
	{"fq without a rate", end{inside: []string{"tc qdisc replace dev eth0 root fq"}, program: dials + steady, want: explain.Program, not: "fq"},
		end{program: fmt.Sprintf(listens, 9) + reads}},
	{"BBR and a slow path", end{stack: "bbr", program: dials + bulk, want: explain.PathRate, text: "The path's rate limits"},
		end{stack: "bbr", path: "delay 20ms rate 10mbit --direction in", program: fmt.Sprintf(listens, 9) + reads}},
	{"BBR with little data", end{stack: "bbr", program: dials + steady, want: explain.Program, not: "waits for the answer"},
		end{stack: "bbr", path: "delay 20ms --direction in", program: fmt.Sprintf(listens, 9) + reads}},
	{"a peer without CPU time", end{program: dials + bulk, want: explain.PeerWindow, text: "because it lacks CPU time or waits for something else"},
		end{program: fmt.Sprintf(listens, 9) + fmt.Sprintf(readsSlowly, 0.1, 0.0), alone: true, want: explain.Reader, text: "probably for lack of CPU time"}},
	{"a peer that waits", end{program: dials + bulk, want: explain.PeerWindow, text: "because it lacks CPU time or waits for something else"},
		end{program: fmt.Sprintf(listens, 9) + fmt.Sprintf(readsSlowly, 0.0, 0.1), want: explain.Reader, not: "lack of CPU time"}},
	{"a busy peer that keeps up", end{program: dials + steady, want: explain.Program, not: "lack of CPU time"},
		end{program: fmt.Sprintf(listens, 9) + reads + computes, alone: true, want: explain.Peer, not: "lack of CPU time"}},
	{"a sender without CPU time", end{program: dials + strings.ReplaceAll(steady, "over.wait(0.02)", "sum(range(1000000))"), alone: true, want: explain.Program, text: "probably for lack of CPU time"},
		end{program: fmt.Sprintf(listens, 9) + reads, want: explain.Peer}},
	{"requests in two writes", end{program: dials + fmt.Sprintf(requests, 0), want: explain.Nagle, text: "Nagle's algorithm and the peer's delayed acknowledgements limit"},
		end{program: fmt.Sprintf(listens, 9) + replies}},
	{"requests in two writes with TCP_NODELAY", end{program: dials + fmt.Sprintf(requests, 1), want: explain.Program, not: "Nagle"},
		end{program: fmt.Sprintf(listens, 9) + replies}},
	{"loopback", end{gateway: true, program: fmt.Sprintf(listens, 9) + strings.ReplaceAll(dials, "peer", "'127.0.0.1'") + "r = l.accept()[0]; ends.append(r)\ndef work():\n    while True: r.sendall(b'x' * 100); over.wait(0.05)\nrun(work)\ndef read():\n    while s.recv(65536): pass\nrun(read)\n", not: "gateway", want: explain.Program},
		end{}},
	{"a silent name server", end{flags: dns(2), program: resolves, want: explain.NameServer, text: "waits for an answer from the name server 10.97.0.2 port 53 for example.org: "},
		end{program: fmt.Sprintf(silence, 53), not: "name server"}},
	{"a slow name server", end{flags: dns(2), program: resolves, not: "name server"},
		end{program: fmt.Sprintf(names, 1.5, 0), not: "name server"}},
	{"a host without a name server", end{flags: dns(2), program: resolves, want: explain.NameServer, text: "no program there has that port, or a firewall rejects the packets"},
		end{not: "name server"}},
	{"a name server at an address without a host", end{flags: dns(77), program: resolves, want: explain.NameServer, text: "does not answer ARP or neighbour discovery"},
		end{}},
	{"a name server without a route", end{flags: []string{"--dns", "192.0.2.53", "--dns", "2001:db8::53"}, program: resolves, want: explain.NameServer, text: "no usable route to the name server 192.0.2.53 or 2001:db8::53"},
		end{}},
	{"a second name server without a route", end{flags: append(dns(2), "--dns", "192.0.2.53"), program: resolves + misses, not: "name server"},
		end{program: fmt.Sprintf(names, 0.1, 3)}},
	{"a name server without a route that nobody asks", end{flags: []string{"--dns", "192.0.2.53"}, program: dials + steady, not: "name server"},
		end{program: fmt.Sprintf(listens, 9) + reads}},
	{"a name server on loopback", end{flags: []string{"--dns", "127.0.0.53"}, program: misses, not: "name server"},
		end{}},
	{"a name server that fails", end{flags: dns(2), program: resolves, want: explain.NameServer, text: "cannot resolve example.org: the name server 10.97.0.2 port 53 answers each query with SERVFAIL"},
		end{program: fmt.Sprintf(names, 0.1, 2), not: "name server"}},
	{"a name server that knows no such name", end{flags: dns(2), program: resolves, not: "name server"},
		end{program: fmt.Sprintf(names, 0.1, 3)}},
	{"a rule that drops the answers of a name server", end{flags: dns(2), inside: []string{nftDrop + "udp sport 53 drop"}, program: resolves, want: explain.NameServer, text: "The stack itself drops packets between"},
		end{program: fmt.Sprintf(names, 0.1, 0)}},
	{"no answer to datagrams", end{program: asks, want: explain.Datagrams, text: "waits for an answer from 10.97.0.2 port 123: "},
		end{program: fmt.Sprintf(silence, 123), not: "123"}},
	{"slow answers to datagrams, and an idle server", end{program: asks, not: "123"},
		end{program: fmt.Sprintf(echoes, 0.5) + fmt.Sprintf(silence, 124), not: "datagram"}},
	{"a closed port for datagrams", end{program: asks, want: explain.Datagrams, text: "no program there has that port, or a firewall rejects the packets"},
		end{}},
	{"statistics in datagrams", end{program: fmt.Sprintf(tells, 0.3), not: "123"},
		end{program: fmt.Sprintf(silence, 123), not: "123"}},
	{"a transfer in datagrams", end{program: fmt.Sprintf(tells, 0.001), not: "123"},
		end{program: fmt.Sprintf(echoes, 0.0), not: "123"}},
}

// dns is the flag that makes a host of the wire the name server.
func dns(host int) []string { return []string{"--dns", fmt.Sprintf("10.97.0.%d", host)} }

// TestExplainCauses checks that explain names each cause in its first sentence, at the end
// where it can be seen.
func TestExplainCauses(t *testing.T) {
	kit.Need(t, "nft", "tc", "sysctl")
	for _, tt := range explainable {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			if !tt.client.alone && !tt.server.alone {
				t.Parallel()
			}
			wire := kit.NewName()
			var both []*kit.Talker
			for n, e := range []end{tt.server, tt.client} { // the server listens first
				iface := fmt.Sprintf("wire:%s,ip=10.97.0.%d/24", wire, 2-n)
				if e.gateway {
					iface = "user"
				}
				k := newEnd(t, append([]string{"--quiet", "--stack", cmp.Or(e.stack, "mptcp"), "--if", iface}, e.flags...)...)
				for _, line := range e.inside {
					kit.OK(t, kit.Limit, k.Inside("sh", "-c", line))
				}
				if e.path != "" {
					kit.Lklctl(t, append([]string{"-n", k.Name, "path", "eth0"}, strings.Fields(e.path)...)...)
				}
				both = append(both, k)
			}
			for n, e := range []end{tt.server, tt.client} {
				if got := both[n].Say("exec(%s)", pythonString(fmt.Sprintf("peer = '10.97.0.%d'\n", 1+n)+e.program)); got != "None" {
					t.Fatalf("%s: %s", e.program, got)
				}
			}
			for n, e := range []end{tt.server, tt.client} {
				e.examine(t, both[n])
			}
		})
	}
}

// examine waits until explain names the cause of an end first.
func (e *end) examine(t *testing.T, k *kit.Talker) {
	t.Helper()
	for _, want := range e.shows {
		verb, pattern, _ := strings.Cut(want, ": ")
		got := ""
		if !kit.Within(kit.Limit, func() bool {
			got = kit.Lklctl(t, append([]string{"-n", k.Name}, strings.Fields(verb)...)...)
			return regexp.MustCompile(pattern).MatchString(got)
		}) {
			t.Errorf("no %q in the output of lklctl %s: %s", pattern, verb, got)
		}
	}
	if e.want == "" && e.not == "" {
		return
	}
	var r explain.Report
	var first explain.Code
	for range attempts {
		r, first = explained(t, k), ""
		switch {
		case len(r.Findings) > 0:
			first = r.Findings[0].Code
		case len(r.Connections) > 0 && len(r.Connections[0].Limits) > 0:
			first = r.Connections[0].Limits[0].Code
		}
		if e.want == "" || first == e.want {
			break
		}
	}
	t.Log(r.Text)
	if e.want != "" && first != e.want {
		t.Errorf("the first cause is %q, want %q: %+v", first, e.want, r.Connections)
	}
	if sentence, _, _ := strings.Cut(r.Text, ". "); !strings.Contains(sentence, e.text) {
		t.Errorf("the first sentence lacks %q", e.text)
	}
	if e.not != "" && strings.Contains(r.Text, e.not) {
		t.Errorf("the explanation contains %q", e.not)
	}
}
