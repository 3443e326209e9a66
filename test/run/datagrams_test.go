// SPDX-License-Identifier: Apache-2.0

package run

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/datagram_runs.py
var datagramRuns string

// TestDatagramRuns checks that bursts of datagrams of mixed sizes, which the stack and
// the engine move together, arrive in order and unchanged, also if the program uses
// UDP_SEGMENT and UDP_GRO. The peer on the host's kernel checks them as well.
func TestDatagramRuns(t *testing.T) {
	kit.Need(t, "/usr/bin/python3")
	s := kit.NewSite(t)
	for i, engine := range []string{"supervise", "trace", "preload"} {
		for j, address := range []string{kit.ServerAddr, kit.ServerAddr6} {
			t.Run(engine+" "+address, func(t *testing.T) {
				port := strconv.Itoa(7000 + 2*i + j)
				server := kit.Start(t, s.Server.Command("/usr/bin/python3", "-c", datagramRuns, "serve", address, port))
				kit.WaitFor(t, "the server", kit.Limit, func() bool { out, _ := server.Output(); return out == "ready\n" })
				r := kit.Run(t, 4*kit.Limit, kit.Lklrun("--name", kit.NewName(), "-q", "--engine", engine, "--if", s.TapIf(), "--",
					"/usr/bin/python3", "-c", datagramRuns, "check", address, port))
				if r.Status != 0 || r.Stdout != "all are right\n" {
					t.Errorf("the program: %v", r)
				}
				server.Signal(15)
				if r := server.Wait(kit.Limit); r.Stderr != "" {
					t.Errorf("the server: %v", r)
				}
			})
		}
	}
}

//go:embed testdata/datagram_state.py
var datagramState string

// stateMark gives packets with the mark 7 a hop limit of 11, and executes a command.
const stateMark = `f=-4; case $1 in *:*) f=-6 ;; esac
ip $f rule add fwmark 7 lookup 7 && ip $f route add table 7 $1 dev eth0 hoplimit 11 && shift && exec /usr/bin/python3 -c "$@"`

// stateSite is a site with a client on the host's own kernel, beside those on stacks.
type stateSite struct {
	*kit.Site
	native *kit.Netns
	port   int
}

// start starts the server of a subtest and returns a command that sends to it.
func (s *stateSite) start(t *testing.T, engine, address, serve string, args ...string) (*kit.Proc, *exec.Cmd) {
	t.Helper()
	s.port += 2
	port := strconv.Itoa(s.port)
	server := kit.Start(t, s.Server.Command("/usr/bin/python3", "-c", datagramState, serve, address, port))
	kit.WaitFor(t, "the server", kit.Limit, func() bool { out, _ := server.Output(); return out == "ready\n" || !server.Running() })
	args = append(append([]string{"sh", "-c", stateMark, "sh", address, datagramState}, args...), address, port)
	if engine == "native" {
		s.native.Run(t, "sh", "-c", "ip rule del fwmark 7; ip -6 rule del fwmark 7; ip route flush table 7; ip -6 route flush table 7; ip neigh flush dev eth0; true")
		return server, s.native.Command(args...)
	}
	return server, kit.Lklrun(append([]string{"--name", kit.NewName(), "-q", "--engine", engine, "--if", s.TapIf(), "--"}, args...)...)
}

func newStateSite(t *testing.T) *stateSite {
	kit.Need(t, "/usr/bin/python3", "ip")
	s := &stateSite{kit.NewSite(t), kit.NewNetns(t, "native"), 7100}
	kit.Veth(t, kit.Host, "v9", s.native, "eth0")
	kit.Host.Run(t, "ip", "link", "set", "v9", "master", "br0")
	s.native.Addr(t, "eth0", "10.73.0.9/24", "fd73::9/64")
	return s
}

// wrongStates returns the lines of a server whose datagram had another peer, option or
// place than it should.
func wrongStates(out string) (wrong []string) {
	overtaken := false
	for _, line := range kit.Lines(out)[1:] {
		is, sent, _ := strings.Cut(line, " got ")
		name, want, _ := strings.Cut(sent, " ")
		if is != want || name == "early" && overtaken {
			wrong = append(wrong, line)
		}
		overtaken = overtaken || name == "last"
	}
	return wrong
}

// TestSecondFinding03StreamState checks that the bytes of a connection leave with the options
// that were set when the program sent them, if the kernel could send them at once.
func TestSecondFinding03StreamState(t *testing.T) {
	s := newStateSite(t)
	for _, engine := range []string{"native", "supervise", "trace"} {
		for mode, address := range map[string]string{"tos": kit.ServerAddr, "tclass": kit.ServerAddr6, "ttl": kit.ServerAddr, "mark": kit.ServerAddr} {
			t.Run(mode+" "+engine, func(t *testing.T) {
				server, cmd := s.start(t, engine, address, "echo", "stream", strings.Replace(mode, "tclass", "tos", 1))
				r := kit.Run(t, kit.Limit, cmd)
				out := server.Wait(kit.Limit).Stdout
				if wrong := wrongStates(out); r.Status != 0 || strings.Count(out, "got") != 200 || len(wrong) > 0 {
					t.Errorf("%v; %d segments, %d with other options: %.200q", r, strings.Count(out, "got"), len(wrong), wrong)
				}
			})
		}
	}
}

