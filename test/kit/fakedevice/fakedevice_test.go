// SPDX-License-Identifier: Apache-2.0

package fakedevice_test

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/fakedevice"
)

const limit = 30 * time.Second

func TestMain(m *testing.M) {
	kit.Main(m, func(root string) error { return fakedevice.Build(root, "arm64", "amd64", "386") })
}

// shell runs a command on a phone.
func shell(t *testing.T, adb *fakedevice.ADB, p *fakedevice.Phone, args ...string) kit.Result {
	t.Helper()
	return kit.Run(t, limit, adb.Command(append([]string{"-s", p.Serial, "shell"}, args...)...))
}

// says checks a command's standard output; standard error must be empty and the status 0.
func says(t *testing.T, adb *fakedevice.ADB, p *fakedevice.Phone, want string, args ...string) {
	t.Helper()
	if r := shell(t, adb, p, args...); r.Status != 0 || r.Stderr != "" || strings.TrimSpace(r.Stdout) != want {
		t.Errorf("%s: %v, want %q", strings.Join(args, " "), r, want)
	}
}

// TestPhone checks that the unmodified client finds a complete phone through the real
// server.
func TestPhone(t *testing.T) {
	before := kit.Take(t)
	outside := t
	t.Run("device", func(t *testing.T) {
		adb := fakedevice.NewADB(t)
		p := fakedevice.New(t, fakedevice.Options{Debian: true})
		adb.Connect(p, "device")

		says(t, adb, p, "aarch64", "uname", "-m")
		says(t, adb, p, "arm64-v8a", "getprop ro.product.cpu.abi")
		says(t, adb, p, "2000 /", "echo $(id -u) $PWD $HOME $TMPDIR")
		says(t, adb, p, "0", "su -c 'id -u'")
		says(t, adb, p, "data dev etc lib proc sys system usr", "echo $(ls /)")
		if r := shell(t, adb, p, "touch /x /tmp/x /dev/x /system/x"); r.Status == 0 || strings.Count(r.Stderr, "touch: ") != 4 {
			t.Errorf("places to write to: %v", r)
		}
		if r := shell(t, adb, p, "/usr/bin/curl --version; file=$(head -c 20 /usr/bin/curl | od -An -tx1 | tr -d ' \n'); echo $file"); !strings.HasPrefix(r.Stdout, "curl ") ||
			!strings.Contains(r.Stdout, "0300b700") { // ET_DYN, EM_AARCH64
			t.Errorf("curl of arm64: %v", r)
		}
		if r := shell(t, adb, p, "echo out; echo err >&2; exit 3"); r.Status != 3 || r.Stdout != "out\n" || r.Stderr != "err\n" {
			t.Errorf("streams and status: %v", r)
		}
		if r := shell(t, adb, p, "kill -9 $$"); r.Status != 128+9 {
			t.Errorf("killed: %v", r)
		}
		if r := shell(t, adb, p, "-x", "echo out; echo err >&2; exit 3"); r.Stdout != "out\nerr\n" {
			t.Errorf("without the protocol: %v", r)
		}
		for _, name := range []string{"terminal", "files", "streams", "forward", "end"} {
			t.Run(name, func(t *testing.T) {
				map[string]func(*testing.T, *fakedevice.ADB, *fakedevice.Phone){
					"terminal": terminal, "files": files, "streams": streams, "forward": forward, "end": end,
				}[name](t, adb, p)
			})
		}
	})
	// adb's log, adb.UID.log, stays where adb writes it.
	for _, l := range before.Left() {
		if !strings.HasPrefix(l, "new: file: "+filepath.Join(os.TempDir(), "adb.")) {
			outside.Error(l)
		}
	}
}

// terminal tests a command on a pseudo terminal.
func terminal(t *testing.T, adb *fakedevice.ADB, p *fakedevice.Phone) {
	says(t, adb, p, "/dev/pts/0\r\nerr", "-t", "-t", "tty; echo err >&2")
}

