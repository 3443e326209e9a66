// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lklrun/lklrun/test/kit"
)

func TestMain(m *testing.M) { kit.Main(m, nil) }

// TestTakeOver checks that the addresses of a container are local for the processes in its
// network namespace while a stack has them, and that the host's kernel does not answer for
// them on the wire. Afterwards, everything is as before.
func TestTakeOver(t *testing.T) {
	kit.Need(t, "ip", "ping")
	const id = "takeover"
	pod, peer := kit.NewNetns(t, "pod"), kit.NewNetns(t, "peer")
	kit.Veth(t, pod, "eth0", peer, "p0")
	pod.Addr(t, "eth0", "10.9.0.2/24", "fd09::2/64")
	peer.Addr(t, "p0", "10.9.0.1/24", "fd09::1/64")
	linkLocal := regexp.MustCompile("fe80:[^ ]* ") // do not return
	state := func() string {
		return linkLocal.ReplaceAllString(pod.Run(t, "ip", "-br", "addr"), "") + pod.Run(t, "ip", "rule") + pod.Run(t, "ip", "-6", "rule") +
			pod.Run(t, "ip", "route", "show", "table", "local")
	}
	answers := func(addr string) bool {
		return kit.Run(t, kit.Limit, peer.Command("ping", "-c", "1", "-W", "1", addr)).Status == 0
	}
	before := state()
	path := "/run/netns/" + pod.Name
	var interfaces []string
	kit.Must(t, within(path, func() (err error) {
		interfaces, err = takeOver(taken{Netns: path}, id)
		return err
	}))
	if len(interfaces) != 1 || !strings.HasSuffix(interfaces[0], ",ip=10.9.0.2/24,ip6=fd09::2/64") {
		t.Errorf("interfaces: %q", interfaces)
	}
	for _, addr := range []string{"10.9.0.2", "fd09::2"} {
		l := pod.Listen(t, net.JoinHostPort(addr, "80"))
		pod.Do(t, func() error {
			c, err := net.Dial("tcp", l.Addr().String())
			if err == nil {
				c.Close()
			}
			return err
		})
		pod.Do(t, func() error {
			if _, err := net.Dial("tcp", net.JoinHostPort(addr, "81")); err == nil || !strings.Contains(err.Error(), "connection refused") {
				t.Errorf("a port without a listener: %v", err)
			}
			return nil
		})
		if answers(addr) {
			t.Errorf("the host's kernel answers for %s on the wire", addr)
		}
	}
	kit.Must(t, end(t.Context(), id))
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("not everything is as before (-before +after):\n%s", diff)
	}
	for _, addr := range []string{"10.9.0.2", "fd09::2"} {
		kit.WaitFor(t, "an answer of "+addr, kit.Limit, func() bool { return answers(addr) })
	}
}
