// SPDX-License-Identifier: Apache-2.0

package link

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
)

// killedNAT starts a run with a tap and NAT, and kills all of its processes. It returns
// the host's state before the run, and the run directory.
func killedNAT(t *testing.T) (w *wire, was, dir string) {
	t.Helper()
	w = newWire(t)
	layNAT(w)
	was = w.state()
	d := w.start("supervise", w.flag)
	d.ping()
	for _, pid := range d.KillAll() {
		kit.WaitFor(t, "the end of the killed", kit.Limit, func() bool { return !kit.Alive(pid) })
	}
	if w.state() == was {
		t.Fatal("nothing is left of the run")
	}
	return w, was, filepath.Join("/run/lklrun", d.Name)
}

// cleanUp runs `lklrun cleanup` in the run's network namespace and checks that the host's
// state is the same as before the run.
func (w *wire) cleanUp(was, dir string) {
	w.Helper()
	kit.OK(w, kit.Limit, w.here.Command(kit.Bin("lklrun"), "cleanup"))
	w.same(was)
	if _, err := os.Stat(dir); err == nil {
		w.Errorf("%s is still there", dir)
	}
}

// TestFinding07UndoRecord checks that the record of a run's changes stays until all of
// them are undone. `lklrun cleanup` in another network namespace, a new run of the same
// name, and a held lock must not remove it.
func TestFinding07UndoRecord(t *testing.T) {
	t.Run("another network namespace", func(t *testing.T) {
		w, was, dir := killedNAT(t)
		left, journal := w.state(), kit.ReadFile(t, dir+"/journal")
		there := "changed network namespace net:.*e.g. ip netns exec " + w.here.Name + " lklrun cleanup$"
		elsewhere := func(args ...string) {
			t.Helper()
			kit.OneLine(t, kit.Run(t, kit.Limit, kit.Lklrun(args...)), 2, there)
			if w.state() != left || kit.ReadFile(t, dir+"/journal") != journal {
				t.Errorf("%v: the journal was\n%s\nand is\n%s", args, journal, kit.ReadFile(t, dir+"/journal"))
			}
		}
		elsewhere("cleanup")
		elsewhere("cleanup", "--dir", dir)
		there = strings.TrimSuffix(there, "$") + "; or choose another --name$"
		elsewhere("--name", filepath.Base(dir), "--", "true")
		w.cleanUp(was, dir)
	})
	t.Run("another network namespace, by a process", func(t *testing.T) {
		w, was, dir := killedNAT(t)
		p := kit.Start(t, w.here.Command("sleep", "1000"))
		kit.WaitFor(t, "sleep", kit.Limit, func() bool { b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Pid())); return string(b) == "sleep\n" })
		names := kit.Dir(t) // this mount hides /run/netns
		if err := unix.Mount(names, "/run/netns", "", unix.MS_BIND, ""); err != nil {
			t.Fatal(err)
		}
		r := kit.Run(t, kit.Limit, kit.Lklrun("cleanup"))
		if err := unix.Unmount("/run/netns", 0); err != nil {
			t.Fatal(err)
		}
		kit.OneLine(t, r, 2, fmt.Sprintf("e.g. nsenter -t %d -n lklrun cleanup$", p.Pid()))
		w.cleanUp(was, dir)
	})
	t.Run("a socket that any user can have", func(t *testing.T) {
		w, was, dir := killedNAT(t)
		hold := `import socket,time
for n in "nat", "reserved-ports": s=socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM); s.bind("\0lklrun/"+n); globals()[n]=s
print("held", flush=True); time.sleep(1000)`
		p := kit.Start(t, w.here.Command("setpriv", fmt.Sprint("--reuid=", kit.OrdinaryUID), fmt.Sprint("--regid=", kit.OrdinaryUID), "--clear-groups",
			"/usr/bin/python3", "-c", hold))
		kit.WaitFor(t, "the sockets", kit.Limit, func() bool { out, _ := p.Output(); return out == "held\n" })
		w.cleanUp(was, dir)
	})
	t.Run("the lock is held", func(t *testing.T) {
		w, was, dir := killedNAT(t)
		var f *os.File
		w.here.Do(t, func() (err error) {
			if f, err = os.Open("/proc/sys/net/ipv4/tcp_fastopen_key"); err != nil {
				return err
			}
			return unix.Flock(int(f.Fd()), unix.LOCK_EX)
		})
		r := kit.Run(t, kit.Limit, w.here.Command(kit.Bin("lklrun"), "cleanup"))
		kit.OneLine(t, r, 1, "another process holds the lock on .*; run `lklrun cleanup` to retry")
		if !strings.Contains(kit.ReadFile(t, dir+"/journal"), `"op":"nat"`) {
			t.Errorf("the journal is\n%s", kit.ReadFile(t, dir+"/journal"))
		}
		f.Close()
		w.cleanUp(was, dir)
	})
	t.Run("the program's children", func(t *testing.T) {
		w := newWire(t)
		layNAT(w)
		was := w.state()
		d := w.start("supervise", w.flag)
		child, err := strconv.Atoi(d.Say(`__import__("subprocess").Popen(["setsid", "sleep", "1000"]).pid`))
		if err != nil {
			t.Fatal(err)
		}
		for _, pid := range d.KillAll() {
			kit.WaitFor(t, "the end of the killed", kit.Limit, func() bool { return !kit.Alive(pid) })
		}
		if !kit.Alive(child) {
			t.Fatal("the child has ended by itself")
		}
		w.cleanUp(was, filepath.Join("/run/lklrun", d.Name))
		kit.WaitFor(t, "the end of the child", kit.Limit, func() bool { return !kit.Alive(child) })
	})
	t.Run("a line that is cut off", func(t *testing.T) {
		w, was, dir := killedNAT(t)
		journal := regexp.MustCompile(`\n+`).Split(strings.TrimSpace(kit.ReadFile(t, dir+"/journal")), -1)
		text := journal[0][:len(journal[0])/2] + "\n" + strings.Join(journal, "\n") + "\n" + journal[0][:20]
		if err := os.WriteFile(dir+"/journal", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		w.cleanUp(was, dir)
	})
}