// files copies 100 MB in both directions, and tests names, modes, and paths that cannot
// be written.
func files(t *testing.T, adb *fakedevice.ADB, p *fakedevice.Phone) {
	dir := kit.Dir(t)
	kit.Random(t, dir+"/large", 100<<20)
	if err := os.Chmod(dir+"/large", 0o751); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) kit.Result {
		t.Helper()
		return kit.Run(t, 2*limit, adb.Command(append([]string{"-s", p.Serial}, args...)...))
	}
	for _, args := range [][]string{{"push", dir + "/large", "/data/local/tmp/a/b/large"}, {"pull", "/data/local/tmp/a/b/large", dir + "/again"}} {
		if r := do(args...); r.Status != 0 {
			t.Fatalf("%v: %v", args, r)
		}
	}
	if sum(t, dir+"/large") != sum(t, dir+"/again") || sum(t, dir+"/large") != sum(t, p.Path("/data/local/tmp/a/b/large")) {
		t.Error("the file is another one")
	}
	says(t, adb, p, "751 2000", "stat -c '%a %u' /data/local/tmp/a/b/large")
	says(t, adb, p, "", "rm -r /data/local/tmp/a")
	if r := do("push", dir+"/large", "/system/large"); r.Status == 0 || !strings.Contains(r.Stdout+r.Stderr, "couldn't create file: Read-only file system") {
		t.Errorf("to a place that is read-only: %v", r)
	}
	if r := do("pull", "/data/none", dir+"/none"); r.Status == 0 || !strings.Contains(r.Stdout+r.Stderr, "No such file") {
		t.Errorf("of a file that is not there: %v", r)
	}
}

// streams sends 100 MB to a command and back at the same time.
func streams(t *testing.T, adb *fakedevice.ADB, p *fakedevice.Phone) {
	path := filepath.Join(kit.Dir(t), "large")
	kit.Random(t, path, 100<<20)
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, how := range []string{"shell", "exec-in"} {
		if _, err := in.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		h := sha256.New()
		cmd := adb.Command("-s", p.Serial, how, "cat >/data/local/tmp/got")
		if how == "shell" {
			cmd = adb.Command("-s", p.Serial, how, "cat")
			cmd.Stdout = h
		}
		cmd.Stdin = in
		if r := kit.Run(t, 2*limit, cmd); r.Status != 0 {
			t.Fatalf("%s: %v", how, r)
		}
		got := fmt.Sprintf("%x", h.Sum(nil))
		if how == "exec-in" {
			kit.WaitFor(t, "the end of cat", limit, func() bool { return len(p.Processes()) == 0 })
			got = sum(t, p.Path("/data/local/tmp/got"))
		}
		if got != sum(t, path) {
			t.Errorf("%s: other bytes", how)
		}
	}
	says(t, adb, p, "", "rm /data/local/tmp/got")
}

// forward connects a port of this computer to a socket of the phone, until either side
// ends.
func forward(t *testing.T, adb *fakedevice.ADB, p *fakedevice.Phone) {
	server := kit.Start(t, adb.Command("-s", p.Serial, "shell", "nc -l -p 7070 -e cat"))
	port := strings.TrimSpace(kit.OK(t, limit, adb.Command("-s", p.Serial, "forward", "tcp:0", "tcp:7070")))
	kit.WaitFor(t, "nc", limit, func() bool { return strings.Contains(p.Net.Run(t, "ss", "-Hltn"), ":7070 ") })
	echo := kit.Host.Command("nc", "-W", "1", "127.0.0.1", port)
	echo.Stdin = strings.NewReader("there and back\n")
	if r := kit.Run(t, limit, echo); r.Stdout != "there and back\n" {
		t.Errorf("%v, server: %v", r, server.Wait(limit))
	}
	if r := server.Wait(limit); r.Status != 0 {
		t.Errorf("the server: %v", r)
	}
	kit.OK(t, limit, adb.Command("-s", p.Serial, "forward", "--remove-all"))
}

