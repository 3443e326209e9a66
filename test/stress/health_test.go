// SPDX-License-Identifier: Apache-2.0

package stress

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/internal/stack/stackconn"
	"github.com/lklrun/lklrun/test/kit"
)

// A patient is an lklhost under observation.
type patient struct {
	t    *testing.T
	ctl  *stackconn.Conn
	pid  int
	name string

	forgiving bool // ignore resources that closed connections hold inside the stack
}

// observe attaches to the instance whose run directory is dir.
func observe(t *testing.T, dir string) *patient {
	t.Helper()
	p := &patient{t: t, name: filepath.Base(dir)}
	kit.WaitFor(t, "attaching to "+dir, kit.Limit, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), kit.Limit)
		defer cancel()
		// Do not use stackconn.Dial: the instance may belong to another user.
		sock, err := net.Dial("unix", filepath.Join(dir, "ctl.sock"))
		if err != nil {
			return false
		}
		p.ctl, err = stackconn.New(ctx, sock.(*net.UnixConn))
		return err == nil
	})
	t.Cleanup(func() { _ = p.ctl.Close() })
	p.pid = int(p.ctl.Hello().HostPID)
	return p
}

// A health describes the resources of an lklhost at one moment.
type health struct {
	open    int // connections of the engine
	files   int // descriptors, except cached names of remote peers and those that the stack's library creates once
	sockets int // in the stack, "sockets: used" of /proc/net/sockstat
	orphans int // TCP connections without an owner that have not ended yet
	freeKB  int // of the stack's memory
	slabKB  int // memory of the stack that its kernel cannot reclaim
	heapKB  int // resident in lklhost, except the stack's memory
}

func (h health) String() string {
	return fmt.Sprintf("%d connections, %d descriptors, %d sockets and %d orphans in the stack, %d kB free there, %d kB of slab, %d kB of heap",
		h.open, h.files, h.sockets, h.orphans, h.freeKB, h.slabKB, h.heapKB)
}

// health queries lklhost. The test fails if lklhost does not answer.
func (p *patient) health() health {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), kit.Limit)
	defer cancel()
	var h health
	stats, err := p.ctl.Stats(ctx)
	if err != nil {
		p.t.Fatalf("asking the stack host: %v", err)
	}
	peers := 0
	for _, s := range stats {
		switch s.Name {
		case "sockets.open":
			h.open = int(s.Value)
		case "sockets.peers":
			peers = int(s.Value)
		}
	}
	fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	if err != nil {
		p.t.Fatal(err)
	}
	h.files = len(fds) - peers - p.once(fds)
	h.sockets = p.number(ctx, "/proc/net/sockstat", "sockets:", "used")
	h.orphans = p.number(ctx, "/proc/net/sockstat", "TCP:", "orphan")
	h.freeKB = p.number(ctx, "/proc/meminfo", "MemAvailable:", "")
	h.slabKB = p.number(ctx, "/proc/meminfo", "SUnreclaim:", "")
	h.heapKB = kit.HeapKB(p.t, p.pid)
	return h
}

// once counts the descriptors that the stack's library creates on first use and keeps:
// a ring for bursts of frames, and the event descriptor of the writer thread.
func (p *patient) once(fds []os.DirEntry) int {
	n := 0
	for _, fd := range fds {
		if link, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", p.pid, fd.Name())); link == "anon_inode:[io_uring]" {
			n = 1
		}
	}
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", p.pid))
	for _, name := range names {
		if text, _ := os.ReadFile(name); string(text) == "lkl-writer\n" {
			n++
		}
	}
	return n
}

// number reads a number from a file of the stack. It follows key on the line that begins
// with head.
func (p *patient) number(ctx context.Context, path, head, key string) int {
	p.t.Helper()
	text, err := p.ctl.ReadFile(ctx, path)
	if err != nil {
		p.t.Fatalf("reading %s of the stack: %v", path, err)
	}
	for l := range strings.Lines(string(text)) {
		f := strings.Fields(l)
		if len(f) < 2 || f[0] != head {
			continue
		}
		for i, word := range f[1:] {
			if f[i] == key || key == "" {
				n, err := strconv.Atoi(word)
				if err != nil {
					p.t.Fatalf("%s of the stack: %q", path, l)
				}
				return n
			}
		}
	}
	p.t.Fatalf("%s of the stack has no %s %s: %s", path, head, key, text)
	return 0
}

// recovers waits until lklhost has released its resources: no open connection, no
// additional descriptor, and only as much additional memory as its allocators may keep.
func (p *patient) recovers(before health, wait time.Duration) health {
	p.t.Helper()
	const arenaKB, slabKB, heapKB = 6 << 10, 4 << 10, 8 << 10
	var h health
	ok := kit.Within(wait, func() bool {
		h = p.health()
		// The sanitizers keep freed memory for a while.
		if os.Getenv("LKLRUN_BIN") != "" {
			h.heapKB = before.heapKB
		}
		ours := h.open <= before.open && h.files <= before.files && h.heapKB <= before.heapKB+heapKB
		stack := h.sockets <= before.sockets && h.orphans <= before.orphans && h.freeKB >= before.freeKB-arenaKB && h.slabKB <= before.slabKB+slabKB
		return ours && (stack || p.forgiving)
	})
	if !ok {
		p.t.Errorf("the stack host does not come back to what it was within %v:\nbefore: %v\nafter:  %v\nsockets in the stack:\n%s\ndescriptors:\n%s", wait, before, h, p.sockets(), p.descriptors())
	}
	return h
}

// descriptors lists the open descriptors.
func (p *patient) descriptors() string {
	p.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd/", p.pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		p.t.Fatal(err)
	}
	var b strings.Builder
	for _, fd := range fds {
		link, _ := os.Readlink(dir + fd.Name()) // it may be closed by now
		fmt.Fprintf(&b, "%s -> %s\n", fd.Name(), link)
	}
	return b.String()
}

// sockets lists the sockets that sock_diag reports, and the numbers of other sockets.
func (p *patient) sockets() string {
	var b strings.Builder
	for _, args := range [][]string{{"netstat", "-a", "-t", "-M", "-u", "-w", "-x", "-0"}, {"cat", "/proc/net/protocols"}} {
		r := kit.Run(p.t, kit.Limit, exec.Command(kit.Bin("lklctl"), append([]string{"-n", p.name}, args...)...))
		for line := range strings.Lines(r.Stdout) {
			if f := strings.Fields(line); args[0] == "netstat" || len(f) > 2 && f[2] != "0" && f[2] != "-1" {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// settled returns the health when no operation is in progress.
func (p *patient) settled() health {
	var h health
	kit.Within(kit.Limit, func() bool {
		h = p.health()
		return h.open == 0 && h.orphans == 0
	})
	return h
}
