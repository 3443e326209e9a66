// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/test/kit"
	"github.com/lklrun/lklrun/test/kit/fakedevice"
)

// These tests of --device use phones of test/kit/fakedevice behind the real adb server,
// with the bundles that `make cross` builds.

// deviceLimit allows for the first copy of the bundle and for emulated phones.
const deviceLimit = 2 * time.Minute

// Dynamically linked programs on the phone.
const (
	phoneSh  = fakedevice.Tree + "/bin/dash"
	phoneBin = fakedevice.Tree + "/bin/"
)

// desk is the machine with the adb server. Its lklrun and lklctl are installed as for a
// user.
type desk struct {
	t   *testing.T
	adb *fakedevice.ADB
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	kit.Need(t, "adb", "ip", kit.Bin("lklrun"), kit.Bin("lklctl"))
	return &desk{t: t, adb: fakedevice.NewADB(t)}
}

// in returns the desk for a subtest.
func (d *desk) in(t *testing.T) *desk { return &desk{t: t, adb: d.adb} }

// run is a command line of lklrun; "--" ends its flags.
func (d *desk) run(device string, args ...string) *exec.Cmd {
	return d.program("lklrun", append([]string{"--device", device}, args...)...)
}

func (d *desk) program(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(kit.Bin(name), args...)
	cmd.Env = d.adb.Env()
	return cmd
}

// ctl runs a verb of lklctl, which must succeed.
func (d *desk) ctl(device string, args ...string) string {
	d.t.Helper()
	return kit.OK(d.t, deviceLimit, d.program("lklctl", append([]string{"--device", device}, args...)...))
}

// wifi adds a network to a phone, in addition to the cable: wlan0, with a web server
// behind it, and a server that accepts data and never answers.
func wifi(t *testing.T, p *fakedevice.Phone) {
	t.Helper()
	server := kit.NewNetns(t, "server")
	kit.Veth(t, p.Net, "wlan0", server, "s0")
	p.Net.Addr(t, "wlan0", "10.81.0.2/24")
	server.Addr(t, "s0", "10.81.0.1/24")
	dir := kit.Dir(t)
	kit.WriteFile(t, dir+"/hello", "hello\n")
	// The file is larger than a slow download can transfer during a test.
	kit.WriteFile(t, dir+"/large", "")
	if err := os.Truncate(dir+"/large", 200<<20); err != nil {
		t.Fatal(err)
	}
	server.Nginx(t, kit.Nginx{Root: dir, MPTCP: true})
	sink := server.Listen(t, ":9000")
	go func() {
		for {
			c, err := sink.Accept()
			if err != nil {
				return // the test has ended
			}
			go func() {
				_, _ = io.Copy(io.Discard, c) // until the client disconnects
				_ = c.Close()
			}()
		}
	}()
}

const (
	phoneURL  = "http://10.81.0.1"
	phoneSink = "10.81.0.1:9000"
)

// pristine lists everything on a phone that a run might leave behind: processes,
// mounts, devices, rules, and files except the bundle.
func pristine(t *testing.T, p *fakedevice.Phone) string {
	t.Helper()
	var b strings.Builder
	for _, q := range p.Processes() {
		fmt.Fprintln(&b, "process", q)
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", p.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	b.Write(mounts)
	for _, args := range [][]string{{"ip", "-br", "link"}, {"ip", "rule"}, {"ip", "route", "show", "table", "all"}, {"nft", "list", "ruleset"},
		{"cat", "/proc/sys/net/ipv4/ip_local_reserved_ports"}} {
		fmt.Fprintln(&b, strings.Join(args, " "))
		for line := range strings.Lines(p.Net.Run(t, args...)) {
			// Ignore the cable, which may be cut, and addresses and routes that the
			// kernel adds to a device some time after the device is up.
			if !strings.Contains(line, "adb0") && !strings.Contains(line, "fe80:") && !strings.Contains(line, "ff00:") {
				b.WriteString(line)
			}
		}
	}
	base := p.Path("/data/local/tmp/lklrun")
	for _, dir := range []string{base, base + "/run", base + "/tmp"} {
		names, _ := filepath.Glob(dir + "/*") // a constant pattern causes no error
		for _, n := range names {
			fmt.Fprintln(&b, "file", strings.TrimPrefix(n, base))
		}
	}
	return b.String()
}

// settles checks that a phone returns to its former state within the time that the
// watchdog allows.
func settles(t *testing.T, p *fakedevice.Phone, before string) {
	t.Helper()
	began, now := time.Now(), ""
	if !kit.Within(10*time.Second, func() bool { now = pristine(t, p); return now == before }) {
		t.Fatalf("the phone, %v later (-: is gone, +: is new):\n%s", time.Since(began), cmp.Diff(before, now))
	}
	t.Logf("clean after %v", time.Since(began).Round(10*time.Millisecond))
}

// refusal checks a refusal: one line that contains the words, the status, and no
// standard output.
func refusal(t *testing.T, r kit.Result, status int, words ...string) {
	t.Helper()
	if r.Status != status || r.Stdout != "" || strings.Count(r.Stderr, "\n") != 1 {
		t.Errorf("%v, want status %d and one line", r, status)
	}
	for _, w := range words {
		if !strings.Contains(r.Stderr, w) {
			t.Errorf("%q: want %q in it", r.Stderr, w)
		}
	}
}