// end checks that only the shell gets SIGHUP when the client disconnects. Background
// processes continue, and a shell that catches the signal waits for its command.
func end(t *testing.T, adb *fakedevice.ADB, p *fakedevice.Phone) {
	for _, c := range []struct {
		command string
		left    int
	}{
		{"sleep 600; true", 1},
		{"trap exit HUP; sleep 600; true", 2},
		{"exec sleep 600", 0},
	} {
		client := kit.Start(t, adb.Command("-s", p.Serial, "shell", c.command))
		started := func() bool {
			return slices.ContainsFunc(p.Processes(), func(q string) bool { return strings.HasSuffix(q, " sleep 600 ") })
		}
		kit.WaitFor(t, "the command", limit, started)
		before := len(p.Processes())
		client.Signal(unix.SIGKILL)
		settled := func() bool { return len(p.Processes()) == c.left }
		if !kit.Within(limit/6, settled) || c.left == before && kit.Within(time.Second, func() bool { return !settled() }) {
			t.Errorf("%q, the client gone: %q", c.command, p.Processes())
		}
		for _, q := range p.Processes() {
			var pid int
			if _, err := fmt.Sscan(q, &pid); err != nil || unix.Kill(pid, unix.SIGKILL) != nil {
				t.Logf("%s: has ended already", q) // a shell may have ended with the command that it waited for
			}
		}
		kit.WaitFor(t, "the end", limit, func() bool { return len(p.Processes()) == 0 })
	}
}

// TestPhones checks phones of other kinds, and phones with defects, all connected to one
// server.
func TestPhones(t *testing.T) {
	adb := fakedevice.NewADB(t)
	intel := fakedevice.New(t, fakedevice.Options{Arch: "amd64", Su: "aosp", Storage: 8 << 20})
	old := fakedevice.New(t, fakedevice.Options{Arch: "386", Su: "none"})
	locked := fakedevice.New(t, fakedevice.Options{Arch: "386", Unauthorized: true})
	adb.Connect(intel, "device")
	adb.Connect(old, "device")
	adb.Connect(locked, "unauthorized")

	says(t, adb, intel, "x86_64", "uname -m")
	says(t, adb, intel, "0", "su 0 id -u")
	says(t, adb, old, "i686 x86", "echo $(uname -m) $(getprop ro.product.cpu.abi)")
	if r := shell(t, adb, old, "su -c id"); r.Status != 127 {
		t.Errorf("no su: %v", r)
	}
	if r := shell(t, adb, locked, "true"); r.Status == 0 || !strings.Contains(r.Stderr, "device unauthorized") {
		t.Errorf("unauthorized: %v", r)
	}

	path := filepath.Join(kit.Dir(t), "large")
	kit.Random(t, path, 20<<20)
	if r := kit.Run(t, limit, adb.Command("-s", intel.Serial, "push", path, "/data/local/tmp/x")); r.Status == 0 || !strings.Contains(r.Stdout+r.Stderr, "No space left on device") {
		t.Errorf("a full phone: %v", r)
	}
	says(t, adb, intel, "", "ls /data/local/tmp")

	// The connection is cut: adbd is not notified, and the command continues.
	client := kit.Start(t, adb.Command("-s", old.Serial, "shell", "while :; do echo tick; sleep 1; done"))
	kit.WaitFor(t, "the command", limit, func() bool { out, _ := client.Output(); return out != "" })
	old.Unplug()
	adb.Disconnect(old)
	client.Wait(limit) // adb's own status is 0
	if len(old.Processes()) == 0 {
		t.Error("the phone noticed that the wire is cut")
	}
	old.Plug()

	intel.Hang()
	adb.Disconnect(intel)
	adb.Connect(intel, "offline")
	intel.Wake()
	kit.WaitFor(t, "the device", limit, func() bool { return adb.State(intel) == "device" })
}

func sum(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
