// SPDX-License-Identifier: Apache-2.0

//go:build lkl49

package targets

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// old is lklrun with LKL of Linux 4.9.
func old(s *kit.Site, args ...string) *exec.Cmd {
	return kit.Lklrun(append([]string{"--stack", "lkl-4.9", "--name", kit.NewName()}, args...)...)
}

// TestOldLKL checks that a library with LKL's older interface runs programs as the
// current library does: transfers in both directions, several at once, a server, IPv6,
// two interfaces, the gateway.
func TestOldLKL(t *testing.T) {
	s := kit.NewSite(t)
	big := make([]byte, 20<<20)
	for i := range big {
		big[i] = byte(i>>8 ^ i*7)
	}
	if err := os.WriteFile(filepath.Join(s.Dir, "file"), big, 0o644); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(big)
	hash := hex.EncodeToString(sum[:])
	s.Web(kit.Nginx{})
	if out := kit.OK(t, kit.Limit, kit.Lklrun("stacks")); !strings.Contains(out, "lkl-4.9") {
		t.Errorf("lklrun stacks: %s", out)
	}
	before := kit.Take(t, s.Server)
	for name, flags := range map[string]string{
		"offloads":      s.TapIf(),
		"no offloads":   s.TapIf() + ",offload=off",
		"large frames":  s.TapIf() + ",mtu=9000",
		"group":         s.TapIf() + ",group=7",
		"fixed address": s.TapIf() + ",mac=02:00:00:00:49:01",
	} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			out := kit.OK(t, kit.Limit, old(s, "--if", flags, "--", "sh", "-c", "curl -s http://"+kit.ServerAddr+"/file | sha256sum"))
			if !strings.HasPrefix(out, hash) {
				t.Errorf("20 MB by curl: %s", out)
			}
		})
	}
	out := kit.OK(t, kit.Limit, old(s, "--if", s.TapIf(), "--", "curl", "-s", "http://["+kit.ServerAddr6+"]/hello"))
	if out != "hello\n" {
		t.Errorf("IPv6: %q", out)
	}
	out = kit.OK(t, kit.Limit, old(s, "--if", s.TapIf(), "--", "sh", "-c",
		"for i in 1 2 3 4 5 6 7 8; do curl -s http://"+kit.ServerAddr+"/file | sha256sum & done; wait"))
	if strings.Count(out, hash) != 8 {
		t.Errorf("eight at once: %s", out)
	}
	out = kit.OK(t, kit.Limit, old(s, "--if", s.TapIf(), "--if", "tap:tap1,ip=10.75.0.1/24", "--", "ip", "-o", "addr"))
	for _, want := range []string{"eth0    inet " + kit.StackAddr, "eth1    inet 10.75.0.1"} {
		if !strings.Contains(out, want) {
			t.Errorf("two interfaces: no %q in %s", want, out)
		}
	}
	if r := kit.Run(t, kit.Limit, old(s, "--if", s.TapIf(), "--", "sh", "-c", "exit 7")); r.Status != 7 {
		t.Errorf("the command's status: %v", r)
	}
	before.Same()
}

// TestOldLKLTools checks that the tools report which features the old kernel lacks, and
// show those that it has.
func TestOldLKLTools(t *testing.T) {
	s := kit.NewSite(t)
	s.Web(kit.Nginx{})
	name := kit.NewName()
	run := kit.Start(t, kit.Lklrun("--stack", "lkl-4.9", "--name", name, "--if", s.TapIf(), "--", "sleep", "60"))
	kit.WaitFor(t, "the run", kit.Limit, func() bool {
		return kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", name, "exec", "true")).Status == 0
	})
	for verb, want := range map[string]string{
		"list":                                   "4.9.0",
		"link":                                   "eth0  tap:tap0  up",
		"addr":                                   kit.StackAddr,
		"dmesg":                                  "Linux version 4.9",
		"sysctl net.ipv4.tcp_congestion_control": "cubic",
		"exec curl -s http://" + kit.ServerAddr + "/hello": "hello",
		"counters":                                                 "TcpExt",
		"link set eth0 mtu 1400":                                   "",
		"exec cat /sys/class/net/eth0/mtu":                         "1",
		"sysctl -w net.ipv4.tcp_congestion_control=reno":           "",
		"exec sysctl -n net.ipv4.tcp_available_congestion_control": "cubic",
		"exec ip neigh":                                            "",
		"exec sh -c true":                                          "",
		"ip -s link show eth0":                                     "eth0",
	} {
		out := kit.Lklctl(t, append([]string{"-n", name}, strings.Fields(verb)...)...)
		if !strings.Contains(out, want) {
			t.Errorf("lklctl %s: no %q in %s", verb, want, out)
		}
	}
	for verb, want := range map[string]string{
		"mptcp":                          "has no MPTCP",
		"capture -c 1 -w /dev/null":      "no packet sockets",
		"path":                           "no queueing disciplines",
		"link add tap:t7,ip=10.9.7.2/24": "accepts devices only before it boots",
	} {
		r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), append([]string{"-n", name}, strings.Fields(verb)...)...))
		if r.Status == 0 || len(kit.Lines(r.Stderr)) != 1 || !strings.Contains(r.Stderr, want) {
			t.Errorf("lklctl %s: %v", verb, r)
		}
	}
	kit.Lklctl(t, "-n", name, "stop")
	run.Wait(kit.Limit)
	r := kit.Run(t, kit.Limit, old(s, "--engine", "preload", "--if", s.TapIf(), "--", "true"))
	if r.Status != 2 || !strings.Contains(r.Stderr, "use --engine supervise") {
		t.Errorf("--engine preload: %v", r)
	}
}
