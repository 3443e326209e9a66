// SPDX-License-Identifier: Apache-2.0

package link

import (
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestLoopbackHint checks the line about a server that listens on the host's loopback
// interface, and not on the stack's: it appears once and names only what works.
func TestLoopbackHint(t *testing.T) {
	kit.Need(t, "curl")
	host := kit.NewNetns(t, "host")
	host.Tap(t, "tap0")
	dir := kit.Dir(t)
	kit.WriteFile(t, dir+"/hello", "hello\n")
	host.Nginx(t, kit.Nginx{Root: dir, Port: 8080})
	const (
		start   = "nothing listens on the stack's own 127.0.0.1:8080; to reach the host's server there, "
		gateway = "connect to 192.168.127.254:8080"
		hostNet = "use --host-net 127.0.0.1:8080"
		four    = "http://127.0.0.1:8080/hello"
	)
	get := func(urls ...string) []string { return append([]string{"curl", "-sm", "20"}, urls...) }
	blocking := []string{"/usr/bin/python3", "-c", `import socket; socket.socket().connect_ex(("127.0.0.1", 8080))`}
	for name, c := range map[string]struct {
		flags   string
		command []string
		want    string // the line; "" if there must be none
		stdout  string
	}{
		"gateway":           {"", get(four, four), start + gateway + " or " + hostNet, ""},
		"any address":       {"", get("http://0.0.0.0:8080/hello", four), start + gateway + " or " + hostNet, ""},
		"IPv6":              {"", get("http://[::1]:8080/hello"), "nothing listens on the stack's own [::1]:8080; to reach the host's server there, " + gateway + " or use --host-net [::1]:8080", ""},
		"blocking":          {"", blocking, start + gateway + " or " + hostNet, ""},
		"preload":           {"--engine preload", get(four, four), start + gateway, ""},
		"blocking, preload": {"--engine preload", blocking, start + gateway, ""},
		"tap":               {"--if tap:tap0,ip=192.0.2.2/24", get(four), start + hostNet, ""},
		"tap, preload":      {"--engine preload --if tap:tap0,ip=192.0.2.2/24", get(four), "", ""},
		"quiet":             {"-q", get(four), "", ""},
		"nobody listens":    {"", get("http://127.0.0.1:8081/"), "", ""},
		"first advice":      {"", get("http://192.168.127.254:8080/hello"), "", "hello\n"},
		"second advice":     {"--host-net 127.0.0.1:8080", get(four), "", "hello\n"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{kit.Bin("lklrun"), "--name", kit.NewName()}, strings.Fields(c.flags)...)
			r := kit.Run(t, kit.Limit, host.Command(append(append(args, "--"), c.command...)...))
			var got []string
			for line := range strings.Lines(r.Stderr) {
				if strings.Contains(line, "the stack's own") {
					got = append(got, strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "lklrun: "))
				}
			}
			if strings.Join(got, "\n") != c.want || r.Stdout != c.stdout {
				t.Errorf("%v\nwant %q", r, c.want)
			}
		})
	}
}
