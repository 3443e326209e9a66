// SPDX-License-Identifier: Apache-2.0

package mptcp

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// monitored is an event in the format of a monitor.
type monitored struct {
	Event, Token, Local, Remote, Iface, Process string
	PID, Ifindex                                int
	LocalID                                     *int `json:"local_id"`
	RemoteID                                    *int `json:"remote_id"`
}

func (m monitored) String() string {
	id := func(n *int) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	return fmt.Sprintf("%s %s %s %s %s %s", m.Event, m.Token, m.Local, m.Remote, id(m.LocalID), id(m.RemoteID))
}

// ipMonitored parses a line of ip mptcp monitor.
func ipMonitored(line string) string {
	head, rest, _ := strings.Cut(strings.TrimPrefix(line, "["), "]")
	v := map[string]string{"remid": "-", "locid": "-"}
	for _, word := range strings.Fields(rest) {
		key, value, _ := strings.Cut(word, "=")
		v[strings.TrimSuffix(key, "4")] = value
	}
	end := func(addr, port string) string {
		switch {
		case v[addr] == "":
			return ""
		case v[port] == "":
			return v[addr] + ":0"
		}
		return v[addr] + ":" + v[port]
	}
	return fmt.Sprintf("%s %s %s %s %s %s", strings.TrimSpace(head), v["token"], end("saddr", "sport"), end("daddr", "dport"), v["locid"], v["remid"])
}

// TestMPTCPMonitor checks that the monitor reports the same events as ip mptcp monitor,
// with their owners.
func TestMPTCPMonitor(t *testing.T) {
	t.Parallel()
	p := kit.NewPathSite(t)
	port := serveEcho(p, true, false)
	k := talkOnPaths(p)
	k.Say("1")
	var monitors []*kit.Proc
	for _, form := range []string{"table", "json"} {
		m := kit.Start(t, exec.Command(kit.Bin("lklctl"), "-n", p.Instance, "-o", form, "mptcp", "monitor"))
		kit.WaitFor(t, "the monitor listens", kit.Limit, func() bool {
			_, errs := m.Output()
			return strings.Contains(errs, "listening") || !m.Running()
		})
		monitors = append(monitors, m)
	}
	// ip does not report when it listens. The stack does: it counts the sockets of
	// generic netlink that are in a group.
	listening := func() int {
		all := regexp.MustCompile(`(?m)^\S+ 16 +\d+ +(\S+)`).FindAllStringSubmatch(kit.Lklctl(t, "-n", p.Instance, "cat", "/proc/net/netlink"), -1)
		return len(slices.DeleteFunc(all, func(m []string) bool { return strings.Trim(m[1], "0") == "" }))
	}
	before := listening()
	ip := kit.Start(t, exec.Command(kit.Bin("lklctl"), "exec", "-n", p.Instance, "--", "ip", "mptcp", "monitor"))
	kit.WaitFor(t, "ip mptcp monitor listens", kit.Limit, func() bool { return listening() > before })

	told := func() (all []monitored) {
		out, _ := monitors[1].Output()
		for _, line := range kit.Lines(out) {
			var m monitored
			if err := json.Unmarshal([]byte(line), &m); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			all = append(all, m)
		}
		return all
	}
	await := func(kind string) {
		t.Helper()
		kit.WaitFor(t, kind, kit.Limit, func() bool {
			return slices.ContainsFunc(told(), func(m monitored) bool { return m.Event == kind })
		})
	}
	exchange(p, k, port)
	await("SF_ESTABLISHED")
	p.Server.Run(t, "ip", "mptcp", "endpoint", "add", "10.74.2.1", "signal")
	exchange(p, k, port)
	await("ANNOUNCED")
	p.Server.Run(t, "ip", "mptcp", "endpoint", "del", "id", "1")
	exchange(p, k, port)
	await("REMOVED")
	kit.Lklctl(t, "-n", p.Instance, "mptcp", "endpoint", "del", "10.74.2.2")
	await("SF_CLOSED")
	k.Say(`keep["c"].close()`)
	await("CLOSED")
	var fromIP []string
	kit.WaitFor(t, "the end in ip mptcp monitor", kit.Limit, func() bool {
		out, _ := ip.Output()
		fromIP = kit.Lines(out)
		return strings.Contains(out, " CLOSED]")
	})
	all := told()
	for i := range max(len(all), len(fromIP)) {
		if i >= len(all) || i >= len(fromIP) || all[i].String() != ipMonitored(fromIP[i]) {
			t.Fatalf("event %d differs:\n%v\nip mptcp monitor:\n%s", i, all, strings.Join(fromIP, "\n"))
		}
	}
	for _, m := range all {
		if m.Process != "python3" && m.Event != "CREATED" && m.Event != "CLOSED" {
			t.Errorf("%v: process %q", m, m.Process)
		}
		if want := map[string]string{"10.74.1.2": "eth0", "10.74.2.2": "eth1", "": ""}[strings.Split(m.Local, ":")[0]]; m.Iface != want {
			t.Errorf("%v: interface %q, want %q", m, m.Iface, want)
		}
	}
	text, _ := monitors[0].Output()
	if got := kit.Lines(text); len(got) < len(all) || !strings.Contains(text, "SF_ESTABLISHED "+all[0].Token+" eth1 10.74.2.2:") {
		t.Errorf("as a table:\n%s", text)
	}
	monitors[0].Signal(syscall.SIGINT)
	if r := monitors[0].Wait(kit.Limit); r.Status != 0 {
		t.Errorf("after Ctrl-C: %v", r)
	}
	k.End()
	if r := monitors[1].Wait(kit.Limit); r.Status != 0 || !strings.Contains(r.Stderr, "has ended") {
		t.Errorf("after the instance's end: %v", r)
	}
}
