// SPDX-License-Identifier: Apache-2.0

package test

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestPasst runs passt in place of the gateway, under each engine. It is not in the
// driver suite, because Debian 12's passt loses the end of a connection whose two sides
// close at the same time.
func TestPasst(t *testing.T) {
	testutil.Need(t, "passt", "curl", "nginx", "/usr/bin/python3")
	w := newWire(t)
	layPasst(w)
	dir := testutil.Dir(t)
	data := make([]byte, tcpSize)
	_, _ = rand.Read(data) // never fails
	if err := os.WriteFile(filepath.Join(dir, "file"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x  -\n", sha256.Sum256(data))
	w.far.Nginx(t, testutil.Nginx{Root: dir})
	was := w.state()
	w.guests = []string{hereAddr, hereAddr6}
	w.more = []string{
		"--publish", fmt.Sprintf("0.0.0.0:%d:%[1]d", guestPort), "--publish", fmt.Sprintf("[::]:%d:%[1]d", guestPort),
		"--publish", fmt.Sprintf("0.0.0.0:%d:%[1]d/udp", guestPort), "--publish", fmt.Sprintf("[::]:%d:%[1]d/udp", guestPort),
	}
	for _, engine := range []string{"supervise", "preload"} {
		t.Run(engine, func(t *testing.T) {
			w := w.in(t)
			for _, a := range []string{farAddr, "[" + farAddr6 + "]"} {
				got := testutil.OK(t, limit, w.run(engine, "passt", "curl", "-sf", "-o", filepath.Join(dir, "got"), "-w", "%{size_download}", "http://"+a+"/file"))
				if got != fmt.Sprint(tcpSize) || testutil.OK(t, limit, w.here.Command("sh", "-c", "sha256sum <"+dir+"/got")) != sum {
					t.Errorf("a file of %d bytes from %s: %s, with another checksum or length", tcpSize, a, got)
				}
			}
			server := testutil.Start(t, w.run(engine, "passt", "/usr/bin/python3", "-u", "-m", "http.server", "--bind", "::", "-d", dir, fmt.Sprint(guestPort)))
			testutil.WaitFor(t, "the server", limit, func() bool { out, _ := server.Output(); return strings.Contains(out, "Serving") })
			for _, a := range []string{hereAddr, "[" + hereAddr6 + "]"} {
				url := fmt.Sprintf("http://%s:%d/file", a, guestPort)
				// passt asks once. The stack answers when it knows that its IPv6
				// address is unique.
				got := ""
				if !testutil.Within(limit, func() bool {
					got = testutil.OK(t, limit, w.far.Command("sh", "-c", "curl -sf -m 3 "+url+" | sha256sum"))
					return got == sum
				}) {
					t.Errorf("%s: %s, want %s", url, got, sum)
				}
			}
			server.Signal(15)
			server.Wait(limit)
			d := w.start(engine, "passt")
			d.ping()
			d.udp()
			w.here.Run(t, "sh", "-c", "for p in $(ip netns pids "+w.here.Name+"); do case $(cat /proc/$p/comm) in passt*) kill $p;; esac; done")
			d.remove, d.near, d.said = func() {}, "192.168.127.1", "eth0 carries nothing any more: passt has ended"
			d.deleted()
			d.ends()
		})
	}
	t.Run("dhcp", func(t *testing.T) {
		w := w.in(t)
		r := testutil.Run(t, limit, w.run("supervise", "passt,dhcp", "ip", "-4", "-br", "addr", "show", "dev", "eth0"))
		if !strings.Contains(r.Stdout, hereAddr+"/24") {
			t.Errorf("with the host's own address: %v", r)
		}
	})
	w.same(was)
}

// layPasst sets up a host with a way out, without which passt does nothing.
func layPasst(w *wire) {
	w.here.Addr(w, "v0", hereAddr+"/24", hereAddr6+"/64")
	w.here.Run(w, "ip", "route", "add", "default", "via", farAddr)
	w.here.Run(w, "ip", "-6", "route", "add", "default", "via", farAddr6)
	w.here.Run(w, "sysctl", "-qw", "net.ipv4.ping_group_range=0 2147483647") // otherwise it cannot ping
	w.flag = "passt"
}

// TestPasstRefused checks that a missing passt, and ports that it cannot have, are
// reported in one line.
func TestPasstRefused(t *testing.T) {
	w := newWire(t)
	for _, tt := range []struct {
		names, path string
		flags       []string
	}{
		{`passt is not installed: .apt install passt., or use user`, "/nowhere", nil},
		{`--publish 127.0.0.2:8080:80: passt opens a port at one address`, os.Getenv("PATH"), []string{"--publish", "127.0.0.1:8080:80", "--publish", "127.0.0.2:8080:80"}},
	} {
		cmd := w.here.Command(append(append([]string{"env", "PATH=" + tt.path, testutil.Bin("lklrun"), "--if", "passt"}, tt.flags...), "--", "/usr/bin/true")...)
		oneLine(t, testutil.Run(t, limit, cmd), 2, tt.names)
	}
}
