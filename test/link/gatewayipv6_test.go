// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/sends_once.py
var sendsOnce string

// TestGatewayIPv6Connected checks that the user-mode gateway offers IPv6 if the host has
// only a connected IPv6 network and no default route. When the host loses its address, a
// connect fails at once. When the host has an address again, a connect works again.
func TestGatewayIPv6Connected(t *testing.T) {
	t.Parallel()
	kit.Need(t, "ip", "nginx", "curl", "/usr/bin/python3")
	const server, ours = "fd71:9::1", "fd71:9::2/64"
	host, far := kit.NewNetns(t, "host"), kit.NewNetns(t, "server")
	kit.Veth(t, host, "v0", far, "s0")
	far.Addr(t, "s0", server+"/64")
	dir := kit.Dir(t)
	kit.WriteFile(t, dir+"/hello", "hello\n")
	far.Nginx(t, kit.Nginx{Root: dir})
	far.EchoUDP(t, "["+server+"]:9")
	name := kit.NewName()
	run := kit.Start(t, host.Command(kit.Bin("lklrun"), "--name", name, "--if", "user", "--", "sleep", "1000"))
	exec1 := func(args ...string) kit.Result {
		return kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), append([]string{"-n", name, "exec", "--"}, args...)...))
	}
	kit.WaitFor(t, "the instance", kit.Limit, func() bool { return exec1("true").Status == 0 || !run.Running() })
	curl := func() kit.Result {
		return exec1("curl", "-6", "-sS", "-m", "20", fmt.Sprintf("http://[%s]/hello", server))
	}
	unreachable := func(when string) {
		t.Helper()
		r := curl()
		if r.Status != 7 || r.Took > 10*time.Second {
			t.Errorf("%s: %v after %v", when, r, r.Took)
		}
		// The engine supervise reports errors this way (docs/reference/limits.md).
		if r := exec1("/usr/bin/python3", "-c", sendsOnce, server); r.Stdout != "Connection reset by peer\n" {
			t.Errorf("%s, a datagram: %v", when, r)
		}
	}
	works := func(when string) {
		t.Helper()
		if r := curl(); r.Status != 0 || r.Stdout != "hello\n" {
			t.Errorf("%s: %v", when, r)
		}
		if r := exec1("/usr/bin/python3", "-c", sendsOnce, server); r.Stdout != "x\n" {
			t.Errorf("%s, a datagram: %v", when, r)
		}
	}
	unreachable("without an address")
	for range 2 {
		host.Addr(t, "v0", ours)
		works("with a connected network")
		host.Run(t, "ip", "addr", "del", ours, "dev", "v0")
		unreachable("after it has gone")
	}
	if out, errs := run.Output(); out != "" || strings.Count(errs, "\n") > 1 {
		t.Errorf("%s%s", out, errs)
	}
}
