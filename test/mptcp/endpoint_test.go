// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestEndpointLive checks that endpoints and limits are shown correctly, and that
// changes apply to a connection that is already open.
func TestEndpointLive(t *testing.T) {
	s := kit.NewSite(t)
	kit.Start(t, s.Server.Command("/usr/bin/python3", "-c", `
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(("", 7000)); s.listen()
c, _ = s.accept()
while True: c.sendall(c.recv(100))`))
	s.Server.Run(t, "ip", "mptcp", "limits", "set", "subflows", "8")
	k := s.Talk("--if", fmt.Sprintf("tap:tap0,ip=%s/24", kit.StackAddr))
	do := func(args ...string) string {
		t.Helper()
		return kit.Lklctl(t, append([]string{"-n", k.Name}, args...)...)
	}
	kit.WaitFor(t, "the server listens", kit.Limit, func() bool {
		return strings.Contains(s.Server.Run(t, "ss", "-Hnlt"), ":7000")
	})
	k.Connect("c", kit.ServerAddr, 7000)
	// Now each side knows that the other supports MPTCP, so subflows can join.
	if got := k.Say(`keep["c"].sendall(b"x") or keep["c"].recv(1)`); got != "b'x'" {
		t.Fatalf("the echo: %s", got)
	}
	subflows := func() (addrs []string, backup int) {
		t.Helper()
		var conns []struct {
			Subflows []struct {
				Local  string
				Backup bool
			}
		}
		if err := json.Unmarshal([]byte(do("mptcp", "-o", "json")), &conns); err != nil || len(conns) != 1 {
			t.Fatalf("%v, %v", conns, err)
		}
		for _, f := range conns[0].Subflows {
			addrs = append(addrs, strings.Split(f.Local, ":")[0])
			if f.Backup {
				backup++
			}
		}
		return addrs, backup
	}
	endpoints := func(args ...string) string {
		t.Helper()
		var rows []struct {
			ID      int
			Address string
			Dev     string
			Port    int
			Flags   []string
		}
		if err := json.Unmarshal([]byte(do(append([]string{"-o", "json", "mptcp", "endpoint"}, args...)...)), &rows); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, r := range rows {
			all = append(all, fmt.Sprintf("%s dev %s port %d %s", r.Address, r.Dev, r.Port, strings.Join(r.Flags, " ")))
		}
		return strings.Join(all, "; ")
	}
	if got, want := endpoints(), kit.StackAddr+" dev eth0 port 0 subflow"; got != want {
		t.Errorf("at first: %s, want %s", got, want)
	}
	const more = "10.73.0.11"
	// The new address creates an endpoint automatically, but this test needs a backup
	// endpoint.
	do("addr", "add", more+"/24", "eth0")
	kit.WaitFor(t, "the new address is an endpoint", kit.Limit, func() bool { return strings.Contains(endpoints(), more+" dev eth0 port 0 subflow") })
	kit.WaitFor(t, "the connection has a subflow from it", kit.Limit, func() bool {
		addrs, _ := subflows()
		return len(addrs) == 2 && slices.Contains(addrs, more)
	})
	do("mptcp", "endpoint", "change", more, "backup")
	kit.WaitFor(t, "that subflow is a backup", kit.Limit, func() bool { _, n := subflows(); return n == 1 })
	if got := endpoints("show", more); got != more+" dev eth0 port 0 subflow backup" {
		t.Errorf("after the change: %s", got)
	}
	do("mptcp", "endpoint", "change", more, "nobackup")
	kit.WaitFor(t, "it is none any more", kit.Limit, func() bool { _, n := subflows(); return n == 0 })
	do("mptcp", "endpoint", "del", more)
	kit.WaitFor(t, "its subflow is closed", kit.Limit, func() bool { addrs, _ := subflows(); return len(addrs) == 1 })
	if got := endpoints(); strings.Contains(got, more) {
		t.Errorf("what was deleted is there again: %s", got)
	}

	do("mptcp", "endpoint", "add", more, "dev", "eth0", "id", "77", "signal", "port", "7001")
	if got := endpoints("show", "id", "77"); got != more+" dev eth0 port 7001 signal" {
		t.Errorf("added: %s", got)
	}
	if text := do("mptcp", "endpoint"); !strings.Contains(text, "77  "+more) {
		t.Errorf("the table:\n%s", text)
	}
	do("mptcp", "endpoint", "del", "id", "77")

	if got := do("mptcp", "limits"); got != "subflows 8 add_addr_accepted 8\n" {
		t.Errorf("limits: %q", got)
	}
	if got := do("mptcp", "limits", "set", "subflows", "1"); got != "subflows 1 add_addr_accepted 8\n" {
		t.Errorf("limits set: %q", got)
	}
	if got := do("mptcp", "-o", "json", "limits", "get"); !strings.Contains(got, `"subflows": 1`) {
		t.Errorf("limits: %s", got)
	}

	k.Refused(2, "10.73.0.99: the stack has no such MPTCP endpoint", "mptcp", "endpoint", "del", "10.73.0.99")
	k.Refused(2, "10.73.0.99: the stack has no such MPTCP endpoint", "mptcp", "endpoint", "show", "10.73.0.99")
	k.Refused(2, "id 99: the stack has no such MPTCP endpoint", "mptcp", "endpoint", "show", "id", "99")
	k.Refused(2, "id 99: the stack has no such MPTCP endpoint", "mptcp", "endpoint", "change", "id", "99", "backup")
	k.Refused(2, "dev eth7: the stack has no such interface", "mptcp", "endpoint", "add", more, "dev", "eth7")
	k.Refused(2, "adding the MPTCP endpoint "+kit.StackAddr+": ", "mptcp", "endpoint", "add", kit.StackAddr)

	do("mptcp", "endpoint", "add", more, "dev", "eth0", "signal")
	do("mptcp", "endpoint", "flush")
	if r := kit.Run(t, kit.Limit, exec.Command(kit.Bin("lklctl"), "-n", k.Name, "mptcp", "endpoint", "--fail-empty")); r.Status != 1 || r.Stdout != "" {
		t.Errorf("after flush: %v", r)
	}
	k.End()
}
