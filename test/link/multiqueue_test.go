// SPDX-License-Identifier: Apache-2.0

package link

import (
	_ "embed"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

//go:embed testdata/queue_server.py
var queueServer string

//go:embed testdata/queue_client.py
var queueClient string

// TestMultiqueue starts two runs with one address. Each uses one queue of the same tap.
// The host's connections must be spread over both queues, and each connection must stay
// on its queue. The device must exist until the last run has ended.
func TestMultiqueue(t *testing.T) {
	kit.NewSite(t)
	const spec = "tap:mq0,ip=10.76.0.2/24,mac=02:00:00:00:76:02,multiqueue"
	before := kit.Take(t)
	var runs []*kit.Proc
	for _, name := range []string{"one", "two"} {
		run := kit.Start(t, kit.Lklrun("--name", kit.NewName(), "--stack", "vanilla", "--if", spec, "--", "/usr/bin/python3", "-c", queueServer, name))
		kit.WaitFor(t, "the server "+name, kit.Limit, func() bool {
			out, _ := run.Output()
			return strings.Contains(out, "ready")
		})
		runs = append(runs, run)
	}
	kit.Host.Addr(t, "mq0", "10.76.0.1/24")
	out := kit.OK(t, kit.Limit, exec.Command("/usr/bin/python3", "-c", queueClient))
	if n := strings.Fields(out); len(n) != 2 || n[0] == "0" || n[1] == "0" {
		t.Errorf("64 connections: %s", out)
	}
	r := kit.Run(t, kit.Limit, kit.Lklrun("--name", kit.NewName(), "--if", "tap:mq0,ip=10.76.0.2/24", "--", "true"))
	// lklrun detects a tap in use by its carrier, which may appear one second late.
	if r.Status == 0 || !strings.Contains(r.Stderr, "in use") && !strings.Contains(r.Stderr, "add multiqueue") {
		t.Errorf("without multiqueue: %v", r)
	}
	runs[0].Signal(syscall.SIGTERM)
	runs[0].Wait(kit.Limit)
	out = kit.OK(t, kit.Limit, exec.Command("/usr/bin/python3", "-c", queueClient))
	if n := strings.Fields(out); len(n) != 2 || n[1] != "64" {
		t.Errorf("64 connections to the one that is left: %s", out)
	}
	runs[1].Signal(syscall.SIGTERM)
	runs[1].Wait(kit.Limit)
	before.Same()
}
