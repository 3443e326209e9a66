// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/count_datagrams.py
var countDatagrams string

//go:embed testdata/bytes_server.py
var bytesServer string

//go:embed testdata/bytes_client.py
var bytesClient string

//go:embed testdata/join_wire.py
var joinWire string

// wired returns the command line of a run with one interface.
func wired(name, engine, spec string, args ...string) *exec.Cmd {
	return kit.Lklrun(append([]string{"-q", "--name", name, "--engine", engine, "--if", spec, "--"}, args...)...)
}

func python(program string, args ...string) []string {
	return append([]string{"/usr/bin/python3", "-c", program}, args...)
}

// ready waits until a program has printed a line.
func ready(t *testing.T, p *kit.Proc) {
	t.Helper()
	kit.WaitFor(t, "the program", kit.Limit, func() bool {
		out, _ := p.Output()
		return strings.Contains(out, "\n") || !p.Running()
	})
}

// TestWire sends bytes between stacks of both engines over a wire with two ends and over
// one with three. Nothing may remain.
func TestWire(t *testing.T) {
	kit.NewSite(t)
	for _, engines := range [][2]string{{"supervise", "supervise"}, {"preload", "preload"}, {"supervise", "preload"}} {
		t.Run(engines[0]+" to "+engines[1], func(t *testing.T) {
			before := kit.Take(t)
			wire := kit.NewName()
			server := kit.Start(t, wired(kit.NewName(), engines[1], "wire:"+wire+",ip=10.75.0.1/24,ip6=fd75::1/64", python(bytesServer, "10.75.0.1")...))
			ready(t, server)
			send := func() {
				t.Helper()
				out := kit.OK(t, kit.Limit, wired(kit.NewName(), engines[0], "wire:"+wire+",ip=10.75.0.2/24", python(bytesClient, "10.75.0.1", "60000000")...))
				if out != "right\n" {
					t.Error(out)
				}
			}
			send()
			third := kit.NewName()
			other := kit.Start(t, wired(third, engines[0], "wire:"+wire+",ip=10.75.0.3/24,ip6=fd75::3/64", "sleep", "600"))
			kit.WaitFor(t, "the third end", kit.Limit, func() bool { return answers(third) })
			send()
			if engines[0] == "supervise" {
				for _, to := range []string{"10.75.0.1", "fd75::1"} {
					kit.Lklctl(t, "-n", third, "exec", "--", "ping", "-c1", "-W5", to)
				}
			}
			for _, p := range []*kit.Proc{other, server} {
				p.Signal(syscall.SIGTERM)
				p.Wait(kit.Limit)
			}
			before.Same()
		})
	}
}

// answers returns whether the stack of an instance is up.
func answers(name string) bool {
	return exec.Command(kit.Bin("lklctl"), "-n", name, "cat", "/proc/net/dev").Run() == nil
}

// carrier returns whether eth0 of an instance has a carrier.
func carrier(name string) bool {
	out, err := exec.Command(kit.Bin("lklctl"), "-n", name, "cat", "/sys/class/net/eth0/carrier").Output()
	return err == nil && strings.TrimSpace(string(out)) == "1"
}

// TestWireKilled checks that an end that is killed, by whichever process, takes the
// carrier away from the other end, leaves nothing, and can come back.
func TestWireKilled(t *testing.T) {
	kit.NewSite(t)
	for _, engine := range []string{"supervise", "preload"} {
		for _, victim := range []string{"pid", "host_pid", "target_pid"} {
			t.Run(engine+"/"+victim, func(t *testing.T) {
				before := kit.Take(t)
				wire, stays, ends := kit.NewName(), kit.NewName(), kit.NewName()
				one := kit.Start(t, wired(stays, engine, "wire:"+wire+",ip=10.75.0.1/24", "sleep", "600"))
				kit.WaitFor(t, "the first end", kit.Limit, func() bool { return answers(stays) })
				for round := range 2 {
					two := kit.Start(t, wired(ends, engine, "wire:"+wire+",ip=10.75.0.2/24", "sleep", "600"))
					kit.WaitFor(t, "a carrier", kit.Limit, func() bool { return carrier(stays) && carrier(ends) })
					kit.Must(t, syscall.Kill(processOf(t, ends, victim), syscall.SIGKILL))
					kit.WaitFor(t, fmt.Sprintf("the end of the carrier in round %d", round), kit.Limit, func() bool { return !carrier(stays) })
					two.Wait(kit.Limit)
					kit.WaitFor(t, "the cleanup", kit.Limit, func() bool {
						_, err := os.Stat(filepath.Join("/run/lklrun", ends))
						return os.IsNotExist(err)
					})
				}
				one.Signal(syscall.SIGTERM)
				one.Wait(kit.Limit)
				before.Settles(kit.Limit)
			})
		}
	}
}

