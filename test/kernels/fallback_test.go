// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

// fallback compares what arrives over connections that fall back to TCP for different reasons,
// and over those on two paths of which a middlebox changes bytes on one.
func fallback(t *testing.T, k kernel) {
	kit.Need(t, "/usr/bin/python3", "iptables", "nft")
	for paths := range 2 {
		p := kit.NewPathSite(t)
		script := filepath.Join(kit.Root(), "test/kernels/testdata/fallback.py")
		p.Server.Run(t, "sysctl", "-qw", "net.ipv4.tcp_fastopen=519")
		server := kit.Start(t, p.Server.Command("/usr/bin/python3", script, "serve"))
		p.Until("the server listens", server, func() bool { out, _ := server.Output(); return out == "ready\n" })
		args := []string{kit.Bin("lklrun"), "--name", p.Instance, "--stack", k.stack, "--engine", k.engine, "--sysctl", "net.ipv4.tcp_fastopen=519"}
		for _, i := range p.Ifs[:paths+1] {
			args = append(args, "--if", i)
		}
		args = append(args, "--", "/usr/bin/python3", script, p.Addr, stackAddr, strconv.Itoa(paths+1))
		if k.version == "6.1" { // it retries without MPTCP only later, and has no fast open with it
			args = append(args, "dropped with the option", "fast open")
		}
		r := kit.Run(t, 2*time.Minute, p.Host.Command(args...))
		if r.Status != 0 || !strings.HasPrefix(r.Stdout, "compared ") {
			t.Errorf("%v", r)
		}
	}
}

// loopback checks connections of the stack to itself: they open no subflows, and a proxy
// learns where a redirected one wanted to go.
func loopback(t *testing.T, k kernel) {
	kit.Need(t, "/usr/bin/python3", "iptables", "ip6tables")
	p := kit.NewPathSite(t)
	how := "redirect"
	if k.engine == "preload" {
		how = "plain" // iptables is another program, which has no network there
	}
	r := kit.Run(t, kit.Limit, k.command(p, "/usr/bin/python3", filepath.Join(kit.Root(), "test/kernels/testdata/loopback.py"), stackAddr, how))
	if r.Status != 0 || r.Stdout != "done\n" {
		t.Errorf("%v", r)
	}
}

// TestOptions compares the socket options that a stack with MPTCP returns with those of one
// without.
func TestOptions(t *testing.T) {
	kit.Need(t, "/usr/bin/python3", kit.Bin("lklrun"))
	for _, engine := range []string{"supervise", "preload"} {
		var want, got string
		for stack, text := range map[string]*string{"vanilla": &want, "mptcp": &got} {
			*text = kit.OK(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--engine", engine, "--stack", stack, "--",
				"/usr/bin/python3", filepath.Join(kit.Root(), "test/kernels/testdata/options.py")))
		}
		lines := kit.Lines(got)
		for i, line := range kit.Lines(want) {
			if i < len(lines) && lines[i] != line {
				t.Errorf("%s: %s with MPTCP, %s without", engine, lines[i], line)
			}
		}
	}
}

// TestWindow checks that the receive window grows on a path with a long round trip and no
// limit of its rate: there, the data of a whole round trip arrives before the reader runs.
func TestWindow(t *testing.T) {
	const want = 1 << 20 // without patches/6.12/tcp-window-for-bursts, it often stays at 288 KB
	kit.Need(t, "/usr/bin/python3", kit.Bin("lklrun"))
	script := filepath.Join(kit.Root(), "test/kernels/testdata/window.py")
	out := kit.OK(t, kit.Limit, kit.Lklrun("lab", "--stack", "vanilla", "--server-stack", "vanilla", "--delay", "150ms",
		"--server", "/usr/bin/python3 "+script+" serve", "--", "/usr/bin/python3", script))
	largest, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	t.Logf("largest windows: at least %d bytes", largest)
	if largest < want {
		t.Errorf("a connection's largest window has %d bytes, want at least %d", largest, want)
	}
}
