// SPDX-License-Identifier: Apache-2.0

package diag_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
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
		return err == nil && n > s.warm
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
		{"fast", "", "lklrun, which contains the gateway"},
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
	s := situation{name: "slow path", warm: 16000000, receive: "rcvbuf=60000", far: []string{"delay", "10ms", "rate", "20mbit", "--direction", "in"}, want: explain.SlowPath, text: []string{"The slow path over eth1 limits"}}
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