// processOf returns a process ID from the state of an instance.
func processOf(t *testing.T, name, key string) int {
	t.Helper()
	pid := 0
	kit.WaitFor(t, key+" of "+name, kit.Limit, func() bool { // it is not known at once
		_, rest, _ := strings.Cut(kit.ReadFile(t, filepath.Join("/run/lklrun", name, "state.json")), `"`+key+`":`)
		n, _ := fmt.Sscanf(strings.TrimSpace(rest), "%d", &pid)
		return n == 1
	})
	return pid
}

// TestWireSeed checks that the same seed drops the same packets, and another seed others.
func TestWireSeed(t *testing.T) {
	kit.NewSite(t)
	arrived := func(seed int) string {
		t.Helper()
		wire := kit.NewName()
		to := kit.Start(t, wired(kit.NewName(), "supervise", fmt.Sprintf("wire:%s,ip=10.75.0.1/24,mac=02:00:00:00:75:01,neigh=10.75.0.2|02:00:00:00:75:02,loss=20%%,seed=%d", wire, seed), python(countDatagrams, "receive", "10.75.0.1")...))
		ready(t, to)
		// The address is known and IPv6 is off, so the datagrams are the first packets.
		kit.OK(t, kit.Limit, kit.Lklrun("-q", "--name", kit.NewName(), "--sysctl", "net.ipv6.conf.all.disable_ipv6=1",
			"--if", "wire:"+wire+",ip=10.75.0.2/24,mac=02:00:00:00:75:02,neigh=10.75.0.1|02:00:00:00:75:01", "--",
			"/usr/bin/python3", "-c", countDatagrams, "send", "10.75.0.1"))
		r := to.Wait(kit.Limit)
		_, numbers, _ := strings.Cut(r.Stdout, "\n")
		if n := len(strings.Fields(numbers)); n < 700 || n > 900 {
			t.Errorf("%d of 1000 datagrams with a loss of 20%%", n)
		}
		return numbers
	}
	first, again, other := arrived(7), arrived(7), arrived(8)
	if first != again {
		t.Errorf("seed 7 twice:\n%s%s", first, again)
	}
	if first == other {
		t.Error("seeds 7 and 8 drop the same packets")
	}
}

// TestWireUser checks that an ordinary user needs no rights for a wire, and that users do
// not share their wires.
func TestWireUser(t *testing.T) {
	kit.NewSite(t)
	bin := kit.PublicBin(t)
	dir := kit.Dir(t)
	kit.Must(t, os.Chmod(dir, 0o755), os.Mkdir(dir+"/run", 0o700), os.Chown(dir+"/run", kit.OrdinaryUID, kit.OrdinaryUID))
	user := func(args ...string) *exec.Cmd { return kit.AsUser(exec.Command(bin+"/lklrun", args...), dir+"/run") }
	server := kit.Start(t, user(append([]string{"-q", "--name", "one", "--if", "wire:u,ip=10.75.0.1/24", "--"}, python(bytesServer, "10.75.0.1")...)...))
	ready(t, server)
	if out := kit.OK(t, kit.Limit, user(append([]string{"-q", "--if", "wire:u,ip=10.75.0.2/24", "--"}, python(bytesClient, "10.75.0.1", "1000000")...)...)); out != "right\n" {
		t.Error(out)
	}
	r := kit.Run(t, kit.Limit, wired(kit.NewName(), "supervise", "wire:u,ip=10.75.0.3/24", "ping", "-c1", "-W1", "10.75.0.1"))
	if !strings.Contains(r.Stderr, "Network is unreachable") { // no carrier
		t.Errorf("root on its own wire u: %v", r)
	}
	server.Signal(syscall.SIGTERM)
	server.Wait(kit.Limit)
}

