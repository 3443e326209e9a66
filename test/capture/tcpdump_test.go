// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestTcpdump checks that `lklctl tcpdump` is the real tcpdump on the stack: its flags, its
// output, and its end. It also checks the verbs that name the instance.
func TestTcpdump(t *testing.T) {
	t.Parallel()
	kit.Need(t, "tcpdump", "ping")
	name, file := kit.NewName(), filepath.Join(kit.Dir(t), "trace.pcap")
	run := kit.Start(t, kit.Lklrun("-q", "--name", name, "--", "sleep", "600"))
	lklctl := func(args ...string) *exec.Cmd { return exec.Command(kit.Bin("lklctl"), args...) }
	kit.WaitFor(t, "the instance", kit.Limit, func() bool { return lklctl("exec", name, "--", "true").Run() == nil })
	if out := kit.OK(t, kit.Limit, lklctl("exec", name, "--", "sh", "-c", "echo $LKLRUN_NAME")); out != name+"\n" {
		t.Errorf("the name inside: %q", out)
	}
	// dump starts tcpdump, and pings as soon as it listens.
	dump := func(args ...string) *kit.Proc {
		t.Helper()
		p := kit.Start(t, lklctl(append([]string{"-n", name, "tcpdump"}, args...)...))
		kit.WaitFor(t, "tcpdump", kit.Limit, func() bool {
			_, said := p.Output()
			return strings.Contains(said, "listening on") || !p.Running()
		})
		kit.OK(t, kit.Limit, lklctl("-n", name, "ping", "-nc", "2", "-i", "0.2", "127.0.0.1"))
		return p
	}
	r := dump("-ni", "lo", "-c", "3", "-q", "icmp").Wait(kit.Limit)
	if r.Status != 0 || strings.Count(r.Stdout, "IP 127.0.0.1 > 127.0.0.1: ICMP echo") != 3 || !strings.Contains(r.Stderr, "3 packets captured") {
		t.Errorf("%v", r)
	}
	if r := dump("icmp[icmptype]", "=", "8", "-i", "any", "-c2", "-w", file).Wait(kit.Limit); r.Status != 0 || r.Stdout != "" {
		t.Errorf("%v", r)
	}
	if out := kit.Host.Run(t, "tcpdump", "-nr", file); strings.Count(out, "ICMP echo request") != 2 {
		t.Errorf("the file:\n%s", out)
	}
	// Ctrl-C ends the capture.
	p := dump("-li", "lo", "--immediate-mode", "icmp")
	kit.WaitFor(t, "the packets", kit.Limit, func() bool {
		printed, _ := p.Output()
		return strings.Count(printed, "ICMP echo") == 4
	})
	p.Signal(syscall.SIGINT)
	if r := p.Wait(kit.Limit); r.Status != 0 || !strings.Contains(r.Stderr, "4 packets captured") {
		t.Errorf("after Ctrl-C: %v", r)
	}
	if r := kit.Run(t, kit.Limit, lklctl("-n", name, "tcpdump", "-D")); !strings.HasPrefix(r.Stdout, "1.eth0 ") || !strings.Contains(r.Stdout, ".lo ") {
		t.Errorf("-D: %v", r)
	}
	if r := kit.Run(t, kit.Limit, lklctl("-n", name, "tcpdump", "-i", "lo", "-w", "/no/such/dir/file")); r.Status != 1 || !strings.Contains(r.Stderr, "/no/such/dir/file") {
		t.Errorf("an error of tcpdump: %v", r)
	}
	kit.OK(t, kit.Limit, lklctl("stop", name))
	run.Wait(kit.Limit)
}
