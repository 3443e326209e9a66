// SPDX-License-Identifier: Apache-2.0

package escape

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// A nameService is a stand-in for a host daemon that resolves names. It counts its
// clients and answers none.
type nameService struct {
	t     *testing.T
	path  string
	asked atomic.Int32
}

func (n *nameService) listen(path string) {
	n.t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		n.t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	n.t.Cleanup(func() { l.Close() })
	if err := os.Chmod(path, 0o666); err != nil {
		n.t.Fatal(err)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.asked.Add(1)
			c.Close()
		}
	}()
}

// TestFinding04Covers checks that the host's name services, resolv.conf and hosts stay covered.
// Daemons are restarted, are replaced, or start while the program is running.
func TestFinding04Covers(t *testing.T) {
	s := kit.NewSite(t)
	bin := kit.PublicBin(t)
	s.Server.Dnsmasq(t, map[string]string{"secret.example": "10.73.0.99"})
	kit.OwnEtc(t)
	kit.Must(t, os.RemoveAll("/etc/resolv.conf"), os.WriteFile("/etc/resolv.conf", []byte("nameserver 192.0.2.1\n"), 0o644),
		os.WriteFile("/etc/nsswitch.conf", []byte("passwd: files\nhosts: dns\n"), 0o644))
	root := func(args ...string) *exec.Cmd { return exec.Command(bin+"/lklrun", args...) }
	for _, who := range []struct {
		name, engine string
		lklrun       func(args ...string) *exec.Cmd
	}{
		{"root", "supervise", root},
		{"user", "supervise", func(args ...string) *exec.Cmd { return kit.AsUser(root(args...), "") }},
		{"--user", "supervise", func(args ...string) *exec.Cmd { return root(append([]string{"--user", "nobody"}, args...)...) }},
		{"root", "preload", root},
		{"user", "preload", func(args ...string) *exec.Cmd { return kit.AsUser(root(args...), "") }},
	} {
		t.Run(who.name+"/"+who.engine, func(t *testing.T) { testCovers(s.In(t), who.lklrun, who.engine) })
	}
}