// TestWireNames checks that a wire whose name ends like that of another one is another wire.
func TestWireNames(t *testing.T) {
	kit.NewSite(t)
	one, two := kit.NewName(), kit.NewName()
	a := kit.Start(t, wired(one, "supervise", "wire:n.wire.b,ip=10.75.0.1/24", "sleep", "600"))
	kit.WaitFor(t, "the first end", kit.Limit, func() bool { return answers(one) })
	b := kit.Start(t, wired(two, "supervise", "wire:b,ip=10.75.0.2/24", "sleep", "600"))
	kit.WaitFor(t, "the second end", kit.Limit, func() bool { return answers(two) })
	if carrier(one) || carrier(two) {
		t.Error("the wires n.wire.b and b are joined")
	}
	for _, p := range []*kit.Proc{a, b} {
		p.Signal(syscall.SIGTERM)
		p.Wait(kit.Limit)
	}
}

// TestWireEscape checks that a program on a stack cannot join a wire past its stack.
func TestWireEscape(t *testing.T) {
	s := kit.NewSite(t)
	name := kit.NewName()
	end := kit.Start(t, wired(name, "supervise", "wire:esc,ip=10.75.0.1/24", "sleep", "600"))
	path := filepath.Join("/run/lklrun", name, "eth0.wire.esc")
	kit.WaitFor(t, "its socket", kit.Limit, func() bool { _, err := os.Stat(path); return err == nil })
	k := s.Talk("--if", "user")
	if got := k.Say(`socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).connect(%q)`, path); !strings.HasPrefix(got, "FileNotFoundError") {
		t.Errorf("the program connects to the end: %s", got)
	}
	k.End()
	// With the run directory as a descriptor, it reaches the socket, and is refused there,
	// also if its parent has ended.
	for _, line := range []string{`"$@"`, `("$@" &) | cat`} {
		run := wired(kit.NewName(), "supervise", "user", append([]string{"sh", "-c", line, "sh"}, python(joinWire, "/proc/self/fd/3/eth0.wire.esc")...)...)
		dir, err := os.Open(filepath.Dir(path))
		kit.Must(t, err)
		run.ExtraFiles = []*os.File{dir}
		if out := kit.OK(t, kit.Limit, run); out != "hangs up\n" {
			t.Errorf("%s on a stack: %s", line, out)
		}
		kit.Must(t, dir.Close())
	}
	if out := kit.OK(t, kit.Limit, exec.Command("/usr/bin/python3", "-c", joinWire, path)); out == "hangs up\n" {
		t.Errorf("a program outside: %s", out)
	}
	end.Signal(syscall.SIGTERM)
	end.Wait(kit.Limit)
}

// TestWireLinks adds and deletes an end while both stacks run.
func TestWireLinks(t *testing.T) {
	kit.NewSite(t)
	before := kit.Take(t)
	one, two := kit.NewName(), kit.NewName()
	a := kit.Start(t, wired(one, "supervise", "wire:l,ip=10.75.0.1/24", "sleep", "600"))
	b := kit.Start(t, wired(two, "supervise", "user", "sleep", "600"))
	kit.WaitFor(t, "both", kit.Limit, func() bool { return answers(one) && answers(two) })
	for range 3 {
		kit.Lklctl(t, "-n", two, "link", "add", "wire:l,ip=10.75.0.2/24")
		kit.Lklctl(t, "-n", two, "exec", "--", "ping", "-c1", "-W5", "10.75.0.1")
		kit.Lklctl(t, "-n", two, "link", "del", "eth1")
		kit.WaitFor(t, "the end of the carrier", kit.Limit, func() bool { return !carrier(one) })
	}
	for _, p := range []*kit.Proc{a, b} {
		p.Signal(syscall.SIGTERM)
		p.Wait(kit.Limit)
	}
	before.Same()
}
