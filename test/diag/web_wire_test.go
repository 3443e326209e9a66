// SPDX-License-Identifier: Apache-2.0

package diag

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/lklrun/lklrun/test/kit"
)

// TestWebWires checks the picture of a client and a server that two wires join, and of a
// third instance on a wire with three ends: the traffic of a transfer appears on the
// wires that carry it, in its direction.
func TestWebWires(t *testing.T) {
	kit.Need(t, "iperf3", kit.Bin("lklrun"), kit.Bin("lklctl"))
	host, lab := kit.NewNetns(t, "host"), kit.NewName()
	if os.Getenv("PICTURES") != "" {
		lab = "demo"
	}
	run := func(node string, ifs []string, command ...string) *kit.Proc {
		args := []string{kit.Bin("lklrun"), "-q", "--name", lab + "." + node}
		for _, i := range ifs {
			args = append(args, "--if", "wire:"+lab+"."+i)
		}
		return kit.Start(t, host.Command(append(append(args, "--"), command...)...))
	}
	server := run("server", []string{"a,ip=10.75.1.2/24,rate=100mbit", "b,ip=10.75.2.2/24,rate=50mbit", "lan,ip=10.75.3.2/24"}, "iperf3", "-s")
	kit.WaitFor(t, "the server", kit.Limit, func() bool { return kit.StackListens(t, lab+".server", 5201) || !server.Running() })
	observer := run("observer", []string{"lan,ip=10.75.3.3/24"}, "sleep", "600")
	kit.WaitFor(t, "the observer", kit.Limit, func() bool {
		return host.Command(kit.Bin("lklctl"), "-n", lab+".observer", "exec", "--", "ping", "-c1", "-w1", "10.75.3.2").Run() == nil || !observer.Running()
	})
	client := run("client", []string{"a,ip=10.75.1.1/24,rate=100mbit", "b,ip=10.75.2.1/24,rate=50mbit", "lan,ip=10.75.3.1/24"}, "iperf3", "-t", "120", "-c", "10.75.1.2")

	web := kit.Start(t, host.Command(kit.Bin("lklctl"), "web"))
	var page string
	kit.WaitFor(t, "the page's address", kit.Limit, func() bool {
		out, _ := web.Output()
		page = strings.TrimSpace(out)
		return strings.HasSuffix(out, "\n") || !web.Running()
	})
	t.Cleanup(func() {
		if t.Failed() {
			out, errs := client.Output()
			t.Logf("the client: %s%s", out, errs)
		}
	})
	streams(t, host, page+"api/events", `event: overview\n.*"name":"`+lab+`\.client".*"type":"wire","host":"`+lab+`\.a","name":"eth0",.*"tx_bit_s":[1-9]\d{6,}`)
	files := ""
	if os.Getenv("PICTURES") != "" {
		files = pictures(t)
	}
	kit.Browse(t, host, func(what string) {
		if what != "end observer" {
			t.Errorf("the browser asks for %q", what)
		}
		kit.Lklctl(t, "-n", lab+".observer", "stop")
		observer.Wait(kit.Limit)
	}, kit.TestData("web/wires.cjs"), page, lab, files)

	for _, node := range []string{"client", "server"} {
		kit.Lklctl(t, "-n", lab+"."+node, "stop")
	}
	client.Wait(kit.Limit)
	server.Wait(kit.Limit)
	web.Signal(syscall.SIGINT)
	if r := web.Wait(kit.Limit); r.Status != 0 || strings.TrimSpace(r.Stderr) != "" {
		t.Errorf("lklctl web, interrupted: %v", r)
	}
}