// testCovers runs the test for one user and engine.
func testCovers(s *kit.Site, lklrun func(args ...string) *exec.Cmd, engine string) {
	t := s.T
	nscd := &nameService{t: t, path: "/run/nscd/socket"}
	kit.Must(t, os.MkdirAll("/run/nscd", 0o755))
	nscd.listen(nscd.path)
	t.Cleanup(func() {
		kit.Must(t, os.RemoveAll("/run/nscd"), os.RemoveAll("/run/systemd"), os.RemoveAll("/run/avahi-daemon"))
	})
	// An ordinary user cannot open a socket of root.
	flags := []string{"-q", "--engine", engine, "--if", "user", "--dns", kit.ServerAddr, "--add-host", "added.example=192.0.2.99"}
	if engine == "supervise" && strings.HasSuffix(t.Name(), "root/supervise") {
		flags = []string{"-q", "--engine", engine, "--if", s.TapIf(), "--dns", kit.ServerAddr, "--add-host", "added.example=192.0.2.99"}
	}
	k := s.TalkBy(lklrun, flags...)
	k.Say(`keep.__setitem__("sp", __import__("subprocess"))`)
	target := k.Say(`__import__("os").getpid()`)
	asked := func(what string, n *nameService) {
		t.Helper()
		for _, path := range []string{n.path, strings.Replace(n.path, "/run", "/var/run", 1)} {
			if got := k.Say(`socket.socket(socket.AF_UNIX).connect(%q)`, path); !strings.HasPrefix(got, "FileNotFoundError") {
				t.Errorf("%s: the program connects to %s: %s", what, path, got)
			}
		}
		if got := k.Say(`keep["sp"].run(["getent", "hosts", "secret.example"], capture_output=True).stdout.decode()`); engine == "supervise" && !strings.Contains(got, "10.73.0.99") {
			t.Errorf("%s: getent hosts says %s", what, got)
		}
		if got := k.Say(`open("/etc/resolv.conf").read()`); !strings.Contains(got, "nameserver "+kit.ServerAddr) || strings.Contains(got, "192.0.2") {
			t.Errorf("%s: /etc/resolv.conf of the program: %s", what, got)
		}
		if c := n.asked.Load(); c != 0 {
			t.Errorf("%s: the daemon was asked %d times", what, c)
		}
	}
	settled := func(what, path string, covered func() bool) {
		t.Helper()
		began := time.Now()
		if engine == "supervise" && strings.HasSuffix(path, "socket") {
			asked(what+", at once", nscd)
		}
		kit.WaitFor(t, "the cover over "+path+" ("+what+")", kit.Limit, covered)
		t.Logf("%s: covered again within %v", what, time.Since(began))
	}
	hidden := func(path string) func() bool {
		return func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/%s/root%s", target, path))
			return os.IsNotExist(err)
		}
	}
	asked("at the start", nscd)
	for _, restart := range []struct {
		name string
		do   func()
	}{
		{"unlink and bind", func() { kit.Must(t, os.Remove(nscd.path)); nscd.listen(nscd.path) }},
		{"rename", func() { nscd.listen(nscd.path + ".new"); kit.Must(t, os.Rename(nscd.path+".new", nscd.path)) }},
		{"rmdir, mkdir and bind", func() {
			kit.Must(t, os.RemoveAll("/run/nscd"), os.Mkdir("/run/nscd", 0o755))
			nscd.listen(nscd.path)
		}},
		{"a hundred in a row", func() {
			for range 100 { // some appear while a cover is being made
				kit.Must(t, os.RemoveAll("/run/nscd"), os.Mkdir("/run/nscd", 0o755))
			}
			nscd.listen(nscd.path)
		}},
		{"rename of the folder", func() {
			kit.Must(t, os.Mkdir("/run/nscd.new", 0o755))
			nscd.listen("/run/nscd.new/socket")
			kit.Must(t, os.Rename("/run/nscd", "/run/nscd.old"), os.Rename("/run/nscd.new", "/run/nscd"), os.RemoveAll("/run/nscd.old"))
		}},
	} {
		restart.do()
		settled(restart.name, nscd.path, hidden(nscd.path))
		asked(restart.name, nscd)
	}

	for _, late := range []string{"/run/avahi-daemon/socket", "/run/systemd/resolve/io.systemd.Resolve", "/run/systemd/userdb/io.systemd.Multiplexer"} {
		n := &nameService{t: t, path: late}
		kit.Must(t, os.MkdirAll(filepath.Dir(late), 0o755))
		n.listen(late)
		settled("a late "+filepath.Base(filepath.Dir(late)), late, hidden(late))
		asked("a late "+late, n)
	}

	ours := func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%s/root/etc/resolv.conf", target))
		return err == nil && strings.Contains(string(text), "nameserver "+kit.ServerAddr)
	}
	for _, how := range []string{"mv", "unlink", "symlink", "mv"} {
		kit.Must(t, os.WriteFile("/etc/resolv.conf.new", []byte("nameserver 192.0.2.2\n"), 0o644))
		switch how {
		case "unlink":
			kit.Must(t, os.Remove("/etc/resolv.conf"))
		case "symlink":
			kit.Must(t, os.Remove("/etc/resolv.conf.new"), os.WriteFile("/run/systemd/resolve/stub-resolv.conf", []byte("nameserver 192.0.2.3\n"), 0o644),
				os.Symlink("../run/systemd/resolve/stub-resolv.conf", "/etc/resolv.conf.new"))
		}
		kit.Must(t, os.Rename("/etc/resolv.conf.new", "/etc/resolv.conf"))
		settled("resolv.conf: "+how, "/etc/resolv.conf", ours)
		asked("resolv.conf: "+how, nscd)
	}
	named := func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%s/root/etc/hosts", target))
		return err == nil && strings.Contains(string(text), "192.0.2.99\tadded.example\n")
	}
	kit.Must(t, os.WriteFile("/etc/hosts.new", []byte("127.0.0.1 localhost\n"), 0o644), os.Rename("/etc/hosts.new", "/etc/hosts"))
	settled("hosts: mv", "/etc/hosts", named)
	if r := k.End(); r.Status != 0 || r.Stderr != "" {
		t.Errorf("the run: %v", r)
	}
}