// TestSecondFinding03DatagramState checks that datagrams leave with the peer and the options that
// were set when the program sent them, if the stack cannot send them before the program
// changes these: the server answers ARP and neighbour discovery only afterwards.
func TestSecondFinding03DatagramState(t *testing.T) {
	s := newStateSite(t)
	for _, mode := range []string{"connect", "unspec", "ttl", "tos", "mark", "device", "sendto", "close"} {
		for _, with := range []string{"block native", "block trace", "poll native", "poll supervise"} {
			way, engine, _ := strings.Cut(with, " ")
			t.Run(mode+" "+with, func(t *testing.T) { s.datagrams(t, mode, way, engine) })
		}
	}
}

// datagrams checks one way to change the state of a socket.
func (s *stateSite) datagrams(t *testing.T, mode, way, engine string) {
	address := kit.ServerAddr
	if way == "poll" {
		address = kit.ServerAddr6
	}
	server, cmd := s.start(t, engine, address, "serve", "send", mode, way)
	s.Server.Run(t, "ip", "link", "set", "s0", "arp", "off")
	in, err := cmd.StdinPipe()
	kit.Must(t, err)
	p := kit.Start(t, cmd)
	said := func(text string) {
		t.Helper()
		kit.WaitFor(t, text, kit.Limit, func() bool { out, _ := p.Output(); return strings.Contains(out, text) || !p.Running() })
	}
	said("sent ")
	sent := 0
	out, _ := p.Output()
	if _, err := fmt.Sscanf(out, "sent %d", &sent); err != nil || sent == 0 {
		t.Fatalf("%q: %v", out, err)
	}
	if way == "poll" && mode != "sendto" {
		said("done\n")
	}
	s.Server.Run(t, "ip", "link", "set", "s0", "arp", "on")
	said("done\n")
	early, last := 0, 1
	if mode == "close" || mode == "device" {
		last = 0
	}
	kit.WaitFor(t, "all datagrams", kit.Limit, func() bool {
		out, _ := server.Output()
		early = strings.Count(out, "got early")
		return early == sent && strings.Count(out, "got la") >= last || !server.Running()
	})
	kit.Must(t, in.Close())
	if r := p.Wait(kit.Limit); r.Status != 0 {
		t.Errorf("the program: %v", r)
	}
	out, _ = server.Output()
	if wrong := wrongStates(out); len(wrong) > 0 {
		t.Errorf("%d of %d datagrams had another peer, option or place: %.200q", len(wrong), early, wrong)
	}
}

//go:embed testdata/error_keeps_datagrams.py
var errorKeepsDatagrams string

// TestErrorKeepsDatagrams checks that datagrams which wait for the stack are not lost if
// an earlier one fails.
func TestErrorKeepsDatagrams(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", "tc")
	for _, engine := range []string{"supervise", "trace"} {
		t.Run(engine, func(t *testing.T) {
			got := strings.Fields(kit.OK(t, kit.Limit, kit.Lklrun("-q", "--engine", engine, "--", "/usr/bin/python3", "-c", errorKeepsDatagrams)))
			for n, number := range got {
				if number != strconv.Itoa(n) {
					t.Fatalf("not in order: %v", got)
				}
			}
		})
	}
}

// TestLastDatagram checks that a datagram is not lost if its sender ends at once,
// before the stack has the datagram and before ARP or neighbour discovery has an
// answer.
func TestLastDatagram(t *testing.T) {
	s := kit.NewSite(t)
	kit.Need(t, "socat", "nc")
	dir := kit.Dir(t)
	for _, a := range []string{kit.ServerAddr, kit.ServerAddr6} {
		heard := kit.Start(t, s.Server.Command("socat", "-u", "UDP6-RECV:7000", "OPEN:"+dir+"/heard,creat,append"))
		kit.WaitFor(t, "the listener", kit.Limit, func() bool { return s.Server.Listening(t, "u", 7000) })
		want := ""
		for i := range 10 {
			kit.OK(t, kit.Limit, s.OnTap("sh", "-c", fmt.Sprintf("echo %d | nc -u -N -q 0 %s 7000", i, a)))
			want += fmt.Sprintln(i)
		}
		kit.WaitFor(t, "ten datagrams to "+a, kit.Limit, func() bool {
			heard, err := os.ReadFile(dir + "/heard")
			return err == nil && len(heard) == len(want)
		})
		heard.Signal(15)
		heard.Wait(kit.Limit)
		if err := os.Remove(dir + "/heard"); err != nil {
			t.Fatal(err)
		}
	}
}
